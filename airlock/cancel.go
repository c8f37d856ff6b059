package airlock

import (
	"fmt"

	"github.com/caisson-run/caisson"
)

// onDone takes the end of the batch's context. Running calls see it themselves.
func (b *batch) onDone(cause error) {
	if b.err != nil {
		b.halted = true
		return
	}
	if !ends(cause) {
		if b.parent == nil {
			b.halted = true
			return
		}
		// Nobody takes a nested call up again: its parent is being stopped.
		cause = &caisson.CauseError{Cause: caisson.CauseParent, Text: parentGone}
	}
	b.ending = cause
	b.chain = nil
	for i := 0; i < len(b.items); i++ {
		if it := b.items[i]; it.place != running && it.place != retried && it.place != over && b.err == nil {
			b.fail(b.cancel(it, cause))
		}
	}
}

// cancelAsked ends the batch with the cause that someone gave for cancelling the run.
func (b *batch) cancelAsked() error {
	stored, err := b.ledger().Run(b.io(), b.door.drive.Run)
	if err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	cause := stored.CancelAsked
	if cause == "" {
		return caisson.Errorf(caisson.CodeStateInvalid, "run %s takes no new calls: it is %s", stored.ID, stored.State)
	}
	b.stop(&caisson.CauseError{Cause: cause, Text: "cancel was asked"})
	return nil
}

// cancel ends a call that is not under way.
func (b *batch) cancel(it *item, why error) error {
	if it.known && it.rec.State.Terminal() {
		return b.finish(it, it.rec)
	}
	if it.review.ID != "" && it.review.State == caisson.ReviewOpen {
		ended, err := b.endReview(it.review.ID, caisson.ReviewWithdrawn, why.Error())
		if err != nil {
			return err
		}
		it.review = ended
	}
	if it.known && it.rec.State == caisson.CallStarted {
		if rec, kept, err := b.door.writeKept(b.ctx, it.rec); kept || err != nil {
			if err != nil {
				return err
			}
			return b.finish(it, rec)
		}
		if it.rec.Call.Reach == caisson.ReachLedger {
			return b.settleUndone(it, "it was cancelled ("+string(causeOf(why))+")")
		}
		return b.settleUnknown(it, "")
	}
	call, err := b.recorded(it)
	if err != nil {
		return err
	}
	cause := causeOf(why)
	outcome, text := caisson.OutcomeCancelled, fmt.Sprintf("Not done: it was cancelled before it began (%s).", cause)
	if b.parent != nil && cause == caisson.CauseParent {
		outcome, text = caisson.OutcomeNotStarted, "Not done: the call that asked for it has ended."
	}
	return b.settle(it, caisson.CallSettle{Call: call, Outcome: outcome, Result: caisson.Result{
		Text: text, Summary: "cancelled: " + string(cause), Cause: cause,
		Error: caisson.Errorf(caisson.CodeCancelled, "cancelled before it began: %s", why),
	}})
}

// endReview ends an open review. A decision that was quicker stands.
func (b *batch) endReview(id caisson.ReviewID, state caisson.ReviewState, why string) (caisson.Review, error) {
	ctx, done := b.door.writing(b.ctx)
	defer done()
	ended, err := b.ledger().EndReview(ctx, b.door.drive, id, state, why)
	if caisson.CodeOf(err) == caisson.CodeStateInvalid {
		if ended, err = b.ledger().Review(ctx, id); err == nil && ended.State == caisson.ReviewOpen {
			err = caisson.Errorf(caisson.CodeStateInvalid, "it is open and cannot be %s", state)
		}
	}
	if err != nil {
		return ended, fmt.Errorf("end review %s: %w", id, err)
	}
	return ended, nil
}

// recorded is the value under which a call that was not prepared is recorded.
func (b *batch) recorded(it *item) (caisson.Call, error) {
	switch {
	case it.known:
		return it.rec.Call, nil
	case it.call.Digest != "":
		return it.call, nil
	default:
		return b.door.invalid(it.req)
	}
}
