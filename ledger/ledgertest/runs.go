package ledgertest

import (
	"context"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

func testRuns(t *testing.T, f *fixture) {
	ctx := t.Context()
	spec := Spec("ra", "", "ra", caisson.Budget{Tokens: 10, Wall: 400 * 24 * time.Hour})
	spec.Budget.Wall = 90 * 24 * time.Hour
	run := must(f.CreateRun(ctx, "ra", spec))(t)
	equal(t, "spec", run.Spec, spec)
	equal(t, "state", run.State, caisson.RunPending)
	equal(t, "events", run.Events, 1)
	equal(t, "created", run.Created, f.clock.Now().UTC().Truncate(time.Microsecond))
	equal(t, "read", must(f.Run(ctx, "ra"))(t), run)

	_, err := f.CreateRun(ctx, "ra", spec)
	wantCode(t, err, caisson.CodeAlreadyExists)
	for _, id := range []caisson.RunID{"", "a.b"} {
		_, err = f.CreateRun(ctx, id, spec)
		wantCode(t, err, caisson.CodeUsage)
	}
	_, err = f.CreateRun(ctx, "rb", Spec("rb", "nobody", "ra", caisson.Budget{}))
	wantCode(t, err, caisson.CodeNotFound)
	_, err = f.CreateRun(ctx, "rb", Spec("rb", "", "ra", caisson.Budget{}))
	wantCode(t, err, caisson.CodeUsage)
	_, err = f.CreateRun(ctx, "rb", Spec("rb", "", "rb", caisson.Budget{Tokens: -1}))
	wantCode(t, err, caisson.CodeLimitInvalid)
	_, err = f.Run(ctx, "rb")
	wantCode(t, err, caisson.CodeNotFound)
	_, err = f.Run(ctx, "")
	wantCode(t, err, caisson.CodeNotFound)

	must(f.CreateRun(ctx, "rb", Spec("rb", "ra", "ra", caisson.Budget{})))(t)
	f.driven(t, "sc", caisson.Budget{})
	for _, c := range []struct {
		filter caisson.RunFilter
		want   []caisson.RunID
	}{
		{caisson.RunFilter{}, []caisson.RunID{"sc", "rb", "ra"}},
		{caisson.RunFilter{Limit: 2}, []caisson.RunID{"sc", "rb"}},
		{caisson.RunFilter{Prefix: "r"}, []caisson.RunID{"rb", "ra"}},
		{caisson.RunFilter{Prefix: "%"}, nil},
		{caisson.RunFilter{Parent: "ra"}, []caisson.RunID{"rb"}},
		{caisson.RunFilter{States: []caisson.RunState{caisson.RunRunning, caisson.RunFailed}}, []caisson.RunID{"sc"}},
		{caisson.RunFilter{IDs: []caisson.RunID{"ra", "x"}, States: []caisson.RunState{caisson.RunPending}}, []caisson.RunID{"ra"}},
	} {
		var got []caisson.RunID
		for _, run := range must(f.Runs(ctx, c.filter))(t) {
			got = append(got, run.ID)
		}
		equal(t, "runs", got, c.want)
	}
}

func testLeases(t *testing.T, f *fixture) {
	ctx := t.Context()
	must(f.CreateRun(ctx, "r", Spec("r", "", "r", caisson.Budget{})))(t)
	_, err := f.TakeLease(ctx, "r", "nobody", 0)
	wantCode(t, err, caisson.CodeNotFound)
	_, err = f.Instance(ctx, "i1")
	wantCode(t, err, caisson.CodeNotFound)
	for _, id := range []string{"i1", "i2", "i1"} {
		ok(t, f.PutInstance(ctx, Instance(id)))
	}
	equal(t, "instance", must(f.Instance(ctx, "i1"))(t), Instance("i1"))
	_, err = f.TakeLease(ctx, "none", "i1", 0)
	wantCode(t, err, caisson.CodeNotFound)
	wantCode(t, f.Append(ctx, caisson.Drive{Run: "r"}, caisson.EventNote, 1), caisson.CodeLeaseLost)

	lease := must(f.TakeLease(ctx, "r", "i1", 0))(t)
	equal(t, "fence", lease.Fence, caisson.Fence(1))
	equal(t, "lease", must(f.Run(ctx, "r"))(t).Lease, lease)
	_, err = f.TakeLease(ctx, "r", "i2", 0)
	wantCode(t, err, caisson.CodeLeaseHeld)
	first := caisson.Drive{Run: "r", Fence: 1}
	ok(t, f.Append(ctx, first, caisson.EventNote, "mine"))

	second := caisson.Drive{Run: "r", Fence: must(f.TakeLease(ctx, "r", "i2", 1))(t).Fence}
	for _, stale := range []caisson.Drive{first, {Run: "r", Fence: 0}, {Run: "r", Fence: 3}} {
		wantCode(t, f.Append(ctx, stale, caisson.EventNote, "late"), caisson.CodeLeaseLost)
		_, err = f.MoveRun(ctx, stale, caisson.RunMove{To: caisson.RunRunning})
		wantCode(t, err, caisson.CodeLeaseLost)
		wantCode(t, f.ReleaseLease(ctx, stale), caisson.CodeLeaseLost)
		_, err = f.StartCall(ctx, stale, caisson.CallStart{Call: NewCall("r", 1, 1, caisson.EffectUnsafe, "x"), Verdict: verdict(caisson.Allow)})
		wantCode(t, err, caisson.CodeLeaseLost)
	}
	equal(t, "lease", must(f.Lease(ctx, "r"))(t), caisson.Lease{Run: "r", Instance: "i2", Fence: second.Fence})
	ok(t, f.ReleaseLease(ctx, second))
	equal(t, "lease after release", must(f.Lease(ctx, "r"))(t), caisson.Lease{Run: "r", Fence: second.Fence})
	for _, none := range []caisson.RunID{"none", ""} {
		_, err = f.Lease(ctx, none)
		wantCode(t, err, caisson.CodeNotFound)
	}
	wantCode(t, f.Append(ctx, second, caisson.EventNote, "after"), caisson.CodeLeaseLost)
	equal(t, "released", must(f.Run(ctx, "r"))(t).Lease.Instance, "")
	equal(t, "fence after release", must(f.TakeLease(ctx, "r", "i1", 2))(t).Fence, caisson.Fence(3))
}

func testCancel(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	run := must(f.AskCancel(ctx, "r", caisson.CauseUser, "alice"))(t)
	equal(t, "state", run.State, caisson.RunRunning)
	run = must(f.AskCancel(ctx, "r", caisson.CauseDeadline, "bob"))(t)
	equal(t, "first cause", []string{string(run.CancelAsked), run.CancelBy}, []string{"user", "alice"})
	_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: NewCall("r", 1, 1, caisson.EffectRead, "x"), Verdict: verdict(caisson.Allow)})
	wantCode(t, err, caisson.CodeCancelled)
	must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunCancelling}))(t)
	_, err = f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunSucceeded, Stop: caisson.StopEndTurn})
	wantCode(t, err, caisson.CodeStateInvalid)
	run = must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunCancelled, Stop: caisson.StopCancelled, Cause: run.CancelAsked}))(t)
	equal(t, "stop", run.Stop, caisson.StopCancelled)
	must(f.AskCancel(ctx, "r", caisson.CauseUser, "again"))(t)

	must(f.CreateRun(ctx, "p", Spec("p", "", "p", caisson.Budget{})))(t)
	run = must(f.AskCancel(ctx, "p", caisson.CauseUser, "alice"))(t)
	equal(t, "a pending run", run.State, caisson.RunCancelled)
	_, err = f.AskCancel(ctx, "nobody", caisson.CauseUser, "alice")
	wantCode(t, err, caisson.CodeNotFound)
	_, err = f.AskCancel(ctx, "p", "", "alice")
	wantCode(t, err, caisson.CodeUsage)
	done := f.driven(t, "d", caisson.Budget{})
	must(f.MoveRun(ctx, done, caisson.RunMove{To: caisson.RunSucceeded, Stop: caisson.StopEndTurn}))(t)
	_, err = f.AskCancel(ctx, "d", caisson.CauseUser, "alice")
	wantCode(t, err, caisson.CodeStateInvalid)
}

