//go:build linux

package box

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// dropCapabilities empties the sets of every thread; the kernel takes out of
// the ambient set what is not in the permitted one. The bounding set is left as
// it is: it only bounds what running a program can give, which is nothing once
// new privileges are forbidden, and walking it in every thread takes longer than
// all the rest of the set-up. Privileges are forbidden with the filter.
func dropCapabilities(*plan.Plan, *plan.Report) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
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
	if err := bindThreads(&set); err != nil {
		return fmt.Errorf("bind to processors: %w", err)
	}
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
