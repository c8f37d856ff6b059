//go:build linux

package layout

import (
	"context"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

// Sweep ends what an ended process of ours left of a box whose first process's
// end is the end of all. A process is ended only where its identity is proved, or
// where it is in a cgroup that bears the sandbox's id.
func Sweep(ctx context.Context, groups *process.Cgroups, record caisson.SandboxRecord) error {
	spec, err := sandbox.Check(caisson.SandboxSpec{ID: record.ID})
	if err != nil {
		return err
	}
	if record.Guest != nil {
		if err := endGuest(ctx, *record.Guest); err != nil {
			return err
		}
	}
	return groups.End(ctx, spec.ID, record.Leftovers)
}

// EndBound is how long a killed guest may take to be gone. The kernel ends its
// whole namespace first; a process in uninterruptible sleep can hold it.
const EndBound = 10 * time.Second

// endGuest ends a guest whose own end is the end of all in its box.
func endGuest(ctx context.Context, guest caisson.ProcessIdentity) error {
	ctx, cancel := context.WithTimeout(ctx, EndBound)
	defer cancel()
	guest.Cgroup = "" // a path in a record is not trusted: cgroups are found by the sandbox's name
	err := process.EndTree(ctx, guest)
	if caisson.CodeOf(err) == caisson.CodeHolderUnknown {
		return caisson.Errorf(caisson.CodeOrphanAlive, "%w", err).WithHint("Run caisson where the sandbox was opened.")
	}
	return err
}
