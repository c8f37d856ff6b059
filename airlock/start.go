package airlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
)

// do takes a call that is free to run from its gate to its outcome. It runs in
// a goroutine of its own.
func (b *batch) do(it *item) ended {
	d := b.door
	// It may have stood in the chain for long, and a grant may be revoked meanwhile.
	today, err := d.judge(b.io(), it.call)
	if err != nil {
		return ended{item: it, err: err}
	}
	if today.Ruling == "" || today.Ruling.Stricter(it.verdict.Ruling) {
		return ended{item: it, then: afterJudged}
	}
	if it.req.Begin != nil {
		if err := it.req.Begin(); err != nil {
			return ended{item: it, err: fmt.Errorf("begin call %s: %w", it.call.ID, err)}
		}
	}
	held, err := it.req.Tool.Hold(b.ctx, it.call, caisson.EffectIDOf(it.call.ID))
	if err != nil {
		if b.ctx.Err() != nil {
			return ended{item: it, then: afterIdle}
		}
		return b.neverBegan(it, err)
	}
	pass("airlock.held")
	if b.ctx.Err() != nil {
		held.Drop()
		return ended{item: it, then: afterIdle}
	}
	ctx, done := d.writing(b.ctx)
	rec, err := d.lock.o.Ledger.StartCall(ctx, d.drive, caisson.CallStart{
		Call: it.call, Verdict: it.verdict, Review: it.used(), Executor: held.Identity(), Sandbox: d.sandbox,
		Reserve: caisson.Amount{Calls: 1}, Of: it.origin(),
	})
	done()
	if err != nil {
		held.Drop()
		return b.notStarted(it, err)
	}
	pass("airlock.started")
	d.lock.notify(Notice{Kind: NoticeStarted, Run: d.drive.Run, Record: &rec})
	result, edit := d.lock.takeEdit(rec.Call, b.perform(it, held))
	pass("airlock.effected")
	if result.Outcome == caisson.OutcomeUnknown && b.wouldAsk() && b.ctx.Err() == nil {
		return ended{item: it, rec: rec, known: true, then: afterUnknown, partial: result}
	}
	settled, err := d.settleStarted(b.ctx, rec, caisson.CallSettle{
		Call: rec.Call, Outcome: result.Outcome, Result: result, Used: usedBy(result), Of: it.origin(), Edit: edit,
	})
	if err != nil {
		return ended{item: it, rec: rec, known: true, err: err}
	}
	return ended{item: it, rec: settled, known: true}
}

// usedBy is what a call that was done has used.
func usedBy(r caisson.Result) caisson.Amount {
	return caisson.Amount{Calls: 1, Output: max(r.Bytes, int64(len(r.Text)))}
}

// used is the review whose approval a start consumes.
func (it *item) used() caisson.ReviewID {
	if it.repeat && it.verdict.Ruling == caisson.Allow {
		return "" // the first start has consumed it
	}
	return it.review.ID
}

// origin is the unknown call that this one retries.
func (it *item) origin() caisson.CallID {
	if it.of == nil {
		return ""
	}
	return it.of.req.ID
}

// neverBegan records that a call's doer could not be made ready.
func (b *batch) neverBegan(it *item, why error) ended {
	wire := caisson.AsError(why)
	s := caisson.CallSettle{Call: it.call, Verdict: &it.verdict, Outcome: caisson.OutcomeNotStarted, Of: it.origin(), Result: caisson.Result{
		Text: "It was not begun: " + wire.Error(), Summary: "not started: " + string(wire.Code), Error: wire,
	}}
	if it.repeat {
		return ended{item: it, rec: it.rec, known: true, then: afterUnknown}
	}
	rec, err := b.door.settle(b.ctx, s)
	return ended{item: it, rec: rec, known: err == nil, err: err}
}

// notStarted sorts what a start was refused for. Nothing has begun.
func (b *batch) notStarted(it *item, err error) ended {
	switch caisson.CodeOf(err) {
	case caisson.CodeBudgetExceeded:
		return b.neverBegan(it, err)
	case caisson.CodeReviewExpired:
		return ended{item: it, then: afterStale}
	case caisson.CodeCancelled:
		return ended{item: it, then: afterCancelled}
	default:
		return ended{item: it, err: fmt.Errorf("start call %s: %w", it.call.ID, err)}
	}
}

// perform opens the gate and returns when the effect, and all that it started,
// has ended.
func (b *batch) perform(it *item, held caisson.Executor) caisson.Result {
	if stopped := context.Cause(b.ctx); stopped != nil {
		// Whoever was told of the start may have ended the batch for it.
		held.Drop()
		return resultOf(caisson.Result{Text: "It was stopped before its effect began."}, stopped, stopped)
	}
	ctx, stop := context.WithCancelCause(b.ctx)
	defer stop(nil)
	if limit := it.req.Tool.Spec().Timeout; limit > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, limit, &caisson.CauseError{Cause: caisson.CauseDeadline, Text: fmt.Sprintf("it may take %s", limit)})
		defer done()
	}
	end := b.door.begin(ctx, stop, it.call)
	result, err := held.Open(ctx)
	stopped := context.Cause(ctx) // before end stops what is left
	end()
	return resultOf(result, err, stopped)
}

// resultOf reads what a doer returned. stopped is why its context ended, or nil.
func resultOf(result caisson.Result, err error, stopped error) caisson.Result {
	var named *caisson.CauseError
	switch {
	case err == nil:
	case caisson.CodeOf(err) == caisson.CodeOutcomeUnknown:
		result.Outcome = caisson.OutcomeUnknown
	case stopped != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stopped) || errors.As(err, &named)):
		result.Outcome = caisson.OutcomeCancelled
	default:
		result.Outcome = caisson.OutcomeFailed
	}
	if err != nil {
		if result.Error == nil {
			result.Error = caisson.AsError(err)
		}
		if result.Text == "" {
			result.Text = result.Error.Error()
		}
	}
	switch result.Outcome {
	case caisson.OutcomeDone, caisson.OutcomeFailed, caisson.OutcomeCancelled, caisson.OutcomeUnknown:
	case "":
		result.Outcome = caisson.OutcomeDone
	default:
		// It was begun, so it can be neither refused nor not-started.
		result.Outcome = caisson.OutcomeFailed
	}
	if result.Outcome == caisson.OutcomeCancelled && result.Cause == "" {
		result.Cause = causeOf(stopped)
	}
	if result.Outcome == caisson.OutcomeUnknown {
		result.Text = unknownText(result.Text)
	}
	return result
}
