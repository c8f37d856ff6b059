package control_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// Four run, 64 wait in order, the next is busy. What waits too long, or while
// the broker is parked, is answered with why, at once.
func TestQueue(t *testing.T) {
	w := newWorld(t)
	began, let := w.blocking("block")
	b := w.start()
	var ids []caisson.RequestID
	for i := range caisson.ControlRunning + caisson.ControlQueued {
		ids = append(ids, w.ask("block", `{}`))
		w.await("that it is taken", func() bool { s := b.Status(); return s.Running+s.Queued == i+1 })
	}
	for range caisson.ControlRunning {
		<-began
	}
	if s := b.Status(); s.Running != caisson.ControlRunning || s.Queued != caisson.ControlQueued {
		t.Fatalf("status %+v", s)
	}
	if code := w.refused(w.ask("count", `{}`)); code != caisson.CodeBusy {
		t.Errorf("one more is %s", code)
	}
	// What is refused may be sent without end: nothing of it is kept.
	for _, verb := range []string{"count", "nothing"} {
		id := w.ask(verb, `{"text":"MARKER"}`)
		w.refused(id)
		found, err := w.ledger.Requests(t.Context(), w.run, caisson.RequestFilter{IDs: []caisson.RequestID{id}})
		if err != nil || len(found) != 1 || found[0].Verb != verb || len(found[0].Input) != 0 {
			t.Errorf("%s is recorded as %+v, %v", verb, found, err)
		}
	}
	if taken := strings.Join(w.events(caisson.EventRequestTaken), ""); strings.Contains(taken, "MARKER") {
		t.Error("the input of what was refused is recorded")
	}
	w.boot.Store(int64(11 * time.Second))
	w.ask("recover", `{}`) // wakes the broker; the clock alone would, in time
	for _, id := range ids[caisson.ControlRunning:] {
		if code := w.refused(id); code != caisson.CodeRequestExpired {
			t.Errorf("what has waited too long is %s", code)
		}
	}
	close(let)
	for _, id := range ids[:caisson.ControlRunning] {
		if a := w.answer(id); a.State != caisson.AnswerCompleted {
			t.Errorf("what runs: %+v", a)
		}
	}
}

// Requests begin in the order in which they were taken.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	began, let := w.blocking("block")
	b := w.start()
	var want, got []caisson.CallID
	for i := range 12 {
		id := w.ask("block", `{}`)
		want = append(want, caisson.NewRequestCallID(w.run, 1, id))
		w.await("that it is taken", func() bool { s := b.Status(); return s.Running+s.Queued == i+1 })
		if i < caisson.ControlRunning {
			got = append(got, <-began)
		}
	}
	for range 12 - caisson.ControlRunning {
		let <- struct{}{}
		got = append(got, <-began)
	}
	close(let)
	if !slices.Equal(want, got) {
		t.Errorf("began %v\nwant %v", got, want)
	}
}

// What has not begun when the broker is parked is answered with the reason; what
// runs goes on; and only the first reason by rank is told.
func TestParked(t *testing.T) {
	w := newWorld(t)
	began, let := w.blocking("block")
	b := w.start()
	var ids []caisson.RequestID
	for i := range 6 {
		ids = append(ids, w.ask("block", `{}`))
		w.await("that it is taken", func() bool { s := b.Status(); return s.Running+s.Queued == i+1 })
	}
	for range caisson.ControlRunning {
		<-began
	}
	b.Park(caisson.CodeWorkspaceBindingLost, "lost")
	b.Park(caisson.CodeHandoffActive, "held")
	for _, id := range ids[caisson.ControlRunning:] {
		if code := w.refused(id); code != caisson.CodeWorkspaceBindingLost && code != caisson.CodeHandoffActive {
			t.Errorf("what waited is %s", code)
		}
	}
	if s := b.Status(); s.Reason != caisson.CodeHandoffActive || s.State != caisson.BrokerParked || s.Text != "held" {
		t.Errorf("status %+v", s)
	}
	close(let)
	if a := w.answer(ids[0]); a.State != caisson.AnswerCompleted {
		t.Errorf("what ran: %+v", a)
	}
	b.Unpark(caisson.CodeHandoffActive)
	if s := b.Status(); s.Reason != caisson.CodeWorkspaceBindingLost {
		t.Errorf("status %+v", s)
	}
	b.Unpark(caisson.CodeWorkspaceBindingLost)
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("afterwards: %+v", a)
	}
}

