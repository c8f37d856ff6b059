package airlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Answers to a review of kind unknown.
const (
	answerDone  = "done"  // treat it as done
	answerRetry = "retry" // do it once more, as a new call
	answerStop  = "stop"  // end the run
)

// unknownOptions are the options of the question.
func unknownOptions() []string { return []string{answerDone, answerRetry, answerStop} }

// recover goes on with a call that began and has no outcome in the record.
func (b *batch) recover(it *item) error {
	rec, kept, err := b.door.writeKept(b.ctx, it.rec)
	if err != nil {
		return err
	}
	if kept {
		return b.finish(it, rec)
	}
	if err := b.endNested(it.rec.Call.ID); err != nil {
		return err
	}
	if it.review.Kind == caisson.ReviewUnknown {
		return b.reviewed(it)
	}
	if it.rec.Call.Reach == caisson.ReachLedger {
		return b.again(it) // its effect is written with its outcome: it had none
	}
	switch it.rec.Call.Effect {
	case caisson.EffectRead, caisson.EffectIdempotent:
		return b.again(it)
	case caisson.EffectReconcilable:
		return b.reconcile(it)
	default:
		return b.lost(it)
	}
}

// again does a call once more that may be repeated, with the same value and the
// same effect id, if today's policy still lets it pass.
func (b *batch) again(it *item) error {
	if it.req.Tool == nil || it.req.Tool.Spec().Ref != it.rec.Call.Tool {
		return b.lost(it)
	}
	it.call = it.rec.Call
	var err error
	if it.verdict, err = b.door.judge(b.io(), it.call); err != nil {
		return err
	}
	approved := it.review.Decision != nil && it.review.Consumed
	if it.verdict.Ruling != caisson.Allow && (it.verdict.Ruling != caisson.ReviewIt || !approved) {
		return b.lost(it)
	}
	it.repeat = true
	b.enqueue(it)
	return nil
}

// reconcile asks the tool what became of the call.
func (b *batch) reconcile(it *item) error {
	r, ok := it.req.Tool.(caisson.Reconciler)
	if !ok || it.req.Tool.Spec().Ref != it.rec.Call.Tool {
		return b.lost(it)
	}
	result, known, err := r.Reconcile(b.ctx, it.rec.Call, it.rec.Effect)
	if b.ctx.Err() != nil {
		return errNotLooked
	}
	if err != nil || !known {
		return b.lost(it)
	}
	result = resultOf(result, nil, nil)
	return b.settle(it, caisson.CallSettle{Call: it.rec.Call, Outcome: result.Outcome, Result: result, Used: it.rec.Reserve})
}

// wouldAsk tells whether a person is asked about an unknown call. A nested one's
// doer waits for it: it is told, and decides for itself.
func (b *batch) wouldAsk() bool {
	return b.door.lock.o.OnUnknown != OnUnknownTell && !b.door.lock.o.Unattended && b.parent == nil
}

// lost takes a call that began and whose end nobody saw, and that may not be repeated.
func (b *batch) lost(it *item) error {
	if it.rec.Call.Reach == caisson.ReachLedger {
		return b.settleUndone(it, "it may not be begun again")
	}
	if !b.wouldAsk() {
		return b.settleUnknown(it, "")
	}
	call := it.rec.Call
	verdict := caisson.Verdict{Ruling: caisson.ReviewIt, Layer: "airlock", Rule: "unknown-outcome", Reason: "it was begun and nobody saw its end"}
	if it.rec.Verdict != nil {
		verdict.PolicyDigest = it.rec.Verdict.PolicyDigest
	}
	return b.open(it, caisson.Review{
		Run: b.door.drive.Run, Call: call, Kind: caisson.ReviewUnknown, Verdict: verdict,
		Question: &caisson.Question{
			Text:    fmt.Sprintf("Call %s of %s began, and nobody saw its end. Treat it as done, retry it as a new call, or stop the run?", call.ID, call.Tool),
			Options: unknownOptions(),
		},
	})
}

// answerOf reads the answer to a review of kind unknown; "" where it is none.
func answerOf(d caisson.Decision) string {
	said := strings.TrimSpace(d.Text)
	if len(d.Options) == 1 {
		said = d.Options[0]
	} else if len(d.Options) > 1 {
		return ""
	}
	if !slices.Contains(unknownOptions(), said) {
		return ""
	}
	return said
}

