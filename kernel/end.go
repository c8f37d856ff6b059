package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// move moves the run and tells of it. Staying is no move.
func (d *driver) move(move caisson.RunMove) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.moveLocked(move)
}

func (d *driver) moveLocked(move caisson.RunMove) error {
	if d.run.State == move.To {
		return nil
	}
	move.Text = d.o.Redact(move.Text)
	ctx, done := d.writing()
	defer done()
	run, err := d.o.Ledger.MoveRun(ctx, d.drive, move)
	if err != nil {
		return fmt.Errorf("move run to %s: %w", move.To, err)
	}
	d.run = run
	d.tellLocked(Event{Kind: EventRun})
	return nil
}

// end moves the run to a terminal state, unless a cancel was quicker.
func (d *driver) end(move caisson.RunMove) error {
	if err := d.closeCalls(move.Cause); err != nil {
		return err
	}
	err := d.move(move)
	if caisson.CodeOf(err) == caisson.CodeStateInvalid && d.state() == caisson.RunCancelling {
		return d.cancelled()
	}
	return over(err)
}

// rest moves the run to a state from which it can be taken up again.
func (d *driver) rest(move caisson.RunMove) error {
	err := d.move(move)
	if caisson.CodeOf(err) == caisson.CodeStateInvalid && d.state() == caisson.RunCancelling {
		return d.cancelled()
	}
	return over(err)
}

func over(err error) error {
	if err != nil {
		return err
	}
	return errOver
}

func (d *driver) state() caisson.RunState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run.State
}

// fault pauses the run for a reason that a person can mend: a full disk, a
// workspace that is not the one on record. Nothing is done again for it.
func (d *driver) fault(err error) error {
	moved := d.rest(caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Text: err.Error()})
	if moved != nil && !errors.Is(moved, errOver) {
		return errors.Join(err, moved)
	}
	return moved
}

// interrupted tells whether this life is being ended from outside, and ends it.
func (d *driver) interrupted() (bool, error) {
	if d.state() == caisson.RunCancelling {
		return true, d.cancelled()
	}
	if cause := d.cancelAsked(); cause != "" {
		return true, d.cancelled()
	}
	if left, bounded := d.timeLeft(); bounded && left == 0 {
		d.stop(d.timeOver())
	}
	if d.work.Err() == nil {
		return false, nil
	}
	err := context.Cause(d.work)
	var pause *airlock.PauseError
	var named *caisson.CauseError
	switch {
	case errors.As(err, &pause):
		return true, d.rest(caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Cause: pause.Cause, Text: pause.Text})
	case errors.As(err, &named) && named.Cause == caisson.CauseDeadline:
		return true, d.end(caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopDeadline, Cause: caisson.CauseDeadline, Text: named.Text})
	default:
		return true, d.rest(caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Cause: caisson.CauseUnknown, Text: err.Error()})
	}
}

func (d *driver) cancelAsked() caisson.Cause {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run.CancelAsked
}

// cancelled ends a run whose cancel was asked: its work has ended, each of its
// calls gets an outcome, then it is cancelled.
func (d *driver) cancelled() error {
	cause := d.cancelAsked()
	if err := d.move(caisson.RunMove{To: caisson.RunCancelling, Cause: cause}); err != nil {
		return err
	}
	if err := d.closeCalls(cause); err != nil {
		return err
	}
	return over(d.move(caisson.RunMove{To: caisson.RunCancelled, Stop: caisson.StopCancelled, Cause: cause}))
}

