package kernel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/kernel"
	"github.com/google/go-cmp/cmp"
)

// promptly is far less than what a cancel that is not acted on takes, which is for ever.
const promptly = 20 * time.Second

// driven drives the run beside the test.
func (s *stage) driven(ctx context.Context) <-chan ended {
	done := make(chan ended, 1)
	go func() {
		run, err := s.life(ctx)
		done <- ended{run, err}
	}()
	return done
}

type ended struct {
	run caisson.Run
	err error
}

// onModel does something at the first piece of an answer.
func (s *stage) onModel(do func()) {
	inner := s.opts.Observe
	once := false
	s.opts.Observe = func(e kernel.Event) {
		inner(e)
		if e.Kind == kernel.EventModel && !once {
			once = true
			do()
		}
	}
}

func TestCancelWhileTheModelSpeaks(t *testing.T) {
	s := newStage(t, "turns: [{text: half a sentence, stall: true}]", caisson.Budget{})
	speaks := make(chan struct{})
	s.onModel(func() { close(speaks) })
	done := s.driven(t.Context())
	<-speaks
	begin := time.Now()
	if _, err := s.ledger.AskCancel(t.Context(), s.id, caisson.CauseUser, "tester"); err != nil {
		t.Fatal(err)
	}
	end := <-done
	if end.err != nil {
		t.Fatal(end.err)
	}
	wantEnd(t, end.run, caisson.RunCancelled, caisson.StopCancelled)
	if took := time.Since(begin); took > promptly || end.run.Cause != caisson.CauseUser {
		t.Errorf("cancelled after %s with cause %s", took, end.run.Cause)
	}
	if diff := cmp.Diff([]string{"run running", "asked", "model", "run cancelling", "abandoned", "run cancelled"}, s.kinds()); diff != "" {
		t.Error(diff)
	}
}

// Origin: langgraph 8029, codex 15732. The part of a cancel that one run is.
func TestCase_R20_calls(t *testing.T) {
	s := newStage(t, "turns: [{calls: [{tool: read, input: {word: a}}, {tool: slow, input: {word: b}}, {tool: write, input: {word: c}}, {tool: write, input: {word: review}}]}]", caisson.Budget{})
	done := s.driven(t.Context())
	<-s.slow
	begin := time.Now()
	if _, err := s.ledger.AskCancel(t.Context(), s.id, caisson.CauseParent, "tester"); err != nil {
		t.Fatal(err)
	}
	end := <-done
	if end.err != nil {
		t.Fatal(end.err)
	}
	wantEnd(t, end.run, caisson.RunCancelled, caisson.StopCancelled)
	if took := time.Since(begin); took > promptly {
		t.Errorf("took %s", took)
	}
	records, err := s.ledger.Calls(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, record := range records {
		states = append(states, string(record.State))
	}
	if diff := cmp.Diff([]string{"done", "cancelled", "cancelled", "cancelled"}, states); diff != "" {
		t.Error(diff)
	}
	if records[1].Result.Text != "began b" {
		t.Errorf("what the call produced before was lost: %q", records[1].Result.Text)
	}
}

func TestCancelOfAParkedRun(t *testing.T) {
	s := newStage(t, "turns: [{calls: [{tool: write, input: {word: review}}]}]", caisson.Budget{})
	wantEnd(t, s.run(t), caisson.RunWaiting, caisson.StopWaiting)
	if _, err := s.ledger.AskCancel(t.Context(), s.id, caisson.CauseUser, "tester"); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, s.run(t), caisson.RunCancelled, caisson.StopCancelled)
	reviews, err := s.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: s.id})
	if err != nil || len(reviews) != 1 || reviews[0].State != caisson.ReviewWithdrawn {
		t.Errorf("got %+v, %v", reviews, err)
	}
	if len(s.effects(t)) != 0 {
		t.Error("the call was done")
	}
}

