package control_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// A request that a person is asked about holds no slot, is told so, and goes on
// when it is decided; its answer is the same whether the broker lived or not.
func TestReview(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			w := newWorld(t)
			b := w.start()
			yes, no := w.ask("gated", `{"text":"yes"}`), w.ask("gated", `{"text":"no"}`)
			first := w.accepted(yes)
			if first.State != caisson.AnswerWaiting || first.Review == "" {
				t.Fatalf("accepted %+v", first)
			}
			other := w.accepted(no)
			w.await("that both wait", func() bool { s := b.Status(); return s.Running == 0 && len(s.Waiting) == 2 })
			if restart {
				w.close()
				w.takeOver()
				b = w.start()
				if s := b.Status(); len(s.Waiting) != 2 || s.Epoch != 2 {
					t.Fatalf("after a restart: %+v", s)
				}
			}
			w.decide(first.Review, caisson.Decision{Kind: caisson.Approve})
			w.decide(other.Review, caisson.Decision{Kind: caisson.Reject, Feedback: "not today"})
			if a := w.answer(yes); a.State != caisson.AnswerCompleted || w.done(yes) != 1 {
				t.Errorf("approved: %+v, done %d times", a, w.done(yes))
			}
			if a := w.answer(no); a.State != caisson.AnswerRejected || a.Error.Code != caisson.CodeRefused || w.done(no) != 0 {
				t.Errorf("rejected: %+v, done %d times", a, w.done(no))
			}
			if again := w.accepted(yes); again.State != caisson.AnswerWaiting {
				t.Errorf("the first answer has become %+v", again)
			}
		})
	}
}

// What was approved while the run takes no calls waits for that, and its doer is
// not made ready before.
func TestApprovedWhileTheRunWaits(t *testing.T) {
	w := newWorld(t)
	var holds atomic.Int64
	for i, tool := range w.verbs {
		if v := tool.(verb); v.name == "gated" {
			v.holds = &holds
			w.verbs[i] = v
		}
	}
	l := &faulty{Ledger: w.ledger}
	w.through = l
	b := w.start()
	id := w.ask("gated", `{}`)
	review := w.accepted(id).Review
	w.await("that it waits", func() bool { return len(b.Status().Waiting) == 1 })
	if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting}); err != nil {
		t.Fatal(err)
	}
	w.decide(review, caisson.Decision{Kind: caisson.Approve})
	idle := func() bool { s := b.Status(); return len(s.Waiting)+s.Queued+s.Running == 0 }
	w.await("that it was tried", idle)
	for range 3 {
		tried := make(chan struct{})
		l.reading.Store(new(func() { close(tried) }))
		w.tickNow()
		<-tried
		w.await("that it was tried again", idle)
	}
	if n := holds.Load(); n != 0 || w.done(id) != 0 {
		t.Errorf("made ready %d times", n)
	}
	if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		t.Fatal(err)
	}
	w.tickNow()
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 || holds.Load() != 1 {
		t.Errorf("%+v, done %d times, made ready %d times", a, w.done(id), holds.Load())
	}
}

// since is a ledger in which something happens just after the run was read.
type since struct {
	caisson.Ledger
	read atomic.Pointer[func()] // once
}

func (l *since) Run(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	r, err := l.Ledger.Run(ctx, id)
	if read := l.read.Swap(nil); read != nil {
		(*read)()
	}
	return r, err
}

// What was approved while the run takes no calls begins when it does again, and not
// with the next round: also where it is being tried just then.
func TestApprovedBeginsWithTheRun(t *testing.T) {
	for _, tried := range []bool{true, false} {
		t.Run(fmt.Sprintf("tried=%v", tried), func(t *testing.T) {
			w := newWorld(t)
			l := &since{Ledger: w.ledger}
			w.through = l
			b := w.start()
			id := w.ask("gated", `{}`)
			review := w.accepted(id).Review
			w.await("that it waits", func() bool { return len(b.Status().Waiting) == 1 })
			if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting}); err != nil {
				t.Fatal(err)
			}
			again := func() {
				if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
					t.Error(err)
				}
				b.Again()
			}
			if !tried {
				l.read.Store(new(func() {
					again()
					b.Ticked() // it was looked for what is to be tried again
				}))
			}
			w.decide(review, caisson.Decision{Kind: caisson.Approve})
			if tried {
				w.await("that it was tried", func() bool { s := b.Status(); return len(s.Waiting)+s.Queued+s.Running == 0 })
				again()
			}
			if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
				t.Errorf("%+v, done %d times", a, w.done(id))
			}
		})
	}
}

