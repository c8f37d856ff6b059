//go:build linux

package box

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// Rights on files by the version of Landlock's interface that brought them
// (Documentation/userspace-api/landlock.rst).
const (
	look    = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rights2 = 1<<14 - 1 // version 1 has the first 13, version 2 adds moving between directories
	rights3 = rights2 | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	rights5 = rights3 | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rights9 = rights5 | resolveUnix
	// resolveUnix is the right to connect to a unix socket by its path.
	resolveUnix = 1 << 16
	// onFiles are the rights that a file can have; the others are of directories.
	onFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | resolveUnix
)

// landlockVersion returns the version of the kernel's interface, 0 where it
// has none that is of use: version 1 forbids moving a file between directories.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < 2 {
		return 0
	}
	return int(version)
}

// restrictFiles applies Landlock where the kernel has it: a second boundary,
// of another mechanism, for what the mounts already allow and forbid. Its
// network rules are left out: they would forbid servers on lo. So are its scopes
// for signals and abstract sockets, which the namespaces keep in already: each
// thread gets a domain of its own before version 8, so that scopes would part
// the guest from its commands, and these from each other.
//
// It uses the kernel's interface itself: one call in each thread suffices while
// the set-up is privileged in its namespace.
func restrictFiles(p *plan.Plan, report *plan.Report) error {
	version := landlockVersion()
	if version == 0 {
		return nil // the report says so
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled(version)}
	handled, size := attr.Handled_access_fs, unsafe.Sizeof(attr.Handled_access_fs)
	made, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("make rules: %w", errno)
	}
	rules := int(made)
	defer unix.Close(rules)
	shown, given := readable(p), writable(p)
	for _, rule := range []struct {
		paths  []string
		rights uint64
	}{
		{[]string{"/"}, unix.LANDLOCK_ACCESS_FS_READ_DIR},
		{[]string{"/proc", "/dev"}, handled},
		{shown, look},
		{given, handled},
	} {
		for _, path := range rule.paths {
			if err := grant(rules, path, rule.rights, handled); err != nil {
				return err
			}
		}
	}
	if err := onAllThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); err != nil {
		return fmt.Errorf("apply rules: %w", err)
	}
	report.Landlock = version
	return nil
}

// handled returns the rights on files that a version of the interface knows.
func handled(version int) uint64 {
	switch {
	case version >= 9:
		return rights9
	case version >= 5:
		return rights5
	case version >= 3:
		return rights3
	default:
		return rights2
	}
}

func grant(rules int, path string, rights, handled uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	return grantOpen(rules, fd, path, rights, handled)
}

// grantLent grants a path in which no component may be a link.
func grantLent(rules int, path string, rights, handled uint64) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	return grantOpen(rules, fd, path, rights, handled)
}

func grantOpen(rules, fd int, path string, rights, handled uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= onFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights & handled, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	return nil
}

// writable returns the paths at which the plan allows writing.
func writable(p *plan.Plan) []string {
	paths := append([]string{}, p.Private...)
	for _, m := range p.Mounts {
		if m.Writable() {
			paths = append(paths, m.Target)
		}
	}
	return paths
}

// readable returns the paths that the plan shows read-only.
func readable(p *plan.Plan) []string {
	paths := []string{"/etc", "/run", "/sys", "/var", "/root", "/opt", "/mnt"}
	for _, m := range p.Mounts {
		if !m.Writable() {
			paths = append(paths, m.Target)
		}
	}
	return append(paths, p.System...)
}
