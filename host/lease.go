package host

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
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
				return caisson.Drive{}, driverUnknown(holder, r.ID)
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

// TakeOver takes a run from a driver of whom it cannot be told whether it lives,
// ends what that left, and lets go of it: it can be driven then, or ended, as any
// that nobody drives. Only a person says so.
func (h *Host) TakeOver(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil || r.State.Terminal() || r.Lease.Instance == "" {
		return r, err
	}
	drive, err := h.take(ctx, r, true)
	if err != nil {
		return r, err
	}
	err = errors.Join(h.sweep(ctx, r), h.Ledger.ReleaseLease(context.WithoutCancel(ctx), drive))
	if err != nil {
		return r, err
	}
	return h.Ledger.Run(ctx, id)
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

// sweepOne ends what is left of a box, unless another process has opened it again
// since the record was read.
func (h *Host) sweepOne(ctx context.Context, record caisson.SandboxRecord) (err error) {
	engine, err := h.engine(record.Engine)
	if err != nil {
		return err
	}
	release, err := h.lockBox(ctx, record.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	all, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: record.Run})
	if err != nil {
		return err
	}
	for _, now := range all {
		switch {
		case now.ID != record.ID:
		case now.Instance != record.Instance || now.State == caisson.SandboxRemoved:
			return nil
		default:
			record = now
		}
	}
	if err := engine.Sweep(ctx, record); err != nil {
		return err
	}
	return h.restBox(ctx, &record, true)
}

// claimBox puts a box on record as this process's, which is about to open it. From
// then on nobody ends it as what was left of its last life.
func (h *Host) claimBox(ctx context.Context, record caisson.SandboxRecord) error {
	release, err := h.lockBox(ctx, record.ID)
	if err != nil {
		return err
	}
	return errors.Join(h.Ledger.PutSandbox(ctx, record), release())
}

// lockBox keeps a box from being opened while what is left of it is ended: all its
// lives go by one name. One that never had a channel has had no life yet.
func (h *Host) lockBox(ctx context.Context, id caisson.SandboxID) (release func() error, err error) {
	lock, err := lockfile.Acquire(ctx, filepath.Join(h.channelDir(id), "lock"), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "lock sandbox %s: %w", id, err)
	}
	return lock.Close, nil
}
