package airlock

import (
	"fmt"

	"github.com/caisson-run/caisson"
)

// ask writes a review before anyone is shown it. Where nobody answers it is a refusal.
func (b *batch) ask(it *item) error {
	if b.door.lock.o.Unattended {
		return b.refuse(it, "it needs a person's approval, and this run is unattended")
	}
	if it.req.Ask != nil {
		if err := it.req.Ask(); err != nil {
			return b.notAsked(it, err)
		}
	}
	review := caisson.Review{
		Run: b.door.drive.Run, Call: it.call, Kind: caisson.ReviewCall, Verdict: it.verdict, Schema: it.req.Tool.Spec().Schema,
	}
	if q, ok := it.req.Tool.(caisson.Questioner); ok {
		question, err := q.Question(it.call.Input)
		if err != nil {
			return b.notPrepared(it, caisson.Errorf(caisson.CodeCallInvalid, "%w", err))
		}
		review.Kind, review.Question = caisson.ReviewQuestion, &question
	} else if p, ok := it.req.Tool.(caisson.Previewer); ok {
		preview, err := p.Preview(b.ctx, it.call)
		if err != nil {
			if b.ctx.Err() != nil {
				return errNotLooked
			}
			preview = "There is no preview: " + err.Error()
		}
		review.Preview = boundText(b.door.lock.redact(preview))
	}
	return b.open(it, review)
}

// notAsked records that a call needs a person's approval, and that its caller
// does not want anybody to be asked now.
func (b *batch) notAsked(it *item, why error) error {
	wire, verdict := caisson.AsError(why), it.verdict
	return b.settle(it, caisson.CallSettle{Call: it.call, Verdict: &verdict, Outcome: caisson.OutcomeNotStarted, Result: caisson.Result{
		Text: "It was not begun: " + wire.Error(), Summary: "not started: " + string(wire.Code), Error: wire,
	}})
}

func (b *batch) open(it *item, review caisson.Review) error {
	ctx, done := b.door.writing(b.ctx)
	defer done()
	opened, err := b.ledger().AskReview(ctx, b.door.drive, review, b.door.lock.o.ReviewExpiry)
	if err != nil {
		return fmt.Errorf("ask review of call %s: %w", review.Call.ID, err)
	}
	pass("airlock.asked")
	it.review, it.place, it.known = opened, waiting, true
	if it.rec, err = b.ledger().Call(ctx, it.req.ID); err != nil {
		return fmt.Errorf("read call %s: %w", it.req.ID, err)
	}
	b.door.lock.notify(Notice{Kind: NoticeAsked, Run: b.door.drive.Run, Review: &opened})
	b.watch()
	return nil
}

// stale is the audit event of an approval that does not stand.
type stale struct {
	Review  caisson.ReviewID `json:"review"`
	Call    caisson.CallID   `json:"call"`
	Digest  caisson.Digest   `json:"digest"` // of the call today
	Why     string           `json:"why"`
	Verdict caisson.Verdict  `json:"verdict"` // today's
}

func (b *batch) stale(it *item, verdict caisson.Verdict, why string) error {
	review := it.review
	ctx, done := b.door.writing(b.ctx)
	defer done()
	if err := b.ledger().Append(ctx, b.door.drive, caisson.EventReviewStale, stale{review.ID, it.req.ID, it.call.Digest, why, verdict}); err != nil {
		return fmt.Errorf("record stale review %s: %w", review.ID, err)
	}
	b.door.lock.notify(Notice{Kind: NoticeStale, Run: b.door.drive.Run, Review: &review, Text: why})
	return nil
}

// askAgain records that an approval does not stand, and asks anew. The old
// decision stays in the record as evidence.
func (b *batch) askAgain(it *item, verdict caisson.Verdict, why string) error {
	if err := b.stale(it, verdict, why); err != nil {
		return err
	}
	return b.ask(it)
}

func (b *batch) expired(r caisson.Review) bool {
	return r.State == caisson.ReviewOpen && b.ledger().Now().After(r.Expires)
}

// lapsed takes a review that nobody decided in time while Settle waits for it.
// Asking anew at once would make the time for deciding mean nothing: the next
// Settle does. A doer that waits for a nested call gets a refusal instead.
func (b *batch) lapsed(it *item, review caisson.Review) error {
	if review.State == caisson.ReviewOpen {
		var err error
		if review, err = b.endReview(review.ID, caisson.ReviewExpired, "nobody decided in time"); err != nil {
			return err
		}
	}
	it.review = review
	if review.State == caisson.ReviewDecided {
		it.place = idle
		return b.reviewed(it)
	}
	if b.parent == nil {
		return nil
	}
	return b.settle(it, caisson.CallSettle{Call: it.rec.Call, Outcome: caisson.OutcomeRefused, Result: caisson.Result{
		Text: "Not done: it needs a person's approval, and nobody decided in time.", Summary: "refused: nobody decided in time",
		Error: caisson.Errorf(caisson.CodeReviewExpired, "nobody decided review %s in time", review.ID),
	}})
}

// allLapsed tells whether there is nothing left that a person could decide.
func (b *batch) allLapsed() bool {
	for _, it := range b.items {
		if it.place == waiting && it.review.State == caisson.ReviewOpen {
			return false
		}
	}
	return true
}