// unknownAnswered does what a person said about an unknown call.
func (b *batch) unknownAnswered(it *item) error {
	d := *it.review.Decision
	switch answerOf(d) {
	case answerDone:
		return b.settle(it, caisson.CallSettle{Call: it.rec.Call, Outcome: caisson.OutcomeDone, Used: it.rec.Reserve, Result: caisson.Result{
			Text:    "This call began, and its end and output were not seen. A person looked at it and says that it was done.",
			Summary: "done, says " + d.By,
		}})
	case answerRetry:
		return b.retry(it)
	case answerStop:
		b.aborted()
		return b.settleUnknown(it, "A person stops the run for it.")
	default:
		return b.lost(it)
	}
}

// retry adds a new call for an unknown one. Number 0 among the nested ids is
// left for it, so that it has the same id after a crash.
func (b *batch) retry(it *item) error {
	req := it.req
	req.ID, req.New = it.req.ID.Nested(0), false
	again := &item{req: req, of: it}
	it.place = retried
	b.items = append(b.items, again)
	if err := b.read(again); err != nil {
		return err
	}
	return b.look(again)
}

// retryEnded settles an unknown call whose retry has its outcome. The first
// stays unknown, as it is; its result tells of the second.
func (b *batch) retryEnded(again *item) error {
	origin, result := again.of, caisson.Result{}
	if again.rec.Result != nil {
		result = *again.rec.Result
	}
	return b.settleUnknown(origin, fmt.Sprintf("A person had it done once more, as call %s, which is %s:\n%s", again.req.ID, again.rec.State, result.Text))
}

func unknownText(more string) string {
	text := "This call began, and nobody saw its end. It may have been done in whole, in part or not at all; look before doing it again."
	if more != "" {
		text += "\n" + more
	}
	return text
}

// settleUnknown records that nobody knows, and tells it in words.
func (b *batch) settleUnknown(it *item, more string) error {
	result := it.partial
	if result.Outcome == "" {
		result = caisson.Result{Text: unknownText(""), Summary: "unknown", Error: caisson.Errorf(caisson.CodeOutcomeUnknown, "call %s began and nobody saw its end", it.rec.Call.ID)}
	}
	if more != "" {
		result.Text += "\n" + more
	}
	return b.settle(it, caisson.CallSettle{Call: it.rec.Call, Outcome: caisson.OutcomeUnknown, Result: result, Used: it.rec.Reserve})
}

// endNested gives every call that a call made, and that is open, its outcome:
// their doer is gone, and nobody will ask for them again.
func (b *batch) endNested(parent caisson.CallID) error {
	open, err := b.ledger().OpenCalls(b.io(), b.door.drive.Run)
	if err != nil {
		return fmt.Errorf("read calls: %w", err)
	}
	open = slices.DeleteFunc(open, func(rec caisson.CallRecord) bool {
		// A retry has no parent; what it made goes with the call it retries.
		return rec.Call.Parent != parent && !strings.HasPrefix(string(rec.Call.Parent), string(parent)+".")
	})
	slices.SortStableFunc(open, func(x, y caisson.CallRecord) int { return cmp.Compare(len(y.Call.ID), len(x.Call.ID)) })
	for _, rec := range open { // the innermost first
		if err := b.endOrphan(rec); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) endOrphan(rec caisson.CallRecord) error {
	s := caisson.CallSettle{Call: rec.Call, Outcome: caisson.OutcomeNotStarted, Result: caisson.Result{
		Text: "Not done: the call that asked for it has ended.", Summary: parentGone, Cause: caisson.CauseParent,
		Error: caisson.Errorf(caisson.CodeNotExecuted, "the call that asked for it has ended"),
	}}
	switch {
	case rec.State == caisson.CallStarted && rec.Call.Reach == caisson.ReachLedger:
		s = undone(rec, "the call that asked for it has ended")
	case rec.State == caisson.CallStarted:
		s.Outcome, s.Used = caisson.OutcomeUnknown, rec.Reserve
		s.Result.Text, s.Result.Error = unknownText(""), caisson.Errorf(caisson.CodeOutcomeUnknown, "call %s began and nobody saw its end", rec.Call.ID)
	}
	if rec.State == caisson.CallAsked {
		if _, err := b.endReview(rec.Review, caisson.ReviewWithdrawn, parentGone); err != nil {
			return err
		}
	}
	_, err := b.door.settle(b.ctx, s)
	pass("airlock.orphan")
	return err
}
