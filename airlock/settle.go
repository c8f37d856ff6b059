package airlock

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
)

// writeTime bounds one write: a ledger that several processes share answers
// within milliseconds, a disk in trouble within seconds.
const writeTime = 30 * time.Second

// writing returns the context of a write that a cancel must not tear.
func (d *Door) writing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), writeTime)
}

// settle writes an outcome that no effect stands behind.
func (b *batch) settle(it *item, s caisson.CallSettle) error {
	s.Of = it.origin()
	if d := it.review.Decision; it.review.Kind == caisson.ReviewUnknown && d != nil && d.Kind == caisson.Answer {
		s.Review = it.review.ID
	}
	rec, err := b.door.settle(b.ctx, s)
	if err != nil {
		return err
	}
	return b.finish(it, rec)
}

// settle writes an outcome once. A cancel does not tear it. Where the effect
// that comes with it is refused, the call has failed with that.
func (d *Door) settle(ctx context.Context, s caisson.CallSettle) (caisson.CallRecord, error) {
	s.Result = d.lock.bound(s.Result)
	s.Result.Outcome = s.Outcome
	ctx, done := d.writing(ctx)
	defer done()
	pass("airlock.settling")
	rec, err := d.lock.o.Ledger.SettleCall(ctx, d.drive, s)
	if caisson.CodeOf(err) == caisson.CodeStateInvalid {
		// The first outcome wins, also over a write whose end was not seen.
		if stored, readErr := d.lock.o.Ledger.Call(ctx, s.Call.ID); readErr == nil && stored.State.Terminal() {
			rec, err = stored, nil
		}
	}
	if s.Edit != nil && refusedEdit(err) {
		return d.settle(ctx, withoutEdit(s, err))
	}
	if err != nil {
		return rec, fmt.Errorf("settle call %s: %w", s.Call.ID, err)
	}
	pass("airlock.settled")
	d.lock.notify(Notice{Kind: NoticeSettled, Run: d.drive.Run, Record: &rec})
	return rec, nil
}

// settleStarted writes the outcome of a call that was done. If the ledger takes
// no writes it tries for a while, and then keeps the result in memory for the
// next Settle of this process: the call is never done again for it. If the
// process ends meanwhile, the call is unknown, which is the truth then.
func (d *Door) settleStarted(ctx context.Context, rec caisson.CallRecord, s caisson.CallSettle) (caisson.CallRecord, error) {
	deadline := time.Now().Add(d.lock.o.SettleFor)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		settled, err := d.settle(ctx, s)
		if err == nil {
			return settled, nil
		}
		code := caisson.CodeOf(err)
		if code == caisson.CodeLeaseLost {
			return settled, err
		}
		if !code.Info().Retryable || time.Now().Add(pause).After(deadline) {
			d.lock.keep(rec, s)
			return settled, err
		}
		<-time.After(pause)
	}
}

func (a *Airlock) keep(rec caisson.CallRecord, s caisson.CallSettle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept[rec.Call.ID] = keptResult{rec.Attempts, s}
}

// writeKept writes the result of a started call where this process has kept it.
func (d *Door) writeKept(ctx context.Context, rec caisson.CallRecord) (caisson.CallRecord, bool, error) {
	a := d.lock
	a.mu.Lock()
	kept, ok := a.kept[rec.Call.ID]
	a.mu.Unlock()
	if !ok || kept.attempt != rec.Attempts {
		return rec, false, nil
	}
	settled, err := d.settle(ctx, kept.settle)
	if err != nil {
		return rec, true, err
	}
	a.mu.Lock()
	delete(a.kept, rec.Call.ID)
	a.mu.Unlock()
	return settled, true, nil
}