// reviewed goes on with a call that has a review, by the review's state.
func (b *batch) reviewed(it *item) error {
	switch it.review.State {
	case caisson.ReviewOpen:
		if !b.expired(it.review) {
			it.place = waiting
			b.watch()
			return nil
		}
		ended, err := b.endReview(it.review.ID, caisson.ReviewExpired, "nobody decided in time")
		if err != nil {
			return err
		}
		it.review = ended
		return b.reviewed(it)
	case caisson.ReviewDecided:
		pass("airlock.decided")
		return b.decided(it)
	default:
		// Silence is not consent: it is judged again, and asked again if need be.
		if it.rec.State == caisson.CallStarted {
			return b.lost(it)
		}
		return b.fresh(it)
	}
}

// decided goes on with a call that a person has decided.
func (b *batch) decided(it *item) error {
	d := it.review.Decision
	switch {
	case d == nil || !d.Kind.Fits(it.review.Kind):
		return b.misfit(it)
	case d.Kind == caisson.Reject, d.Kind == caisson.Abort:
		return b.reject(it)
	case it.review.Kind == caisson.ReviewUnknown:
		return b.unknownAnswered(it)
	}
	if d.Kind == caisson.Modify {
		if err := ValidateModified(it.review, d.Input); err != nil {
			return b.notPrepared(it, err)
		}
	}
	if err := b.prepareItem(it); err != nil {
		return b.notPrepared(it, err)
	}
	var err error
	if it.verdict, err = b.door.judge(b.io(), it.call); err != nil {
		return err
	}
	what, why := decide(standingOf(it.review, it.call, it.verdict, b.ledger().Now(), b.door.lock.o.ApprovalTTL))
	switch what {
	case run:
		if d.Kind == caisson.Answer {
			return b.answer(it)
		}
		b.enqueue(it)
		return nil
	case askNew:
		return b.askAgain(it, it.verdict, why)
	default:
		if err := b.stale(it, it.verdict, why); err != nil {
			return err
		}
		return b.refuse(it, why)
	}
}

// misfit takes a decision that is missing or not of the review's kind: nothing
// was approved, so it is asked anew.
func (b *batch) misfit(it *item) error {
	if it.rec.State == caisson.CallStarted {
		return b.lost(it)
	}
	if err := b.prepareItem(it); err != nil {
		return b.notPrepared(it, err)
	}
	var err error
	if it.verdict, err = b.door.judge(b.io(), it.call); err != nil {
		return err
	}
	if what, why := decide(standing{today: it.verdict}); what == refuse {
		return b.refuse(it, why)
	}
	return b.askAgain(it, it.verdict, "the decision is not one that fits the review")
}

// reject records that a person said no. It needs neither preparation nor hook.
func (b *batch) reject(it *item) error {
	d := it.review.Decision
	if d.Kind == caisson.Abort {
		b.aborted()
	}
	if it.rec.State == caisson.CallStarted {
		return b.settleUnknown(it, "")
	}
	text := "A person rejected this call; it was not done."
	if d.Feedback != "" {
		text = "A person rejected this call; it was not done. They say: " + d.Feedback
	}
	return b.settle(it, caisson.CallSettle{Call: it.rec.Call, Outcome: caisson.OutcomeRefused, Result: caisson.Result{
		Text: text, Summary: "rejected by " + d.By, Cause: caisson.CauseUser,
		Error: caisson.Errorf(caisson.CodeRefused, "rejected by %s", d.By).
			WithHint("It was a person's decision, not a rule's: do it otherwise, or ask them."),
	}})
}

// aborted ends the batch because a person wants the run to end.
func (b *batch) aborted() {
	b.abort = true
	b.stop(&caisson.CauseError{Cause: caisson.CauseUser, Text: "a person aborted the run"})
}

// answer settles a question. The answer is its whole effect, so it is done in
// the transaction that consumes the decision, and is never unknown.
func (b *batch) answer(it *item) error {
	q, ok := it.req.Tool.(caisson.Questioner)
	if !ok {
		return b.misfit(it)
	}
	result := q.Answer(it.call.Input, *it.review.Decision)
	outcome := result.Outcome
	if outcome == "" {
		outcome = caisson.OutcomeDone
	}
	return b.settle(it, caisson.CallSettle{Call: it.call, Outcome: outcome, Result: result, Review: it.review.ID})
}

// restoreDenials settles what a person has denied before anything else is
// looked at: a denied call reaches neither preparation nor a hook.
func (b *batch) restoreDenials() error {
	for _, it := range b.items {
		if !it.known || it.review.State != caisson.ReviewDecided || it.review.Decision == nil {
			continue
		}
		d, terminal := it.review.Decision, it.rec.State.Terminal()
		denied := (d.Kind == caisson.Reject || d.Kind == caisson.Abort) && d.Kind.Fits(it.review.Kind)
		stop := it.review.Kind == caisson.ReviewUnknown && answerOf(*d) == answerStop
		switch {
		case terminal && (denied && d.Kind == caisson.Abort || stop):
			b.aborted()
		case !terminal && denied:
			if err := b.reject(it); err != nil {
				return err
			}
		}
	}
	return nil
}
