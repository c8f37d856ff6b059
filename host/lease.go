package host

import (
	"context"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// register makes this process an instance, once.
func (h *Host) register(ctx context.Context) (caisson.InstanceID, error) {
	if h.instance == nil {
		inst, err := process.Register(h.Paths.Runtime)
		if err != nil {
			return "", err
		}
		if err := h.Ledger.PutInstance(ctx, inst.Instance); err != nil {
			return "", err
		}
		h.instance = inst
	}
	return h.instance.Instance.ID, nil
}

// take takes the lease of a run, if its last holder is gone for certain, or a
// person says so.
func (h *Host) take(ctx context.Context, r caisson.Run, takeOver bool) (caisson.Drive, error) {
	me, err := h.register(ctx)
	if err != nil {
		return caisson.Drive{}, err
	}
	if r.Lease.Instance != "" && r.Lease.Instance != me {
		holder, err := h.Ledger.Instance(ctx, r.Lease.Instance)
		if err != nil {
			return caisson.Drive{}, err
		}
		switch process.InstanceLiveness(holder) {
		case caisson.Alive:
			return caisson.Drive{}, caisson.Errorf(caisson.CodeLeaseHeld, "run %s is driven by process %d on %s", r.ID, holder.Process.PID, holder.Process.Host).
				WithHint("Watch it: `caisson runs attach %s`.", r.ID)
		case caisson.LivenessUnknown:
			if !takeOver {
				return caisson.Drive{}, caisson.Errorf(caisson.CodeHolderUnknown, "whether process %d on %s still drives run %s cannot be told here", holder.Process.PID, holder.Process.Host, r.ID)
			}
		case caisson.Dead:
		}
	}
	lease, err := h.Ledger.TakeLease(ctx, r.ID, me, r.Lease.Fence)
	if err != nil {
		return caisson.Drive{}, err
	}
	return caisson.Drive{Run: r.ID, Fence: lease.Fence}, nil
}

// sweep ends everything that earlier drivers of a run left: their sandboxes,
// each by its recorded identity. What cannot be ended stops the resume and is
// named.
func (h *Host) sweep(ctx context.Context, r caisson.Run) error {
	if err := h.sweepAround(ctx, r); err != nil {
		return err
	}
	left, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: r.ID, States: unremoved()})
	if err != nil {
		return err
	}
	for _, record := range left {
		if err := h.sweepOne(ctx, record); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) sweepOne(ctx context.Context, record caisson.SandboxRecord) error {
	engine, err := h.engine(record.Engine)
	if err != nil {
		return err
	}
	if err := engine.Sweep(ctx, record); err != nil {
		return err
	}
	return h.restBox(ctx, &record, true)
}
