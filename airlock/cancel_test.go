package airlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// blocking makes a tool whose effect lasts until it is stopped.
func (w *world) blocking(name string, opened chan<- struct{}) {
	d := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: name}, Parallel: true}, effects: w.effectsPath()}
	d.open = func(ctx context.Context, _ caisson.Call) (caisson.Result, error) {
		opened <- struct{}{}
		<-ctx.Done()
		return caisson.Result{Text: "half of it"}, context.Cause(ctx)
	}
	w.tools[name] = d
}

// A cancel while one call runs, one waits for a person and one has not begun:
// the first keeps what it produced, the review is withdrawn, and each has its
// outcome with the cause.
func TestCancel(t *testing.T) {
	for _, cause := range []caisson.Cause{caisson.CauseUser, caisson.CauseParent, caisson.CauseDeadline, caisson.CauseBudget} {
		t.Run(string(cause), func(t *testing.T) {
			w := newWorld(t)
			opened := make(chan struct{}, 1)
			w.blocking("block", opened)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-opened
				cancel(&caisson.CauseError{Cause: cause, Text: "the test"})
			}()
			batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "write", "b"), w.request(3, "block", "c"), w.request(4, "write", "d")}
			s, err := w.door().Settle(ctx, batch)
			var named *caisson.CauseError
			if !errors.As(err, &named) || named.Cause != cause {
				t.Errorf("got %v", err)
			}
			if states(s) != "cancelled done cancelled cancelled" || len(s.Waiting) != 0 {
				t.Errorf("states %s, waiting %v", states(s), s.Waiting)
			}
			for _, i := range []int{0, 2, 3} {
				if r := s.Records[i].Result; r.Cause != cause {
					t.Errorf("call %d: cause %q", i+1, r.Cause)
				}
			}
			if got := s.Records[2].Result.Text; got != "half of it" {
				t.Errorf("what it produced is lost: %q", got)
			}
			review, err := w.ledger.Review(t.Context(), s.Records[0].Review)
			if err != nil || review.State != caisson.ReviewWithdrawn || !strings.Contains(review.Reason, string(cause)) {
				t.Errorf("review %+v, %v", review, err)
			}
			if n := w.done(); n[batch[0].ID] != 0 || n[batch[3].ID] != 0 {
				t.Errorf("effects %v", n)
			}
			if s := w.settle(batch...); states(s) != "cancelled done cancelled cancelled" {
				t.Errorf("replayed as %s", states(s))
			}
		})
	}
}

// A pause leaves open reviews open and what has not begun as it is.
func TestPause(t *testing.T) {
	for _, cause := range []error{&caisson.CauseError{Cause: caisson.CauseShutdown}, &airlock.PauseError{Cause: caisson.CauseUser}, errors.New("some other reason")} {
		w := newWorld(t)
		opened := make(chan struct{}, 1)
		w.blocking("block", opened)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-opened
			cancel(cause)
		}()
		batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "block", "c"), w.request(3, "write", "d")}
		s, err := w.door().Settle(ctx, batch)
		if !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
		if states(s) != "asked cancelled prepared" {
			t.Errorf("%v: states %s", cause, states(s))
		}
		next := w.settle(batch...)
		if states(next) != "asked cancelled done" || next.Waiting[0] != s.Records[0].Review {
			t.Errorf("%v: states %s, waiting %v", cause, states(next), next.Waiting)
		}
	}
}

// A batch whose context has ended before it begins gives every call its outcome all the same.
func TestCancelledBefore(t *testing.T) {
	w := newWorld(t)
	w.settle(w.request(1, "gated", "a"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&caisson.CauseError{Cause: caisson.CauseUser})
	s, err := w.door().Settle(ctx, []airlock.Request{w.request(1, "gated", "a"), w.request(2, "write", "b"), w.request(3, "missing", "b")})
	if err == nil || states(s) != "cancelled cancelled cancelled" || len(w.done()) != 0 {
		t.Errorf("%v, states %s", err, states(s))
	}
}

// A cancel that another process asks for is seen by a batch that waits for a
// person, and by one that is about to begin a call.
func TestCancelAskedElsewhere(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		w := newWorld(t)
		w.options.ParkAfter = time.Hour
		go func() {
			w.await(airlock.NoticeWaiting, 1)
			if _, err := w.ledger.AskCancel(t.Context(), w.run, caisson.CauseUser, "someone"); err != nil {
				t.Error(err)
			}
		}()
		s, err := w.door().Settle(t.Context(), []airlock.Request{w.request(1, "gated", "a")})
		if causeIn(err) != caisson.CauseUser || states(s) != "cancelled" {
			t.Errorf("%v, states %s", err, states(s))
		}
	})
	t.Run("starting", func(t *testing.T) {
		w := newWorld(t)
		w.tools["write"].(*doer).hold = func(ctx context.Context) error {
			_, err := w.ledger.AskCancel(ctx, w.run, caisson.CauseUser, "someone")
			return err
		}
		s, err := w.door().Settle(t.Context(), []airlock.Request{w.request(1, "write", "a"), w.request(2, "read", "b")})
		if causeIn(err) != caisson.CauseUser || states(s) != "cancelled cancelled" || len(w.done()) != 0 {
			t.Errorf("%v, states %s, effects %v", err, states(s), w.done())
		}
	})
}

func causeIn(err error) caisson.Cause {
	var named *caisson.CauseError
	if errors.As(err, &named) {
		return named.Cause
	}
	return ""
}

