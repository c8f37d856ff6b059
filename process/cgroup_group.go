package process

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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Group is the cgroups of one sandbox, at most one per hierarchy. Each is
// locked by this process for as long as it is there.
type Group struct {
	dirs     []string
	enforced map[caisson.Control]string // by what
	why      map[caisson.Control]string
	claims   map[caisson.Control]claim // of what is enforced
	proved   bool
	fd       *os.File // of the version 2 cgroup to start in, if there is one
	locks    []*os.File
	oom      string // file with the count of processes ended for memory

	counting sync.Mutex
	count    *os.File // oom, kept open: it is read for every command
}

// GroupSpec says what group is wanted.
type GroupSpec struct {
	ID caisson.SandboxID
	// Limits are whole: no field that is used (Memory, Pids, CPUs) is 0.
	Limits caisson.Limits
	// Kill wants a cgroup that all processes can be ended through at once, also
	// where it limits nothing. What has a pid namespace needs none.
	Kill bool
}

// Make makes what this host lets us make; what it does not is in Row. The
// caller must call Remove, also where nothing was started in it. A nil Cgroups
// makes nothing.
func (c *Cgroups) Make(spec GroupSpec) *Group {
	g := &Group{enforced: map[caisson.Control]string{}, why: map[caisson.Control]string{}, claims: map[caisson.Control]claim{}}
	name := groupPrefix + string(spec.ID)
	if c == nil {
		c = &Cgroups{}
	}
	unified := sync.OnceValue(func() string { return unifiedParent(c.v2) }) // not asked for where version 1 has all
	for _, k := range controllers(spec.Limits) {
		var made error
		switch {
		case c.v1[k.name] != "":
			dir := filepath.Join(c.v1[k.name], name)
			made = g.make(dir, k.v1)
			if made == nil {
				g.enforced[k.control], g.claims[k.control] = "cgroup v1 "+k.name, claim{dir, k.v1}
				if k.oom1 != "" {
					g.oom = filepath.Join(dir, k.oom1)
				}
			}
		case c.v2 != "" && unified() != "":
			dir := filepath.Join(unified(), name)
			made = g.make(dir, k.v2)
			if made == nil {
				made = g.enter(dir)
			}
			if made == nil {
				g.enforced[k.control], g.claims[k.control] = "cgroup v2", claim{dir, k.v2}
				if k.control == caisson.ControlMemory {
					g.oom = filepath.Join(dir, "memory.events")
				}
			}
		default:
			made = errors.New("no cgroup that may be divided is delegated to this user")
		}
		if made != nil {
			g.why[k.control] = "no cgroup for it: " + made.Error()
		}
	}
	if spec.Kill && g.fd == nil {
		g.killable(c, name)
	}
	return g
}

// killable adds a cgroup of version 2 for its cgroup.kill, or one of version 1
// that can be frozen. Where there is neither, what is there must do.
func (g *Group) killable(c *Cgroups, name string) {
	if c.v2 != "" {
		dir := filepath.Join(c.v2, name)
		if g.make(dir, nil) == nil && g.enter(dir) == nil {
			return
		}
	}
	if c.v1["freezer"] != "" {
		_ = g.make(filepath.Join(c.v1["freezer"], name), nil) // see above
	}
}

func (g *Group) make(dir string, settings []setting) error {
	if !slices.Contains(g.dirs, dir) {
		lock, err := makeLocked(dir)
		if err != nil {
			return plain(err)
		}
		g.dirs, g.locks = append(g.dirs, dir), append(g.locks, lock)
	}
	for _, s := range settings {
		if err := writeControl(filepath.Join(dir, s.file), s.value); err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return plain(err)
		}
	}
	return nil
}

// enter remembers the version 2 cgroup to start in.
func (g *Group) enter(dir string) error {
	if g.fd != nil {
		return nil
	}
	fd, err := os.Open(dir)
	if err != nil {
		return plain(err)
	}
	g.fd = fd
	return nil
}

// Dirs returns the paths of the cgroups, for the record of the sandbox.
func (g *Group) Dirs() []string { return slices.Clone(g.dirs) }

// Enforces tells whether the group limits what control means.
func (g *Group) Enforces(control caisson.Control) bool { return g.enforced[control] != "" }

// Took tells whether the kernel took the limit when the group was made: then
// nothing else was asked to limit it, also where Enforces says no by now.
func (g *Group) Took(control caisson.Control) bool {
	_, took := g.claims[control]
	return took
}

// Row is the row of an isolation report for memory, pids or cpu: what limits
// it, or why nothing does. An engine that has another way changes it.
func (g *Group) Row(control caisson.Control) caisson.Enforcement {
	row := caisson.Enforcement{Control: control, By: g.enforced[control]}
	if row.By != "" {
		if row.Enforced = true; g.proved {
			row.Test = "read back, with the guest in it before the first program ran"
		}
		return row
	}
	row.Why, row.Fix = g.why[control], delegate
	if os.Geteuid() == 0 {
		row.Fix = "Mount a cgroup hierarchy with this controller writable."
	}
	return row
}

// Start calls begin in a thread that is in the group's cgroups, so that the
// process that begin starts, with attr, is born there, and reads back what limits
// it. A thread may put itself
// into a version 1 cgroup at once; to put another process there means to wait
// until all processors have noticed, which takes longer than to make a box.
func (g *Group) Start(attr *syscall.SysProcAttr, begin func() error) error {
	if g.fd != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(g.fd.Fd()) //nolint:gosec // a descriptor
	}
	runtime.LockOSThread()
	var entered []string
	err := func() error {
		for _, dir := range g.dirs {
			if g.fd != nil && dir == g.fd.Name() {
				continue // begin starts it in this one
			}
			if err := writeControl(filepath.Join(dir, "tasks"), "0"); err != nil {
				return fmt.Errorf("enter cgroup of the guest: %w", plain(err))
			}
			entered = append(entered, dir)
		}
		return begin()
	}()
	if err == nil {
		g.prove() // while what was begun does the same for itself
	}
	for _, dir := range entered {
		if leaveErr := writeControl(filepath.Join(filepath.Dir(dir), "tasks"), "0"); leaveErr != nil {
			// A thread that stays locked ends with its goroutine.
			return errors.Join(err, fmt.Errorf("leave cgroup of the guest: %w", plain(leaveErr)))
		}
	}
	runtime.UnlockOSThread()
	return err
}

// OOM returns the function that tells how many processes of the group the
// kernel has ended for memory so far; nil where that cannot be told.
func (g *Group) OOM() func() (int64, error) {
	if g.oom == "" {
		return nil
	}
	return g.kills
}

func (g *Group) kills() (int64, error) {
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

// Remove removes the cgroups, whose processes have ended. OOM fails from then on.
func (g *Group) Remove() error {
	if g.fd != nil {
		g.fd.Close()
		g.fd = nil
	}
	g.counting.Lock()
	if g.count != nil {
		g.count.Close()
	}
	g.counting.Unlock()
	err := removeGroups(g.dirs)
	for _, lock := range g.locks {
		lock.Close()
	}
	g.locks = nil
	return err
}
