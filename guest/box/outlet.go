//go:build linux

package box

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/plan"
)

// openOutlet opens the way out, if there is to be one: while the set-up still
// may change the network, and before any program can take a port.
func openOutlet(p *plan.Plan, out **outlet.Outlet) (err error) {
	if p.Outlet == nil {
		return nil
	}
	if p.OutletAt != "" {
		if err := connectOutlet(p.OutletAt); err != nil {
			return fmt.Errorf("connect to %s: %w", p.OutletAt, err)
		}
	}
	*out, err = outlet.Open(*p.Outlet)
	return err
}

// connectOutlet makes a connection to path plan.OutletFD.
func connectOutlet(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return err
	}
	if fd == plan.OutletFD {
		return nil
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, plan.OutletFD, unix.O_CLOEXEC)
}

// tryOutlet tries to change what leads connections to the way out.
func tryOutlet(p *plan.Plan, _ *plan.Report) plan.Test {
	if p.Outlet == nil {
		return plan.Test{}
	}
	test := plan.Test{Control: "network", Tried: "change addresses and rules"}
	if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err == nil {
		unix.Close(fd)
		test.Broke = "the rules of the network can be asked for"
	}
	if err := outlet.AddRange(); !errors.Is(err, unix.EPERM) {
		test.Broke = "addresses can be added"
	}
	return test
}
