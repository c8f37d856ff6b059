//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

const (
	groupPrefix = "caisson-"
	// cpuPeriod is the kernel's default, in microseconds.
	cpuPeriod = 100_000
	// emptyBound is how long a cgroup whose processes have ended may take to
	// let itself be removed.
	emptyBound = time.Second
)

// hierarchies are the cgroup directories of this process: of version 1 by
// controller, and of version 2.
type hierarchies struct {
	v1     map[string]string
	mounts []string // where version 1 and 2 are mounted
	v2     string
}

// findHierarchies reads them from the kernel. Source of the formats: proc(5),
// cgroups(7).
func findHierarchies() (hierarchies, error) {
	h := hierarchies{v1: map[string]string{}}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return h, err
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
	raw, err = os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(string(raw)) {
		before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(tail) < 3 || !strings.HasPrefix(tail[0], "cgroup") {
			continue
		}
		root, at := fields[3], fields[4]
		h.mounts = append(h.mounts, at)
		dir := func(path string) string {
			return filepath.Join(at, strings.TrimPrefix(path, strings.TrimSuffix(root, "/")))
		}
		if tail[0] == "cgroup2" {
			h.v2 = dir(own[""])
			continue
		}
		for name := range strings.SplitSeq(tail[2], ",") {
			if path, ok := own[name]; ok {
				h.v1[name] = dir(path)
			}
		}
	}
	return h, nil
}

// hierarchies returns what was found at the first use: they are long to read
// on a host with many mounts, and do not change while a process lives.
func (e *Engine) hierarchies() (hierarchies, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.groups == nil {
		found, err := findHierarchies()
		if err != nil {
			return found, err
		}
		e.groups = &found
	}
	return *e.groups, nil
}

// group is the cgroups of one box, at most one per controller.
type group struct {
	dirs     []string
	enforced map[caisson.Control]string // by what
	why      map[caisson.Control]string
	fd       *os.File // of the version 2 cgroup to start in, if there is one
	locks    []*os.File
	oom      string // file with the count of processes ended for memory

	counting sync.Mutex
	count    *os.File // oom, kept open: it is read for every command
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
	oom1    string
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

// newGroup makes what this host lets us make; the rest is in why. Nothing of
// it is left after an error of the caller's that calls remove.
func (e *Engine) newGroup(id caisson.SandboxID, limits caisson.Limits) *group {
	g := &group{enforced: map[caisson.Control]string{}, why: map[caisson.Control]string{}}
	h, err := e.hierarchies()
	unified := ""
	if err == nil && h.v2 != "" {
		unified = unifiedParent(h.v2)
	}
	name := groupPrefix + string(id)
	for _, c := range controllers(limits) {
		var made error
		switch {
		case err != nil:
			made = err
		case h.v1[c.name] != "":
			made = g.make(filepath.Join(h.v1[c.name], name), c.v1)
			if made == nil {
				g.enforced[c.control] = "cgroup v1 " + c.name
				if c.oom1 != "" {
					g.oom = filepath.Join(h.v1[c.name], name, c.oom1)
				}
			}
		case unified != "":
			made = g.make(filepath.Join(unified, name), c.v2)
			if made == nil {
				made = g.enter(filepath.Join(unified, name))
			}
			if made == nil {
				g.enforced[c.control] = "cgroup v2"
			}
		default:
			made = errors.New("no cgroup that may be divided is delegated to this user")
		}
		if made != nil {
			g.why[c.control] = "no cgroup for it: " + made.Error()
		}
	}
	return g
}

func (g *group) make(dir string, settings []setting) error {
	if !slices.Contains(g.dirs, dir) {
		lock, err := makeLocked(dir)
		if err != nil {
			return plain(err)
		}
		g.dirs, g.locks = append(g.dirs, dir), append(g.locks, lock)
	}
	for _, s := range settings {
		if err := writeFile(filepath.Join(dir, s.file), s.value); err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return plain(err)
		}
	}
	return nil
}

// plain is err without the path, which says nothing to people.
func plain(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("%s %s: %w", at.Op, filepath.Base(at.Path), at.Err)
	}
	return err
}

// enter remembers the version 2 cgroup to start in.
func (g *group) enter(dir string) error {
	if g.fd != nil {
		return nil
	}
	fd, err := os.Open(dir)
	if err != nil {
		return plain(err)
	}
	g.fd, g.oom = fd, filepath.Join(dir, "memory.events")
	return nil
}

// unifiedParent returns the version 2 cgroup in which one with limits can be
// made, "" if there is none: our own where it may have processes beside
// children, else the one above, in which a delegated one has siblings.
func unifiedParent(own string) string {
	for _, dir := range []string{own, filepath.Dir(own)} {
		if unix.Access(dir, unix.W_OK) != nil {
			continue
		}
		_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+memory +pids +cpu") // what counts is what is there then
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && strings.Contains(string(raw), "memory") && strings.Contains(string(raw), "pids") {
			return dir
		}
	}
	return ""
}

// start calls begin in a thread that is in the box's cgroups, so that the
// process that begin starts is born there. A thread may put itself into a
// version 1 cgroup at once; to put another process there means to wait until
// all processors have noticed, which takes longer than to make the box.
func (g *group) start(begin func() error) error {
	runtime.LockOSThread()
	var entered []string
	err := func() error {
		for _, dir := range g.dirs {
			if g.fd != nil && dir == g.fd.Name() {
				continue // begin starts it in this one
			}
			if err := writeFile(filepath.Join(dir, "tasks"), "0"); err != nil {
				return fmt.Errorf("enter cgroup of the guest: %w", plain(err))
			}
			entered = append(entered, dir)
		}
		return begin()
	}()
	for _, dir := range entered {
		if leaveErr := writeFile(filepath.Join(filepath.Dir(dir), "tasks"), "0"); leaveErr != nil {
			// A thread that stays locked ends with its goroutine.
			return errors.Join(err, fmt.Errorf("leave cgroup of the guest: %w", plain(leaveErr)))
		}
	}
	runtime.UnlockOSThread()
	return err
}

// kills returns how many processes were ended for memory so far.
func (g *group) kills() (int64, error) {
	g.counting.Lock()
	defer g.counting.Unlock()
	if g.count == nil {
		fd, err := unix.Open(g.oom, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		g.count = os.NewFile(uintptr(fd), g.oom)
	}
	raw := make([]byte, 1024)
	n, err := g.count.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	raw = raw[:n]
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no count", filepath.Base(g.oom))
}

// remove removes the cgroups, whose processes have ended.
func (g *group) remove() error {
	if g.fd != nil {
		g.fd.Close()
		g.fd = nil
	}
	g.counting.Lock()
	if g.count != nil {
		g.count.Close() // kills reports it from now on
	}
	g.counting.Unlock()
	err := removeGroups(g.dirs)
	for _, lock := range g.locks {
		lock.Close()
	}
	g.locks = nil
	return err
}

func removeGroups(dirs []string) error {
	var errs []error
	end := time.Now().Add(emptyBound)
	for _, dir := range dirs {
		errs = append(errs, removeGroup(dir, end))
	}
	return errors.Join(errs...)
}

func removeGroup(dir string, end time.Time) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		<-time.After(time.Millisecond) // an ended process leaves a little after its parent was told
	}
}

func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
