//go:build linux

package namespace

import (
	"context"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

// Sweep implements caisson.Engine. A process is ended only where its identity
// is proved, or where it is in a cgroup that bears the sandbox's id.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	spec, err := sandbox.Check(caisson.SandboxSpec{ID: record.ID})
	if err != nil {
		return err
	}
	if record.Guest != nil {
		if err := endGuest(ctx, *record.Guest); err != nil {
			return err
		}
	}
	groups, err := e.cgroups()
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "%w", err)
	}
	return groups.End(ctx, spec.ID, record.Leftovers)
}

// endGuest ends a guest whose own end is the end of all in its box.
func endGuest(ctx context.Context, guest caisson.ProcessIdentity) error {
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	guest.Cgroup = "" // a path in a record is not trusted: cgroups are found by the sandbox's name
	err := process.EndTree(ctx, guest)
	if caisson.CodeOf(err) == caisson.CodeHolderUnknown {
		return caisson.Errorf(caisson.CodeOrphanAlive, "%w", err).WithHint("Run caisson where the sandbox was opened.")
	}
	return err
}