// What was decided while the broker is parked waits for it to be healthy.
func TestDecidedWhileParked(t *testing.T) {
	w := newWorld(t)
	b := w.start()
	id := w.ask("gated", `{}`)
	review := w.accepted(id).Review
	w.await("that it waits", func() bool { return len(b.Status().Waiting) == 1 })
	b.Park(caisson.CodeHandoffActive, "held")
	w.decide(review, caisson.Decision{Kind: caisson.Approve})
	w.await("that it is seen", func() bool { return b.Status().Queued == 1 })
	if code := w.refused(w.ask("count", `{}`)); code != caisson.CodeHandoffActive || w.done(id) != 0 {
		t.Errorf("parked: %s, done %d times", code, w.done(id))
	}
	b.Unpark(caisson.CodeHandoffActive)
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
		t.Errorf("%+v, done %d times", a, w.done(id))
	}
}

// Quiesced, nothing runs and nothing is taken; what comes stays where its client
// can take it back, and is taken when the broker goes on.
func TestQuiesce(t *testing.T) {
	w := newWorld(t)
	began, _ := w.blocking("block")
	b := w.start()
	id := w.ask("block", `{}`)
	<-began
	if err := b.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := w.answer(id); a.State != caisson.AnswerCompleted || a.Exit != caisson.ExitInterrupted || a.Output != "half of it" {
		t.Errorf("what ran: %+v", a)
	}
	later := w.ask("count", `{}`)
	if w.has(later, ".json") || b.Status().Running != 0 {
		t.Error("something was taken")
	}
	b.Resume()
	if a := w.answer(later); a.State != caisson.AnswerCompleted {
		t.Errorf("afterwards: %+v", a)
	}
}

// A stall counts for what came while the broker was quiet, also where its client has
// ended since and nobody is inside.
func TestStallWhileQuiet(t *testing.T) {
	w := newWorld(t)
	w.sandbox.Empty = true
	b := w.start()
	b.Inhabited(true)
	w.tickNow()
	if err := b.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Written elsewhere: no other event tells of it than that it has come.
	id, elsewhere := newRequestID(), filepath.Join(w.dir, "request")
	body, err := json.Marshal(w.request(id, "count", `{}`))
	if err == nil {
		err = os.WriteFile(elsewhere, body, 0o600)
	}
	if err == nil {
		err = os.Rename(elsewhere, filepath.Join(w.channel(), caisson.ControlRequests, string(id)+".json"))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Inhabited(false)
	w.await("that what came is known of", b.Left)
	for range 3 {
		w.tickNow()
	}
	w.boot.Add(int64(time.Hour))
	b.Resume()
	if code := w.refused(id); code != caisson.CodeRequestExpired || w.done(id) != 0 {
		t.Errorf("it is %q, done %d times", code, w.done(id))
	}
}

// A doer that does not stop is named, within the time given.
func TestQuiesceInVain(t *testing.T) {
	w := newWorld(t)
	began, let := w.blocking("block")
	stubborn := w.verbs[len(w.verbs)-1].(verb)
	inner := stubborn.open
	stubborn.open = func(_ ctxType, call caisson.Call) (caisson.Result, error) { return inner(t.Context(), call) }
	w.verbs[len(w.verbs)-1] = stubborn
	b := w.start()
	id := w.ask("block", `{}`)
	<-began
	ctx, cancel := withTimeout(t, 200*time.Millisecond)
	defer cancel()
	if err := b.Quiesce(ctx); caisson.CodeOf(err) != caisson.CodeOrphanAlive || !contains(err, string(id)) {
		t.Errorf("got %v", err)
	}
	close(let)
	w.answer(id)
}