// Cancel while a call has calls of its own under way: all have ended, with
// their outcomes, when Settle returns. Origin: langgraph 8029, codex 15732.
func TestCase_R20(t *testing.T) {
	w := newWorld(t)
	opened := make(chan struct{}, 1)
	w.blocking("block", opened)
	var door *airlock.Door
	var inner airlock.Settled
	var alive atomic.Bool
	parent := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: "parent"}, CallsTools: true}, effects: w.effectsPath()}
	parent.open = func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
		alive.Store(true)
		defer alive.Store(false)
		n, err := door.Nested(call.ID)
		if err != nil {
			return caisson.Result{}, err
		}
		inner, err = n.Settle(ctx, []airlock.Request{
			{Name: "block", Tool: w.tools["block"], Input: `{"text":"x"}`}, {Name: "gated", Tool: w.tools["gated"], Input: `{"text":"y"}`},
		})
		return caisson.Result{Text: "stopped"}, err
	}
	w.tools["parent"] = parent
	door = w.door()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-opened
		w.await(airlock.NoticeAsked, 1)
		cancel(&caisson.CauseError{Cause: caisson.CauseUser})
	}()
	begun := time.Now()
	s, err := door.Settle(ctx, []airlock.Request{w.request(1, "parent", "p")})
	if causeIn(err) != caisson.CauseUser || states(s) != "cancelled" || states(inner) != "cancelled cancelled" || alive.Load() {
		t.Errorf("%v, outer %s, inner %s, alive %v", err, states(s), states(inner), alive.Load())
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("took %s", took)
	}
	open, err := w.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil || len(open) != 0 {
		t.Errorf("open reviews %v, %v", open, err)
	}
}

// A doer that returns while its own calls are under way takes them with it, and
// a door to them does not outlive it.
func TestNestedEndsWithParent(t *testing.T) {
	w := newWorld(t)
	var door *airlock.Door
	var nested *airlock.Nested
	type got struct {
		s   airlock.Settled
		err error
	}
	inner := make(chan got, 1)
	parent := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: "parent"}, CallsTools: true}, effects: w.effectsPath()}
	parent.open = func(_ context.Context, call caisson.Call) (caisson.Result, error) {
		var err error
		if nested, err = door.Nested(call.ID); err != nil {
			return caisson.Result{}, err
		}
		if at := door.Outermost(); len(at) != 1 || at[0] != call.ID {
			t.Errorf("at work: %v", at)
		}
		go func() {
			s, err := nested.Settle(context.WithoutCancel(t.Context()), []airlock.Request{{Name: "gated", Tool: w.tools["gated"], Input: `{"text":"y"}`}})
			inner <- got{s, err}
		}()
		w.await(airlock.NoticeAsked, 1)
		return caisson.Result{Text: "gone"}, nil
	}
	w.tools["parent"] = parent
	door = w.door()
	s, err := door.Settle(t.Context(), []airlock.Request{w.request(1, "parent", "p")})
	if err != nil || states(s) != "done" {
		t.Fatalf("%v, %s", err, states(s))
	}
	if ends := w.await(airlock.NoticeSettled, 2); ends[0].Record.Call.Parent != s.Records[0].Call.ID {
		t.Errorf("%s has its outcome before the call that it made", ends[0].Record.Call.ID)
	}
	if g := <-inner; states(g.s) != "not-started" || causeIn(g.err) != caisson.CauseParent {
		t.Errorf("inner %s, %v", states(g.s), g.err)
	}
	if _, err := nested.Settle(t.Context(), nil); caisson.CodeOf(err) != caisson.CodeCallUnknown {
		t.Errorf("the door outlives the call: %v", err)
	}
	if at := door.Outermost(); len(at) != 0 {
		t.Errorf("at work after the end: %v", at)
	}
	if _, err := door.Nested(s.Records[0].Call.ID); caisson.CodeOf(err) != caisson.CodeCallUnknown {
		t.Errorf("a door for a call that has ended: %v", err)
	}
}

// The tool's own time is over: it is stopped with that cause, and keeps what it
// produced; the others go on.
func TestToolDeadline(t *testing.T) {
	w := newWorld(t)
	opened := make(chan struct{}, 1)
	w.blocking("block", opened)
	w.tools["block"].(*doer).spec.Timeout = 20 * time.Millisecond
	s := w.settle(w.request(1, "block", "a"), w.request(2, "write", "b"))
	if states(s) != "cancelled done" || s.Records[0].Result.Cause != caisson.CauseDeadline || s.Records[0].Result.Text != "half of it" {
		t.Errorf("states %s, %+v", states(s), s.Records[0].Result)
	}
}

// Whoever is told that a call has started can still keep its effect from
// happening, by ending the batch there and then.
func TestStoppedAtTheGate(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.options.Observe = func(n airlock.Notice) {
		if n.Kind == airlock.NoticeStarted {
			cancel(&airlock.PauseError{Cause: caisson.CauseShutdown, Text: "the test"})
		}
	}
	s, err := w.door().Settle(ctx, []airlock.Request{w.request(1, "write", "a")})
	if err == nil || states(s) != "cancelled" || s.Records[0].Result.Cause != caisson.CauseShutdown {
		t.Errorf("states %s, error %v", states(s), err)
	}
	if len(w.done()) != 0 {
		t.Errorf("it was done: %v", w.done())
	}
}
