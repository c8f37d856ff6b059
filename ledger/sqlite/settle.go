package sqlite

import (
	"context"

	"github.com/caisson-run/caisson"
)

// SettleCall implements [caisson.Ledger]. A review of the call that is still
// open is withdrawn.
func (l *Ledger) SettleCall(ctx context.Context, drive caisson.Drive, settle caisson.CallSettle) (caisson.CallRecord, error) {
	if err := checkCall(settle.Call); err != nil {
		return caisson.CallRecord{}, err
	}
	if err := checkAmount(settle.Used); err != nil {
		return caisson.CallRecord{}, err
	}
	var record caisson.CallRecord
	err := l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		c, err := t.settleCall(r, settle)
		if err != nil {
			return err
		}
		record, err = c.value(t)
		return err
	})
	return record, err
}

func (t *tx) settleCall(r *runRow, settle caisson.CallSettle) (*callRow, error) {
	c, err := t.ownCall(r, settle.Call.ID)
	if err != nil {
		return nil, err
	}
	if err := caisson.CallStates().Move(string(c.state), string(settle.Outcome)); err != nil {
		return nil, err
	}
	if !caisson.CallState(settle.Outcome).Terminal() {
		return nil, invalid("%q is no outcome", settle.Outcome)
	}
	begun := c.state == caisson.CallStarted
	if begun && c.doc.Digest != settle.Call.Digest {
		return nil, caisson.Errorf(caisson.CodeCallUnknown, "call %s has begun with another value", c.id)
	}
	if settle.Review != "" {
		if err := t.useAnswer(c, settle.Review); err != nil {
			return nil, err
		}
	} else if c.state == caisson.CallDecided && settle.Outcome == caisson.OutcomeDone {
		return nil, invalid("call %s is done only by the answer to its review", c.id)
	}
	if err := t.withdrawOpen(r, c.id, "the call is "+string(settle.Outcome)); err != nil {
		return nil, err
	}
	if err := t.settle(r, c.doc.Reserve, settle.Used); err != nil {
		return nil, err
	}
	if settle.Edit != nil {
		if err := t.edit(r, c, &settle); err != nil {
			return nil, err
		}
	}
	if err := t.recordSettle(r, c, settle); err != nil {
		return nil, err
	}
	return c, t.closeCalled(r, c.id)
}

// edit does what a call is for, and has the settle say what it did.
func (t *tx) edit(r *runRow, c *callRow, settle *caisson.CallSettle) error {
	reach := settle.Call.Reach
	if c.cid != 0 {
		var err error
		if reach, err = t.reachOf(c); err != nil {
			return err
		}
	}
	if reach != caisson.ReachLedger || settle.Outcome != caisson.OutcomeDone || settle.Edit.Task == nil {
		return caisson.Errorf(caisson.CodeUsage, "call %s of reach %s, which is %s, has no edit of a task as its effect", c.id, reach, settle.Outcome)
	}
	task, err := t.editTask(r, *settle.Edit.Task)
	if err != nil {
		return err
	}
	if settle.Edit.Result != nil {
		settle.Result = settle.Edit.Result(task)
		settle.Result.Outcome = settle.Outcome
	}
	return nil
}

// useAnswer consumes a review that was answered.
func (t *tx) useAnswer(c *callRow, id caisson.ReviewID) error {
	q, err := findReview(t, id)
	if err != nil {
		return err
	}
	if q.call != c.id || q.id() != c.doc.Review || q.decision == nil || q.decision.Kind != caisson.Answer {
		return invalid("review %s does not answer call %s", q.id(), c.id)
	}
	if q.doc.Consumed {
		return invalid("review %s was used before", q.id())
	}
	q.doc.Consumed = true
	return t.saveReview(q)
}

func (t *tx) recordSettle(r *runRow, c *callRow, settle caisson.CallSettle) error {
	if err := t.setValue(c, settle.Call); err != nil {
		return err
	}
	if settle.Verdict != nil {
		if err := t.setVerdict(c, *settle.Verdict); err != nil {
			return err
		}
	}
	result, err := t.put(settle.Result)
	if err != nil {
		return err
	}
	c.state = caisson.CallState(settle.Outcome)
	c.doc.Result, c.doc.Ended = result, t.now
	c.doc.Used = c.doc.Used.Plus(settle.Used)
	if settle.Of != "" {
		c.doc.Of = settle.Of
	}
	if err := t.saveCall(r, c); err != nil {
		return err
	}
	event := c.event()
	event.Review, event.Outcome, event.Result, event.Used, event.Of = settle.Review, settle.Outcome, result, settle.Used, c.doc.Of
	return t.emit(r, caisson.EventCallSettled, event)
}