func testActive(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	f.clock.add(10 * time.Second)
	run := must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunWaiting}))(t)
	equal(t, "active after running", run.Active, 10*time.Second)
	f.clock.add(time.Hour)
	run = must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunRunning}))(t)
	equal(t, "waiting does not count", run.Active, 10*time.Second)
	f.clock.add(5 * time.Second)
	ok(t, f.Append(ctx, drive, caisson.EventNote, "the last sign of life"))
	f.clock.add(time.Hour) // dead, and nobody knows since when
	lease := must(f.TakeLease(ctx, "r", "i1", drive.Fence))(t)
	drive.Fence = lease.Fence
	equal(t, "clock stopped at the last event", must(f.Run(ctx, "r"))(t).Active, 15*time.Second)
	f.clock.add(time.Second)
	run = must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunSucceeded, Stop: caisson.StopEndTurn, Text: "bye", Exit: 3}))(t)
	equal(t, "all lives", run.Active, 16*time.Second)
	equal(t, "text", run.Text, "bye")
	equal(t, "exit", run.Exit, 3)
}

func testTerminalRun(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	end := caisson.RunMove{To: caisson.RunSucceeded, Stop: caisson.StopEndTurn}
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	must(f.JudgeCall(ctx, drive, call, verdict(caisson.Allow)))(t)
	_, err := f.MoveRun(ctx, drive, end)
	wantCode(t, err, caisson.CodeStateInvalid)
	must(f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow), Reserve: caisson.Amount{Calls: 1}}))(t)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeUnknown, Used: caisson.Amount{Calls: 1}}))(t)
	review := must(f.AskReview(ctx, drive, caisson.Review{Call: call, Kind: caisson.ReviewUnknown, Verdict: verdict(caisson.ReviewIt)}, time.Hour))(t)
	_, err = f.MoveRun(ctx, drive, end)
	wantCode(t, err, caisson.CodeStateInvalid)
	must(f.EndReview(ctx, drive, review.ID, caisson.ReviewWithdrawn, "enough"))(t)
	must(f.AskTurn(ctx, drive, caisson.Turn{Reserve: caisson.Amount{Tokens: 5}}))(t)
	must(f.MoveRun(ctx, drive, end))(t)
	pool := must(f.Pool(ctx, "r"))(t)
	equal(t, "what was reserved is given back", pool.Reserved, caisson.Amount{})
	equal(t, "used", pool.Used, caisson.Amount{Calls: 1})

	_, err = f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunFailed})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.SettleCall(ctx, drive, caisson.CallSettle{Call: NewCall("r", 1, 2, caisson.EffectRead, "x"), Outcome: caisson.OutcomeRefused})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.AskTurn(ctx, drive, caisson.Turn{})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.CreateRun(ctx, "child", Spec("child", "r", "r", caisson.Budget{}))
	wantCode(t, err, caisson.CodeStateInvalid)
	ok(t, f.Append(ctx, drive, caisson.EventNote, "its lease can still be used to tell what was tidied up"))
	ok(t, f.ReleaseLease(ctx, drive))
}

