//go:build linux

package box

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// dropCapabilities empties all sets of every thread and forbids gaining any by
// running a program. The kernel takes out of the ambient set what is not in the
// permitted one. The bounding set is emptied first, while that is allowed.
func dropCapabilities(*plan.Plan, *plan.Report) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno == unix.EINVAL {
			break // an older kernel, which knows fewer
		} else if errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("forbid new privileges: %w", errno)
	}
	// The box's programs have the guest's user: without this they could read
	// its memory and open its descriptors through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("shield the guest: %w", err)
	}
	return nil
}

func bindProcessors(n int) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return fmt.Errorf("read processors: %w", err)
	}
	for cpu := len(set)*64 - 1; cpu >= 0 && set.Count() > n; cpu-- {
		set.Clear(cpu)
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set))); errno != 0 {
		return fmt.Errorf("bind to processors: %w", errno)
	}
	return nil
}

// restrictFiles applies Landlock where the kernel has it: a second boundary,
// of another mechanism, for what the mounts already allow and forbid. Its
// network rules are left out: they would forbid servers on lo.
func restrictFiles(p *plan.Plan, report *plan.Report) error {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 2 { // 1 forbids moving a file between directories, which builds need
		return nil //nolint:nilerror // not in this kernel; the report says so
	}
	config := landlock.V7
	config.HandledAccessNet = 0
	everything := config.HandledAccessFS
	look := landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir)
	onFiles := landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev)

	dirs, files := readable(p)
	rules := []landlock.Rule{
		landlock.PathAccess(landlock.AccessFSSet(ll.AccessFSReadDir), "/"),
		landlock.PathAccess(everything, "/proc", "/dev"),
		landlock.PathAccess(look, dirs...),
	}
	if len(files) > 0 {
		rules = append(rules, landlock.PathAccess(look&onFiles, files...))
	}
	dirs, files = writable(p)
	rules = append(rules, landlock.PathAccess(everything, dirs...))
	if len(files) > 0 {
		rules = append(rules, landlock.PathAccess(onFiles, files...))
	}
	if err := config.BestEffort().Restrict(rules...); err != nil {
		return err
	}
	report.Landlock = version
	return nil
}

// canRead tells whether a file can be opened for reading.
func canRead(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
