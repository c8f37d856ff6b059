//go:build linux

package namespace

import (
	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/sandbox"
)

// planOutlet makes the socket of the way out, if the spec has one, and plans it.
func (b *box) planOutlet(l *layout, spec caisson.SandboxSpec) error {
	if spec.Egress == nil {
		return nil
	}
	ours, theirs, err := sandbox.OutletPair()
	if err != nil {
		return err
	}
	b.outlet, l.outlet = ours, theirs
	l.plan.Outlet = &outlet.Options{Ports: spec.Egress.Ports()}
	return nil
}
