package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// platform is what lends files on this system.
type platform struct{}

func (*platform) close() error { return nil }

// lend shows the engine what the box is lent as the box's user's own.
func (e *Engine) lend(*staging, caisson.SandboxSpec, user) error {
	return errors.New("not tried")
}

// unmount drops what was shown to the engine, which has its own by then.
func (s *staging) unmount() error {
	var errs []error
	for len(s.mounted) > 0 {
		last := s.mounted[len(s.mounted)-1]
		if err := unix.Unmount(last, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", last, err))
		}
		s.mounted = s.mounted[:len(s.mounted)-1]
	}
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
