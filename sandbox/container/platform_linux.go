package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// platform is what lends files on this system. It is made at its first use.
type platform struct {
	mu      sync.Mutex
	program *layout.Program
	lender  *layout.Lender
}

func (p *platform) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lender == nil {
		return nil
	}
	return errors.Join(p.lender.Close(), p.program.Close())
}

func (p *platform) open(name string, read func() ([]byte, error)) *layout.Lender {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lender == nil {
		p.program = layout.NewProgram(name, read)
		p.lender = layout.NewLender(p.program)
	}
	return p.lender
}

// lend mounts what the box is lent in its directory, as the box's user's own,
// for the engine to take from there. Only root can, and needs to. Mounts of a
// killed process are dropped with the directory.
func (e *Engine) lend(s *staging, paths []string, u user) error {
	lender := e.platform.open(e.opts.Name, e.opts.Guest)
	as := layout.User{Inside: u.uid, InsideGroup: u.gid, Outside: u.uid, OutsideGroup: u.gid, Mapped: true}
	for i, path := range paths {
		tree, err := lender.Lend(path, as)
		if err != nil {
			return err
		}
		at := filepath.Join(s.dir, "lent-"+strconv.Itoa(i))
		err = attachAt(tree, path, at)
		if closeErr := tree.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("mount %s for the engine: %w", path, err)
		}
		s.lent[path] = at
	}
	return nil
}

// attachAt attaches a tree at a mount point that it makes of the source's kind.
func attachAt(tree *os.File, source, at string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.Mkdir(at, 0o700)
	} else {
		err = unix.Mknod(at, unix.S_IFREG|0o600, 0)
	}
	if err != nil {
		return err
	}
	return unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// inode tells one file of this machine from another.
func inode(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Ino
}

// unmount drops what was mounted in the directory, by this process or one that
// was killed. The engine has its own copies by then.
func (s *staging) unmount() error {
	points, err := filepath.Glob(filepath.Join(s.dir, "lent-*"))
	errs := []error{err}
	for _, at := range points {
		// EINVAL: it is a mount point of nothing.
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", at, err))
		}
	}
	clear(s.lent)
	return errors.Join(errs...)
}

// sharesKernel tells whether a kernel of this boot id is the one we run on.
func sharesKernel(boot string) bool {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return err == nil && boot != "" && strings.TrimSpace(string(raw)) == boot
}

// identity returns the identity of a container's first process, which the
// engine numbers pid. The kernel must say that it is one of that container's.
func identity(pid int, container string) (caisson.ProcessIdentity, error) {
	id, err := process.Of(pid)
	if err != nil {
		return id, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return id, err
	}
	if !strings.Contains(string(raw), container) {
		return id, fmt.Errorf("process %d is in no cgroup of container %s", pid, container)
	}
	again, err := process.Of(pid)
	if err == nil && again.Start != id.Start {
		err = fmt.Errorf("process %d has ended", pid)
	}
	return id, err
}

func within(root caisson.ProcessIdentity) func(holder, pid int) (caisson.ProcessIdentity, error) {
	return process.Within(root)
}

// ended waits for the kernel to be rid of a guest whose container is gone.
func ended(ctx context.Context, root caisson.ProcessIdentity) error {
	if root.PID == 0 {
		return nil
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for process.Alive(root) == caisson.Alive {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return caisson.Errorf(caisson.CodeOrphanAlive, "process %d, the first of a container that is gone, does not end", root.PID)
		}
	}
	return nil
}

// kill ends a guest, and with it everything in its pid namespace, without the
// engine. Its identity is proved before it is signalled.
func kill(ctx context.Context, root caisson.ProcessIdentity) error {
	root.Cgroup = "" // the engine's
	ctx, cancel := bound(ctx, lookBound)
	defer cancel()
	return process.EndTree(ctx, root)
}

// oomCount returns the count of processes that were ended for memory in the
// cgroup of a process; nil where it is not counted.
func oomCount(pid int) func() (int64, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	var candidates []string
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "memory":
			candidates = append(candidates, filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.oom_control"))
		case parts[1] == "":
			candidates = append(candidates, filepath.Join("/sys/fs/cgroup", parts[2], "memory.events"))
		}
	}
	for _, path := range candidates {
		if _, err := readCount(path); err == nil {
			return func() (int64, error) { return readCount(path) }
		}
	}
	return nil
}

func readCount(path string) (int64, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if value, is := strings.CutPrefix(line, "oom_kill "); is {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no count", filepath.Base(path))
}

// mayHoldCores tells whether this user's own limit on cores has room for that of
// a box.
func mayHoldCores() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil && limit.Max >= plan.NoCore
}

// mostProcesses is this user's own limit on processes, 0 for none.
func mostProcesses() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || limit.Max > 1<<40 {
		return 0
	}
	return int64(limit.Max)
}
