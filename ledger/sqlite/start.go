package sqlite

import (
	"context"

	"github.com/caisson-run/caisson"
)

// StartCall implements [caisson.Ledger].
//
// Beyond the contract's list: a verdict of deny never starts, one of review
// starts only with a review, and a call that was asked about starts only with
// its review. A start after one whose end nobody saw charges that one's
// reserve in full.
func (l *Ledger) StartCall(ctx context.Context, drive caisson.Drive, start caisson.CallStart) (caisson.CallRecord, error) {
	if err := checkCall(start.Call); err != nil {
		return caisson.CallRecord{}, err
	}
	if err := checkAmount(start.Reserve); err != nil {
		return caisson.CallRecord{}, err
	}
	var record caisson.CallRecord
	err := l.write(ctx, func(t *tx) error {
		r, err := t.driven(drive)
		if err != nil {
			return err
		}
		c, err := t.startCall(r, start)
		if err != nil {
			return err
		}
		record, err = c.value(t)
		return err
	})
	return record, err
}

func (t *tx) startCall(r *runRow, start caisson.CallStart) (*callRow, error) {
	if err := mayStart(r, start); err != nil {
		return nil, err
	}
	c, err := t.ownCall(r, start.Call.ID)
	if err != nil {
		return nil, err
	}
	if err := t.mayBegin(c, start); err != nil {
		return nil, err
	}
	if start.Review != "" {
		if err := t.useApproval(c, start); err != nil {
			return nil, err
		}
	}
	event := c.event()
	if c.state == caisson.CallStarted {
		event.Charged = c.doc.Reserve
		if err := t.settle(r, c.doc.Reserve, c.doc.Reserve); err != nil {
			return nil, err
		}
		c.doc.Used = c.doc.Used.Plus(c.doc.Reserve)
	}
	if err := t.reserve(r, start.Reserve); err != nil {
		return nil, err
	}
	if err := t.recordStart(r, c, start); err != nil {
		return nil, err
	}
	charged := event.Charged
	event = c.event()
	event.Charged, event.Review, event.Effect, event.Attempt = charged, start.Review, caisson.EffectIDOf(c.id), c.doc.Attempts
	event.Executor, event.Sandbox, event.Reserve, event.Of = c.doc.Executor, start.Sandbox, start.Reserve, start.Of
	return c, t.emit(r, caisson.EventCallStarted, event)
}

// mayStart looks at the run and at today's verdict.
func mayStart(r *runRow, start caisson.CallStart) error {
	switch {
	case r.doc.CancelAsked != "" || r.state == caisson.RunCancelling:
		return caisson.Errorf(caisson.CodeCancelled, "run %s is being cancelled: %s", r.id, r.doc.CancelAsked).With("cause", string(r.doc.CancelAsked))
	case r.state != caisson.RunRunning:
		return invalid("run %s starts no call while it is %s", r.id, r.state)
	case start.Verdict.Ruling == caisson.Allow:
		return nil
	case start.Verdict.Ruling == caisson.ReviewIt && start.Review != "":
		return nil
	default:
		return caisson.Errorf(caisson.CodeRefused, "call %s may not start: %s says %q", start.Call.ID, start.Verdict.Rule, start.Verdict.Ruling)
	}
}

// mayBegin looks at the call's row.
func (t *tx) mayBegin(c *callRow, start caisson.CallStart) error {
	if c.cid == 0 {
		if start.Review != "" {
			return invalid("call %s was never asked about", c.id)
		}
		return nil
	}
	if err := caisson.CallStates().Move(string(c.state), string(caisson.CallStarted)); err != nil {
		return err
	}
	again := c.doc.Effect == caisson.EffectRead || c.doc.Effect == caisson.EffectIdempotent
	if c.state == caisson.CallStarted && !again {
		// What is done by the settle alone was not done.
		reach, err := t.reachOf(c)
		if err != nil {
			return err
		}
		again = reach == caisson.ReachLedger
	}
	switch {
	case c.state == caisson.CallStarted && !again:
		return invalid("call %s has begun and its effect is %s: it may not begin again", c.id, c.doc.Effect)
	case c.state == caisson.CallDecided && start.Review == "":
		return invalid("call %s was decided by a person and starts only with that review", c.id)
	}
	if start.Review == "" && c.doc.Digest != start.Call.Digest {
		return caisson.Errorf(caisson.CodeCallUnknown, "call %s is on record with another value", c.id)
	}
	return nil
}

// reachOf returns the reach of a call as it is on record.
func (t *tx) reachOf(c *callRow) (caisson.Reach, error) {
	var call caisson.Call
	err := get(t, c.doc.Value, &call)
	return call.Reach, err
}

// useApproval consumes the review that start names.
func (t *tx) useApproval(c *callRow, start caisson.CallStart) error {
	q, err := findReview(t, start.Review)
	if err != nil {
		return err
	}
	d := q.decision
	if q.call != c.id || q.kind() != caisson.ReviewCall || d == nil || d.Kind != caisson.Approve && d.Kind != caisson.Modify {
		return invalid("review %s does not approve call %s", q.id(), c.id)
	}
	if q.id() != c.doc.Review {
		return invalid("review %s of call %s was followed by %s", q.id(), c.id, c.doc.Review)
	}
	want := q.doc.Digest
	if d.Kind == caisson.Modify {
		// Policy alone may allow a modified value; where it says review, the
		// person must have approved exactly this one.
		if want = d.ApproveModified; start.Verdict.Ruling == caisson.Allow {
			want = start.Call.Digest
		}
	}
	if start.Call.Digest != want {
		return caisson.Errorf(caisson.CodeReviewDigestMismatch, "review %s approves another value of call %s", q.id(), c.id)
	}
	if c.doc.Digest != want && d.Kind != caisson.Modify {
		return caisson.Errorf(caisson.CodeReviewDigestMismatch, "call %s has another value than review %s approves", c.id, q.id())
	}
	if c.state == caisson.CallStarted {
		if !q.doc.Consumed || c.doc.Digest != want {
			return invalid("review %s did not start call %s", q.id(), c.id)
		}
		return nil
	}
	if q.doc.Consumed {
		return invalid("review %s was used before", q.id())
	}
	if t.now.After(q.doc.UseBy) {
		return caisson.Errorf(caisson.CodeReviewExpired, "the approval in review %s could be used until %s", q.id(), q.doc.UseBy)
	}
	q.doc.Consumed = true
	return t.saveReview(q)
}

func (t *tx) recordStart(r *runRow, c *callRow, start caisson.CallStart) error {
	if err := t.setValue(c, start.Call); err != nil {
		return err
	}
	if err := t.setVerdict(c, start.Verdict); err != nil {
		return err
	}
	if start.Executor != nil {
		executor, err := t.put(start.Executor)
		if err != nil {
			return err
		}
		c.doc.Executor = executor
	}
	c.state = caisson.CallStarted
	c.doc.Attempts++
	c.doc.Started, c.doc.Sandbox, c.doc.Reserve = t.now, start.Sandbox, start.Reserve
	if start.Of != "" {
		c.doc.Of = start.Of
	}
	return t.saveCall(r, c)
}