// closeCalls gives each call that is left open its outcome, whoever asked for
// it. No doer of it is alive: one that began is unknown, unless it had no effect
// without its outcome; any other never began.
func (d *driver) closeCalls(cause caisson.Cause) error {
	if d.o.Ending != nil {
		ctx, done := d.writing()
		err := d.o.Ending(ctx, cause)
		done()
		if err != nil {
			return fmt.Errorf("end what was asked for beside the turns: %w", err)
		}
	}
	if cause == "" {
		cause = caisson.CauseUnknown
	}
	ctx, done := d.writing()
	defer done()
	reviews, err := d.o.Ledger.Reviews(ctx, caisson.ReviewFilter{Run: d.drive.Run, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil {
		return fmt.Errorf("read reviews: %w", err)
	}
	for _, review := range reviews {
		_, err := d.o.Ledger.EndReview(ctx, d.drive, review.ID, caisson.ReviewWithdrawn, "the run ends: "+string(cause))
		switch caisson.CodeOf(err) {
		case "", caisson.CodeReviewAlreadyDecided, caisson.CodeReviewExpired, caisson.CodeReviewWithdrawn:
		default:
			return fmt.Errorf("withdraw review %s: %w", review.ID, err)
		}
	}
	records, err := d.o.Ledger.OpenCalls(ctx, d.drive.Run)
	if err != nil {
		return fmt.Errorf("read calls: %w", err)
	}
	for _, record := range slices.Backward(records) { // what a call made before the call
		if err := d.closeCall(ctx, record, cause); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) closeCall(ctx context.Context, record caisson.CallRecord, cause caisson.Cause) error {
	settle := caisson.CallSettle{Call: record.Call, Of: record.Of, Outcome: caisson.OutcomeCancelled, Result: caisson.Result{
		Outcome: caisson.OutcomeCancelled, Cause: cause, Summary: "cancelled: " + string(cause),
		Text: fmt.Sprintf("Not done: the run ended before it began (%s).", cause),
	}}
	switch {
	case record.State == caisson.CallStarted && record.Call.Reach == caisson.ReachLedger:
		// It would have been done by the settle alone.
		settle.Used = record.Reserve
		settle.Result.Text = fmt.Sprintf("Not done: the run ended before it had an effect (%s).", cause)
	case record.State == caisson.CallStarted:
		settle.Outcome, settle.Used = caisson.OutcomeUnknown, record.Reserve
		settle.Result.Outcome, settle.Result.Summary = caisson.OutcomeUnknown, "unknown: "+string(cause)
		settle.Result.Text = "This call began, and nobody saw its end. It may have been done in whole, in part or not at all."
	}
	settled, err := d.o.Ledger.SettleCall(ctx, d.drive, settle)
	if caisson.CodeOf(err) == caisson.CodeStateInvalid {
		// The call of a request may have come to its outcome since.
		if stored, readErr := d.o.Ledger.Call(ctx, record.Call.ID); readErr == nil && stored.State.Terminal() {
			settled, err = stored, nil
		}
	}
	if err != nil {
		return fmt.Errorf("settle call %s: %w", record.Call.ID, err)
	}
	if settled.Call.Turn > 0 { // and not that of a request from inside
		d.calls[settled.Call.ID] = settled
	}
	return nil
}

func waitingText(reviews []caisson.ReviewID) string {
	names := make([]string, len(reviews))
	for i, id := range reviews {
		names[i] = string(id)
	}
	return "waits for " + strings.Join(names, ", ")
}

// watch ends the work when ctx ends (pause), when a cancel is asked, and when
// the run's time is over. The function it returns ends the watching.
func (d *driver) watch(ctx context.Context) (end func()) {
	watching, stop := context.WithCancel(d.record)
	unhook := context.AfterFunc(ctx, func() { d.stop(pauseOf(context.Cause(ctx))) })
	d.clock(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.watchCancel(watching)
	}()
	return func() {
		unhook()
		d.clock(false)
		stop()
		<-done
	}
}

// pauseOf turns the end of the caller's context into one that leaves open calls open.
func pauseOf(cause error) error {
	var named *caisson.CauseError
	if errors.As(cause, &named) {
		return &airlock.PauseError{Cause: named.Cause, Text: named.Text}
	}
	return &airlock.PauseError{Cause: caisson.CauseUnknown, Text: cause.Error()}
}

// watchCancel waits for a cancel in the record, moves the run to cancelling
// and ends the work. While the ledger cannot be read it tries again each second.
func (d *driver) watchCancel(ctx context.Context) {
	var seen int64
	for ctx.Err() == nil {
		n, err := d.o.Ledger.Wait(ctx, d.drive.Run, seen)
		if err == nil {
			seen = n
			err = d.lookForCancel(ctx)
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (d *driver) lookForCancel(ctx context.Context) error {
	run, err := d.o.Ledger.Run(ctx, d.drive.Run)
	if err == nil && run.CancelAsked != "" {
		d.noticeCancel(run)
	}
	return err
}

// refresh looks for a cancel at once, where something hints at one. A ledger
// that cannot be read is met by whatever comes next.
func (d *driver) refresh() {
	ctx, done := d.writing()
	defer done()
	_ = d.lookForCancel(ctx)
}

func (d *driver) noticeCancel(run caisson.Run) {
	d.mu.Lock()
	d.run.CancelAsked, d.run.CancelBy = run.CancelAsked, run.CancelBy
	if d.run.State == caisson.RunRunning || d.run.State == caisson.RunWaiting {
		// Where this fails the owner meets the same fault when it moves the run.
		_ = d.moveLocked(caisson.RunMove{To: caisson.RunCancelling, Cause: run.CancelAsked})
	}
	d.mu.Unlock()
	d.stop(&caisson.CauseError{Cause: run.CancelAsked, Text: "cancel was asked"})
}

func (d *driver) timeOver() error {
	return &caisson.CauseError{Cause: caisson.CauseDeadline, Text: fmt.Sprintf("the run's time of %s is over", d.spec.Budget.Wall)}
}

// timeLeft is what is left of the run's time, over all its lives.
func (d *driver) timeLeft() (time.Duration, bool) {
	wall := d.spec.Budget.Wall
	if wall <= 0 {
		return 0, false
	}
	return max(wall-d.elapsed(), 0), true
}

func (d *driver) elapsed() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	elapsed := d.run.Active
	if !d.run.ActiveSince.IsZero() {
		elapsed += max(d.o.Ledger.Now().Sub(d.run.ActiveSince), 0)
	}
	return elapsed
}