// A decision that comes while nobody serves the channel is acted on when
// somebody does.
func TestDecidedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.start()
	id := w.ask("gated", `{}`)
	review := w.accepted(id).Review
	w.close()
	w.decide(review, caisson.Decision{Kind: caisson.Approve})
	w.takeOver()
	w.start()
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
		t.Errorf("%+v, done %d times", a, w.done(id))
	}
}

// While 16 requests wait for a person, what needs one is busy, and what needs
// none is done.
func TestReviewsAreBounded(t *testing.T) {
	w := newWorld(t)
	b := w.start()
	var first caisson.RequestID
	for i := range caisson.ControlReviews {
		id := w.ask("gated", fmt.Sprintf(`{"text":"%d"}`, i))
		if i == 0 {
			first = id
		}
		if a := w.accepted(id); a.State != caisson.AnswerWaiting {
			t.Fatalf("request %d: %+v", i, a)
		}
	}
	if code := w.refused(w.ask("gated", `{}`)); code != caisson.CodeBusy {
		t.Errorf("one more is %s", code)
	}
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("what needs nobody: %+v", a)
	}
	w.decide(w.accepted(first).Review, caisson.Decision{Kind: caisson.Approve})
	w.answer(first)
	w.await("that its place is free", func() bool { return len(b.Status().Waiting) == caisson.ControlReviews-1 && b.Status().Running == 0 })
	if a := w.accepted(w.ask("gated", `{}`)); a.State != caisson.AnswerWaiting {
		t.Errorf("after one was decided: %+v", a)
	}
}

// A question that nobody answers in its time is asked again; the request still
// waits.
func TestReviewLapses(t *testing.T) {
	w := newWorld(t)
	b := w.start()
	id := w.ask("gated", `{}`)
	first := w.accepted(id).Review
	w.later.Store(int64(25 * time.Hour))
	w.boot.Store(int64(6 * time.Second)) // the next tick is due
	w.service.Tick(t.Context())
	var second caisson.ReviewID
	w.await("another review", func() bool {
		open, err := w.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
		if err != nil || len(open) != 1 || open[0].ID == first {
			return false
		}
		second = open[0].ID
		return len(b.Status().Waiting) == 1 && b.Status().Running == 0
	})
	w.decide(second, caisson.Decision{Kind: caisson.Approve})
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
		t.Errorf("%+v, done %d times", a, w.done(id))
	}
}

// At the end of the run nothing stays open: what runs is stopped, what waits is
// withdrawn, and each has its answer.
func TestEnd(t *testing.T) {
	w := newWorld(t)
	began, _ := w.blocking("block")
	b := w.start()
	running, waiting := w.ask("block", `{}`), w.ask("gated", `{}`)
	<-began
	review := w.accepted(waiting).Review
	w.await("that one waits", func() bool { return len(b.Status().Waiting) == 1 })
	if err := b.End(t.Context(), caisson.CauseUser, "cancelled"); err != nil {
		t.Fatal(err)
	}
	if a := w.answer(running); a.State != caisson.AnswerCompleted || a.Exit != caisson.ExitInterrupted || a.Output != "half of it" {
		t.Errorf("what ran: %+v", a)
	}
	if code := w.refused(waiting); code != caisson.CodeNotExecuted {
		t.Errorf("what waited: %s", code)
	}
	if r, err := w.ledger.Review(t.Context(), review); err != nil || r.State != caisson.ReviewWithdrawn {
		t.Errorf("its review is %+v, %v", r, err)
	}
	if open, err := w.ledger.Requests(t.Context(), w.run, caisson.RequestFilter{Open: true}); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
	if b.Err() == nil {
		t.Error("it does not say why it ended")
	}
}
