package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// PutInstance implements [caisson.Ledger].
func (l *Ledger) PutInstance(ctx context.Context, inst caisson.Instance) error {
	if inst.ID == "" {
		return caisson.Errorf(caisson.CodeUsage, "an instance needs an id")
	}
	return l.write(ctx, func(t *tx) error {
		doc, err := writeDoc(inst)
		if err != nil {
			return err
		}
		return t.exec(`INSERT INTO instances (id, doc) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc`, string(inst.ID), doc)
	})
}

// Instance implements [caisson.Ledger].
func (l *Ledger) Instance(ctx context.Context, id caisson.InstanceID) (caisson.Instance, error) {
	var inst caisson.Instance
	err := l.read(ctx, func(s source) (err error) {
		inst, err = findInstance(s, id)
		return err
	})
	return inst, err
}

func findInstance(s source, id caisson.InstanceID) (inst caisson.Instance, err error) {
	var doc []byte
	err = s.row(`SELECT doc FROM instances WHERE id = ?`, string(id)).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return inst, notFound("instance", string(id))
	}
	if err != nil {
		return inst, err
	}
	return inst, readDoc("instance", string(id), doc, &inst)
}

// TakeLease implements [caisson.Ledger]. The instance must be on record, as
// whether it lives is asked of what the record says.
func (l *Ledger) TakeLease(ctx context.Context, run caisson.RunID, inst caisson.InstanceID, prev caisson.Fence) (caisson.Lease, error) {
	var lease caisson.Lease
	err := l.write(ctx, func(t *tx) error {
		if run == "" {
			return notFound("run", "")
		}
		r, err := t.load(run)
		if err != nil {
			return err
		}
		if _, err := findInstance(t, inst); err != nil {
			return err
		}
		if r.fence != prev {
			return caisson.Errorf(caisson.CodeLeaseHeld, "the lease of run %s has fence %d, not %d", run, r.fence, prev).
				With("run", string(run)).With("fence", int64(r.fence)).With("instance", r.instance.String)
		}
		if r.state == caisson.RunRunning {
			r.stopClock(r.updated)
			r.doc.ActiveSince = t.now
		}
		r.fence++
		r.instance, r.doc.Taken = sql.NullString{String: string(inst), Valid: true}, t.now
		if err := t.saveRun(r); err != nil {
			return err
		}
		lease = caisson.Lease{Run: run, Instance: inst, Fence: r.fence, Taken: t.now}
		return t.emit(r, caisson.EventLeaseTaken, ledger.Leased{Instance: inst, Fence: r.fence})
	})
	return lease, err
}

// ReleaseLease implements [caisson.Ledger]. The fence stays: the next lease's
// is higher, and writes under the released one are refused.
func (l *Ledger) ReleaseLease(ctx context.Context, drive caisson.Drive) error {
	return l.write(ctx, func(t *tx) error {
		r, err := t.driven(drive)
		if err != nil {
			return err
		}
		was := r.instance.String
		r.instance = sql.NullString{}
		if err := t.saveRun(r); err != nil {
			return err
		}
		return t.emit(r, caisson.EventLeaseReleased, ledger.Leased{Instance: caisson.InstanceID(was), Fence: r.fence})
	})
}

// Lease implements [caisson.Ledger].
func (l *Ledger) Lease(ctx context.Context, run caisson.RunID) (caisson.Lease, error) {
	lease := caisson.Lease{Run: run}
	err := l.read(ctx, func(s source) error {
		var holder sql.NullString
		err := s.row(`SELECT fence, instance FROM runs WHERE id = ? AND rid > 0`, string(run)).Scan(&lease.Fence, &holder)
		if errors.Is(err, sql.ErrNoRows) {
			return notFound("run", string(run))
		}
		lease.Instance = caisson.InstanceID(holder.String)
		return err
	})
	return lease, err
}
