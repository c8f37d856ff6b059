//go:build linux

package layout

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
)

// OpenOutlet makes the socket of the way out and plans it, if the spec has one:
// ours is for guest.Options.Outlet, l.Outlet becomes the guest's plan.OutletFD.
func (l *Layout) OpenOutlet(spec caisson.SandboxSpec) (ours *os.File, err error) {
	if spec.Egress == nil {
		return nil, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "make the socket of the way out: %w", err)
	}
	ours, l.Outlet = os.NewFile(uintptr(fds[0]), "outlet"), os.NewFile(uintptr(fds[1]), "outlet")
	l.Plan.Outlet = &outlet.Options{Ports: spec.Egress.Ports()}
	return ours, nil
}