func testClock(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	f.clock.add(time.Minute)
	ok(t, f.Append(ctx, drive, caisson.EventNote, 1))
	high := f.Now()
	f.clock.add(-time.Hour)
	ok(t, f.Append(ctx, drive, caisson.EventNote, 2))
	events := must(f.Events(ctx, "r", 0, 0))(t)
	last := events[len(events)-1]
	if last.At.Before(events[len(events)-2].At) {
		t.Fatalf("event at %v follows one at %v", last.At, events[len(events)-2].At)
	}
	if f.Now().Before(high) {
		t.Fatalf("the clock went back from %v to %v", high, f.Now())
	}
	equal(t, "microseconds", last.At, last.At.Truncate(time.Microsecond))
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	if other.Now().Before(high) {
		t.Fatalf("another ledger says %v after %v", other.Now(), high)
	}
}

func testTurns(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{Tokens: 100})
	input := []caisson.Message{{Role: caisson.RoleUser, Parts: []caisson.Part{{Kind: caisson.PartText, Text: "hello <world>"}}}}
	turn := must(f.AskTurn(ctx, drive, caisson.Turn{N: 1, Input: input, Reserve: caisson.Amount{Tokens: 60, Turns: 1}}))(t)
	equal(t, "first", []int{turn.N, turn.Attempt}, []int{1, 1})
	equal(t, "input", turn.Input, input)
	_, err := f.AskTurn(ctx, drive, caisson.Turn{})
	wantCode(t, err, caisson.CodeStateInvalid)
	equal(t, "reserved", must(f.Pool(ctx, "r"))(t).Reserved, caisson.Amount{Tokens: 60, Turns: 1})
	turn = must(f.AbandonTurn(ctx, drive, 1, "cut", "half a sen", caisson.Amount{Tokens: 60}))(t)
	equal(t, "abandoned", turn.State, caisson.TurnAbandoned)
	_, err = f.AskTurn(ctx, drive, caisson.Turn{N: 2})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.AskTurn(ctx, drive, caisson.Turn{Reserve: caisson.Amount{Tokens: 41}})
	wantCode(t, err, caisson.CodeBudgetExceeded)
	equal(t, "stop", caisson.AsError(err).Detail["stop"], any(string(caisson.StopTokenBudget)))
	turn = must(f.AskTurn(ctx, drive, caisson.Turn{Reserve: caisson.Amount{Tokens: 40}}))(t)
	equal(t, "again", []int{turn.N, turn.Attempt}, []int{1, 2})

	answer := caisson.ModelAnswer{
		Message: caisson.Message{Role: caisson.RoleAssistant, Parts: []caisson.Part{
			{Kind: caisson.PartText, Text: longText}, {Kind: caisson.PartCall, Tool: "shell", Input: `{"command":"ls"`, ProviderID: "p1"},
		}},
		Usage: caisson.Usage{Input: 10, Output: 20}, Finish: caisson.FinishCalls, Model: "script/x",
	}
	_, err = f.AnswerTurn(ctx, drive, 2, answer, caisson.Amount{})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.AnswerTurn(ctx, drive, 1, answer, caisson.Amount{Tokens: -1})
	wantCode(t, err, caisson.CodeLimitInvalid)
	turn = must(f.AnswerTurn(ctx, drive, 1, answer, caisson.Amount{Tokens: 30, Turns: 1}))(t)
	equal(t, "answer", turn.Answer, &answer)
	_, err = f.AbandonTurn(ctx, drive, 1, "late", "", caisson.Amount{})
	wantCode(t, err, caisson.CodeStateInvalid)
	equal(t, "pool", must(f.Pool(ctx, "r"))(t), caisson.Pool{Limit: caisson.Budget{Tokens: 100}, Used: caisson.Amount{Tokens: 90, Turns: 1}})

	must(f.AskTurn(ctx, drive, caisson.Turn{N: 2}))(t)
	turns := must(f.Turns(ctx, "r"))(t)
	equal(t, "last attempts", len(turns), 2)
	equal(t, "first turn", turns[0], turn)
	equal(t, "turns", must(f.Run(ctx, "r"))(t).Turns, 1)
	must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunWaiting}))(t)
	must(f.AbandonTurn(ctx, drive, 2, "stop", "", caisson.Amount{}))(t)
	_, err = f.AskTurn(ctx, drive, caisson.Turn{})
	wantCode(t, err, caisson.CodeStateInvalid)
}

func testContexts(t *testing.T, f *fixture) {
	drive := f.driven(t, "r", caisson.Budget{})
	before := must(f.Run(t.Context(), "r"))(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, f.Append(over, drive, caisson.EventNote, 1), caisson.CodeCancelled)
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	wantCode(t, f.Append(late, drive, caisson.EventNote, 1), caisson.CodeDeadline)
	_, err := f.Wait(late, "r", 1<<40)
	wantCode(t, err, caisson.CodeDeadline)
	equal(t, "run", must(f.Run(t.Context(), "r"))(t), before)
}

func testClose(t *testing.T, f *fixture) {
	other := f.open()
	drive := f.driven(t, "r", caisson.Budget{})
	ok(t, other.Close())
	ok(t, other.Close())
	if other.Append(t.Context(), drive, caisson.EventNote, 1) == nil {
		t.Fatal("a closed ledger was written")
	}
	if _, err := other.Run(t.Context(), "r"); err == nil {
		t.Fatal("a closed ledger was read")
	}
	ok(t, f.Append(t.Context(), drive, caisson.EventNote, 1))
}
