package inside

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/outlet"
)

// openOutlet opens the way out, if the host wants one and the set-up has not
// opened it, and says how it catches connections.
func (s *server) openOutlet() (outlet.Mode, error) {
	if s.hello.Outlet == nil {
		return "", nil
	}
	if s.outlet == nil {
		var err error
		if s.outlet, err = outlet.Open(*s.hello.Outlet); err != nil {
			return "", fmt.Errorf("open the way out: %w", err)
		}
		if err := dropCapabilities(); err != nil {
			return "", err
		}
	}
	return s.outlet.Mode(), nil
}

// dropCapabilities drops, in every thread, what an engine gave the guest to open
// the way out.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// runOutlet serves the way out. Where that breaks while the host lives, programs
// would wait for nothing: the sandbox ends instead.
func (s *server) runOutlet() {
	if err := s.outlet.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "caisson-guest: the way out:", err)
	}
	_ = s.stream.Close()
}