func TestPauseWhileTheModelSpeaks(t *testing.T) {
	s := newStage(t, "turns: [{text: half a sentence, stall: true, times: 1}]", caisson.Budget{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s.onModel(func() { cancel(&caisson.CauseError{Cause: caisson.CauseUser, Text: "Ctrl-C"}) })
	run, err := s.life(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, run, caisson.RunPaused, caisson.StopPaused)
	if run.Cause != caisson.CauseUser || run.Text != "Ctrl-C" {
		t.Errorf("paused with cause %s: %s", run.Cause, run.Text)
	}
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
}

func TestPauseWhileACallRuns(t *testing.T) {
	s := newStage(t, `
turns:
  - calls: [{tool: slow, input: {word: a}}, {tool: write, input: {word: b}}, {tool: write, input: {word: review}}]
  - expect: [{contains: began a, failed: true}, {contains: write b, failed: false}, {contains: write review, failed: false}]
    text: ok
`, caisson.Budget{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := s.driven(ctx)
	<-s.slow
	cancel(&caisson.CauseError{Cause: caisson.CauseShutdown})
	end := <-done
	if end.err != nil {
		t.Fatal(end.err)
	}
	wantEnd(t, end.run, caisson.RunPaused, caisson.StopPaused)
	if end.run.Cause != caisson.CauseShutdown {
		t.Errorf("paused with cause %s", end.run.Cause)
	}
	wantEnd(t, s.run(t), caisson.RunWaiting, caisson.StopWaiting)
	s.decide(t, caisson.Decision{Kind: caisson.Approve})
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	if diff := cmp.Diff([]string{"slow:rtest.1.1", "write:rtest.1.2", "write:rtest.1.3"}, s.effects(t)); diff != "" {
		t.Error(diff)
	}
}

func TestEndedContext(t *testing.T) {
	s := newStage(t, twoTurns, caisson.Budget{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&caisson.CauseError{Cause: caisson.CauseShutdown})
	run, err := s.life(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, run, caisson.RunPaused, caisson.StopPaused)
	if len(s.asked(t)) != 0 {
		t.Error("the model was asked")
	}
}

func (s *stage) decide(t *testing.T, decision caisson.Decision) {
	t.Helper()
	reviews, err := s.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: s.id, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil || len(reviews) != 1 {
		t.Fatalf("%d open reviews, %v", len(reviews), err)
	}
	decision.By = "tester"
	if _, err := s.ledger.Decide(t.Context(), reviews[0].ID, reviews[0].Call.Digest, decision, time.Hour); err != nil {
		t.Fatal(err)
	}
}

func TestAbort(t *testing.T) {
	s := newStage(t, "turns: [{calls: [{tool: read, input: {word: a}}, {tool: write, input: {word: review}}]}]", caisson.Budget{})
	wantEnd(t, s.run(t), caisson.RunWaiting, caisson.StopWaiting)
	s.decide(t, caisson.Decision{Kind: caisson.Abort})
	run := s.run(t)
	wantEnd(t, run, caisson.RunStopped, caisson.StopRejected)
	if diff := cmp.Diff([]string{"read:rtest.1.1"}, s.effects(t)); diff != "" {
		t.Error(diff)
	}
}

// Origin: openai-agents PR4621. The disk is full right after a tool succeeded.
func TestCase_R19(t *testing.T) {
	s := newStage(t, `
turns:
  - calls: [{tool: write, input: {word: a}}]
  - {expect: [{contains: write a, failed: false}], text: ok}
`, caisson.Budget{})
	s.opts.Observe = nil
	var disarm func()
	write := s.opts.Tools["write"].(tool)
	write.do = func(_ context.Context, word string) (caisson.Result, error) {
		disarm = fault.Arm("ledger.commit.before", fault.ENOSPC, 1)
		return caisson.Result{Text: "write " + word}, nil
	}
	s.opts.Tools["write"] = write
	run := s.run(t)
	disarm()
	wantEnd(t, run, caisson.RunPaused, caisson.StopPaused)
	if !strings.Contains(run.Text, "no space") {
		t.Errorf("paused without the reason: %q", run.Text)
	}
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	if diff := cmp.Diff([]string{"write:rtest.1.1"}, s.effects(t)); diff != "" {
		t.Errorf("the call was done again: %s", diff)
	}
}

func TestLedgerFullWhenAnAnswerIsRecorded(t *testing.T) {
	s := newStage(t, "turns: [{text: some words}]", caisson.Budget{})
	var disarm func()
	s.onModel(func() { disarm = fault.Arm("ledger.commit.before", fault.ENOSPC, 1) })
	run := s.run(t)
	disarm()
	wantEnd(t, run, caisson.RunPaused, caisson.StopPaused)
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
}

func TestTurnEndFault(t *testing.T) {
	s := newStage(t, twoTurns, caisson.Budget{})
	fails := true
	s.opts.TurnEnd = func(context.Context, caisson.Turn, airlock.Settled) error {
		if fails {
			return errors.New("the workspace is not the one on record")
		}
		return nil
	}
	run := s.run(t)
	wantEnd(t, run, caisson.RunPaused, caisson.StopPaused)
	if !strings.Contains(run.Text, "workspace") {
		t.Errorf("paused without the reason: %q", run.Text)
	}
	fails = false
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	if diff := cmp.Diff([]string{"read:rtest.1.1", "write:rtest.1.2"}, s.effects(t)); diff != "" {
		t.Error(diff)
	}
}

func TestLeaseLost(t *testing.T) {
	s := newStage(t, twoTurns, caisson.Budget{})
	s.opts.TurnEnd = func(ctx context.Context, _ caisson.Turn, _ airlock.Settled) error {
		run, err := s.ledger.Run(ctx, s.id)
		if err == nil {
			_, err = s.ledger.TakeLease(ctx, s.id, run.Lease.Instance, run.Lease.Fence)
		}
		return err
	}
	_, err := s.life(t.Context())
	if caisson.CodeOf(err) != caisson.CodeLeaseLost {
		t.Fatalf("got %v", err)
	}
	if len(s.asked(t)) != 1 {
		t.Errorf("asked %d times", len(s.asked(t)))
	}
}

// While only a person is waited for, the run says so and its clock stands still.
func TestWaitingLiveDoesNotCount(t *testing.T) {
	s := newStage(t, `
turns:
  - calls: [{tool: write, input: {word: review}}]
  - text: ok
`, caisson.Budget{Wall: time.Hour})
	s.lock.ParkAfter = time.Hour
	ended := make(chan caisson.Run, 1)
	go func() {
		run, err := s.life(t.Context())
		if err != nil {
			t.Error(err)
		}
		ended <- run
	}()
	for seen := int64(0); ; {
		run, err := s.ledger.Run(t.Context(), s.id)
		if err != nil {
			t.Fatal(err)
		}
		if run.State == caisson.RunWaiting {
			if !run.ActiveSince.IsZero() {
				t.Error("its clock runs while it waits")
			}
			break
		}
		if seen, err = s.ledger.Wait(t.Context(), s.id, max(seen, run.Events)); err != nil {
			t.Fatal(err)
		}
	}
	s.decide(t, caisson.Decision{Kind: caisson.Approve})
	wantEnd(t, <-ended, caisson.RunSucceeded, caisson.StopEndTurn)
}
