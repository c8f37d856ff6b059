package airlock

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
)

// look decides, by what is recorded of a call, how it goes on.
func (b *batch) look(it *item) error {
	if !it.known {
		return b.fresh(it)
	}
	switch state := it.rec.State; {
	case state.Terminal():
		if d := it.review.Decision; d != nil && d.Kind == caisson.Abort {
			b.aborted()
		}
		return b.finish(it, it.rec)
	case state == caisson.CallAsked, state == caisson.CallDecided:
		return b.reviewed(it)
	case state == caisson.CallStarted:
		return b.recover(it)
	default:
		return b.fresh(it)
	}
}

// fresh prepares and judges a call that was never reviewed, or whose review
// ended without a decision.
func (b *batch) fresh(it *item) error {
	if err := b.prepareItem(it); err != nil {
		return b.notPrepared(it, err)
	}
	var err error
	if it.verdict, err = b.door.judge(b.io(), it.call); err != nil {
		return err
	}
	s := standing{history: neverReviewed, today: it.verdict}
	if it.known && it.rec.State != caisson.CallPrepared {
		s.incomplete = it.rec.Verdict == nil || it.rec.Verdict.Ruling == "" || it.rec.Call.Digest == ""
		if it.call.Digest != it.rec.Call.Digest {
			s.history = reviewedOther // somebody was shown, or has allowed, another value
		}
	}
	what, _ := decide(s)
	switch what {
	case run:
		if _, question := it.req.Tool.(caisson.Questioner); question {
			return b.ask(it)
		}
		return b.allow(it)
	case askNew:
		return b.ask(it)
	default:
		return b.refuse(it, "")
	}
}

// allow puts a call into the chain that needs nobody's approval today. One that
// is on record as asked goes back to judged first.
func (b *batch) allow(it *item) error {
	it.review = caisson.Review{}
	if it.known && it.rec.State != caisson.CallJudged {
		ctx, done := b.door.writing(b.ctx)
		defer done()
		rec, err := b.ledger().JudgeCall(ctx, b.door.drive, it.call, it.verdict)
		if err != nil {
			return fmt.Errorf("judge call %s: %w", it.call.ID, err)
		}
		it.rec = rec
	}
	b.enqueue(it)
	return nil
}

// prepareItem prepares the call from the input that counts today: as
// requested, or as a person last replaced it.
func (b *batch) prepareItem(it *item) error {
	input := json.RawMessage(it.req.Input)
	if it.known && it.rec.Review != "" {
		reviews, err := b.ledger().Reviews(b.io(), caisson.ReviewFilter{Call: it.req.ID})
		if err != nil {
			return &readError{fmt.Errorf("read reviews: %w", err)}
		}
		for _, r := range reviews {
			if r.Decision != nil && r.Decision.Kind == caisson.Modify {
				input = r.Decision.Input
			}
		}
	}
	call, err := b.door.prepare(b.ctx, it.req, input)
	if err != nil {
		return err
	}
	it.call = call
	return nil
}

// readError is a fault of the ledger, not of the call.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// notPrepared refuses a call that cannot be made exact, and says why, so that
// whoever asked for it can mend it.
func (b *batch) notPrepared(it *item, why error) error {
	var read *readError
	if errors.As(why, &read) || errors.Is(why, errNotLooked) {
		return why
	}
	call := it.rec.Call
	if !it.known {
		var err error
		if call, err = b.door.invalid(it.req); err != nil {
			return err
		}
	} else if it.review.Decision != nil {
		if err := b.stale(it, caisson.Verdict{}, "it cannot be prepared any more: "+why.Error()); err != nil {
			return err
		}
	}
	wire := caisson.AsError(why)
	text := "Not done: " + wire.Error()
	if hint := wire.HintText(); hint != "" {
		text += "\n" + hint
	}
	return b.settle(it, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeRefused, Result: caisson.Result{
		Text: text, Summary: "refused: " + string(wire.Code), Error: wire,
	}})
}

// refuse records that policy says no.
func (b *batch) refuse(it *item, why string) error {
	verdict := it.verdict
	return b.settle(it, caisson.CallSettle{Call: it.call, Verdict: &verdict, Outcome: caisson.OutcomeRefused, Result: caisson.Result{
		Text: refusedText(verdict, why), Summary: "refused: " + verdict.Rule, Cause: caisson.CausePolicy,
		Error: caisson.Errorf(caisson.CodeRefused, "refused by rule %q (%s): %s", verdict.Rule, verdict.Layer, verdict.Reason),
	}})
}
