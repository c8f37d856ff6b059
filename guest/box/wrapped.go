//go:build linux

package box

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/plan"
)

// wrappedSteps finish a box whose namespaces and mounts a wrapper has made. The
// wrapper has forbidden new privileges in what was then the only thread.
func wrappedSteps(out **outlet.Outlet) []step {
	return []step{
		wayOut(out),
		{"mounts", findMounts},
		{"limits", setLimits},
		{"landlock", restrictFiles},
		{"capabilities", dropCapabilities},
		{"seccomp", filterSyscalls},
		{"self-test", prove},
	}
}

// closeWrapper lets go of what the wrapper and the start of this program needed,
// before any of these numbers is used again: nothing inside may hold a file of
// the host's.
func closeWrapper() error {
	for fd := plan.ArgumentsFD; fd < plan.FilesFD; fd++ {
		_ = unix.Close(fd) // the wrapper has closed some of them
	}
	if err := unix.Dup3(0, 2, 0); err != nil {
		return fmt.Errorf("drop the wrapper's output: %w", err)
	}
	// It was executed by the number of a descriptor, which says nothing to people.
	fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("name the guest: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("caisson-guest")); err != nil {
		return fmt.Errorf("name the guest: %w", err)
	}
	return nil
}

// findMounts is the part of the self-test that needs a call which is filtered
// later on.
func findMounts(p *plan.Plan, report *plan.Report) error { return try(p, report, tryMounts) }

// tryMounts looks whether what was lent is where it should be: a wrapper
// follows links, which whoever can write there may have made meanwhile.
func tryMounts(p *plan.Plan, _ *plan.Report) plan.Test {
	var test plan.Test
	for _, m := range p.Mounts {
		if m.Ino == 0 {
			continue
		}
		test.Control, test.Tried = "files", "find another thing in the place of what was lent"
		if err := isThere(m); err != nil {
			test.Broke = fmt.Sprintf("%s is not what was lent: %v", m.Target, err)
		}
	}
	return test
}

func isThere(m plan.Mount) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, m.Target, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	switch {
	case st.Dev != m.Dev || st.Ino != m.Ino:
		return fmt.Errorf("it is file %d of device %d, not %d of %d", st.Ino, st.Dev, m.Ino, m.Dev)
	case !m.Write && fs.Flags&unix.ST_RDONLY == 0:
		return fmt.Errorf("it can be written")
	case fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0:
		return fmt.Errorf("devices and set-uid programs work there")
	}
	return nil
}
