package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

const (
	groupPrefix = "caisson-"
	// cpuPeriod is the kernel's default, in microseconds.
	cpuPeriod = 100_000
	delegate  = "Run caisson where a cgroup is delegated: `systemd-run --user --scope -p Delegate=yes caisson …`."
)

// Cgroups are the control groups that this process is in: of version 1 by
// controller, and of version 2. A host may have one kind, or both (hybrid: the
// controllers in version 1, and a version 2 that has none).
//
// They are used through plain files: it takes two dozen lines, makes nothing
// that was not asked for, and each refusal of the kernel is seen as it is.
type Cgroups struct {
	v1     map[string]string
	v2     string   // empty: not mounted
	mounts []string // where version 1 and 2 are mounted
}

// FindCgroups reads them from the kernel. They are long to read on a host with
// many mounts, and do not change while a process lives: keep them.
//
// Those of this thread are read, which nobody else can use meanwhile: the first
// thread, which the kernel shows for the process, may be in the cgroups of a box
// for the moment in which that is started ([Group.Start]). Taken for ours, they
// would be where threads of this process are put back to, to be ended with the box.
func FindCgroups() (*Cgroups, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return findCgroups("/proc/thread-self")
}

// findCgroups reads them from the files of a process. Source of the formats:
// proc(5), cgroups(7).
func findCgroups(proc string) (*Cgroups, error) {
	c := &Cgroups{v1: map[string]string{}}
	raw, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") { // empty for version 2
			own[name] = parts[2]
		}
	}
	raw, err = os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		c.mounted(line, own)
	}
	return c, nil
}

// mounted takes a line of mountinfo. own are the paths of this process's
// cgroups, by controller.
func (c *Cgroups) mounted(line string, own map[string]string) {
	before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	fields, tail := strings.Fields(before), strings.Fields(after)
	if !found || len(fields) < 5 || len(tail) < 3 || !strings.HasPrefix(tail[0], "cgroup") {
		return
	}
	root, at := fields[3], fields[4]
	c.mounts = append(c.mounts, at)
	dir := func(path string) string {
		return filepath.Join(at, strings.TrimPrefix(path, strings.TrimSuffix(root, "/")))
	}
	if tail[0] == "cgroup2" {
		c.v2 = dir(own[""])
		return
	}
	for name := range strings.SplitSeq(tail[2], ",") {
		if path, ok := own[name]; ok {
			c.v1[name] = dir(path)
		}
	}
}

// setting is a file of a controller and what is written into it.
type setting struct {
	file, value string
	optional    bool
}

type controller struct {
	control caisson.Control
	name    string
	v1, v2  []setting
	oom1    string // file of version 1 with the count of processes ended for memory
}

func controllers(l caisson.Limits) []controller {
	memory, pids := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Pids, 10)
	return []controller{
		{
			caisson.ControlMemory, "memory",
			[]setting{{file: "memory.limit_in_bytes", value: memory}, {file: "memory.memsw.limit_in_bytes", value: memory, optional: true}},
			[]setting{{file: "memory.max", value: memory}, {file: "memory.swap.max", value: "0", optional: true}},
			"memory.oom_control",
		},
		{
			caisson.ControlPids, "pids",
			[]setting{{file: "pids.max", value: pids}},
			[]setting{{file: "pids.max", value: pids}},
			"",
		},
		{
			caisson.ControlCPU, "cpu",
			[]setting{
				{file: "cpu.cfs_period_us", value: strconv.Itoa(cpuPeriod)},
				{file: "cpu.cfs_quota_us", value: strconv.FormatInt(l.CPUs*cpuPeriod, 10)},
			},
			[]setting{{file: "cpu.max", value: fmt.Sprintf("%d %d", l.CPUs*cpuPeriod, cpuPeriod)}},
			"",
		},
	}
}

// unifiedParent returns the version 2 cgroup in which one with limits can be
// made, "" if there is none: our own where it may have processes beside
// children, else the one above, in which a delegated one has siblings.
func unifiedParent(own string) string {
	for _, dir := range []string{own, filepath.Dir(own)} {
		if unix.Access(dir, unix.W_OK) != nil {
			continue
		}
		_ = writeControl(filepath.Join(dir, "cgroup.subtree_control"), "+memory +pids +cpu") // what counts is what is there then
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		has := strings.Fields(string(raw))
		if err == nil && slices.Contains(has, "memory") && slices.Contains(has, "pids") {
			return dir
		}
	}
	return ""
}

// plain is err without the path, and without the name of a sandbox, which say
// nothing to people: the same cause reads the same each time.
func plain(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		name := filepath.Base(at.Path)
		if strings.HasPrefix(name, groupPrefix) {
			name = groupPrefix + "*"
		}
		return fmt.Errorf("%s %s: %w", at.Op, name, at.Err)
	}
	return err
}

// writeControl writes a control file of the kernel, which is never made. It uses
// system calls of its own: package os asks the poller about each file, which it
// is quicker to write.
func writeControl(path, value string) error {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	err = again(func() error {
		_, err := unix.Write(fd, []byte(value)) // all of it, or nothing
		return err
	})
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// again does what a signal has interrupted once more.
func again(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
