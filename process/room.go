package process

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Room is what this host could still give now.
type Room struct {
	Memory int64 // bytes that programs could take without swapping
	Pids   int64 // processes and threads
}

// Room asks the kernel how much room there is: of the machine, and of each
// cgroup that this process is in, as a container has its own. A limit that
// cannot be read is none.
func (c *Cgroups) Room() (Room, error) { return c.roomIn("/proc") }

func (c *Cgroups) roomIn(proc string) (Room, error) {
	room := Room{Memory: math.MaxInt64, Pids: math.MaxInt64}
	available, ok := field(filepath.Join(proc, "meminfo"), "MemAvailable:")
	if !ok {
		return room, fmt.Errorf("read %s/meminfo: it does not say what is available", proc)
	}
	room.Memory = available << 10
	if n, ok := threads(filepath.Join(proc, "loadavg")); ok {
		for _, name := range []string{"kernel/pid_max", "kernel/threads-max"} {
			if most, ok := number(filepath.Join(proc, "sys", name)); ok {
				room.Pids = min(room.Pids, most-n)
			}
		}
	}
	if c == nil {
		return room, nil
	}
	for dir := range c.above(c.v1["memory"]) {
		room.Memory = min(room.Memory, left(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
	}
	for dir := range c.above(c.v1["pids"]) {
		room.Pids = min(room.Pids, left(dir, "pids.max", "pids.current", ""))
	}
	for dir := range c.above(c.v2) {
		room.Memory = min(room.Memory, left(dir, "memory.max", "memory.current", "inactive_file"))
		room.Pids = min(room.Pids, left(dir, "pids.max", "pids.current", ""))
	}
	return room, nil
}

// above goes from a cgroup up to where its hierarchy is mounted.
func (c *Cgroups) above(dir string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for dir != "" && yield(dir) && !slices.Contains(c.mounts, dir) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
		}
	}
}

// left is what a cgroup's limit leaves. What it keeps of files that were read
// is given up when it is needed.
func left(dir, limit, used, reclaimable string) int64 {
	most, ok := number(filepath.Join(dir, limit))
	now, there := number(filepath.Join(dir, used))
	if !ok || !there {
		return math.MaxInt64
	}
	if reclaimable != "" {
		files, _ := field(filepath.Join(dir, "memory.stat"), reclaimable) // not told: none
		now -= min(files, now)
	}
	return max(most-now, 0)
}

// number reads a file that is one number. "max" is none.
func number(path string) (int64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}

// field reads the number behind a name that begins a line.
func field(path, name string) (int64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(raw) {
		if words := bytes.Fields(line); len(words) >= 2 && string(words[0]) == name {
			n, err := strconv.ParseInt(string(words[1]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// threads are all of the machine: the number behind the slash of loadavg.
func threads(path string) (int64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	words := strings.Fields(string(raw))
	if len(words) < 4 {
		return 0, false
	}
	_, all, _ := strings.Cut(words[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	return n, err == nil
}
