package ledgertest

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// longText is longer than what stands inline.
var longText = strings.Repeat("words & <more> words\n", 100)

func testAllowedCall(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{Calls: 2})
	events := must(f.Run(ctx, "r"))(t).Events
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, longText)
	executor := Instance("x").Process
	started := must(f.StartCall(ctx, drive, caisson.CallStart{
		Call: call, Verdict: verdict(caisson.Allow), Executor: &executor, Sandbox: "s1", Reserve: caisson.Amount{Calls: 1, Output: 100},
	}))(t)
	equal(t, "state", started.State, caisson.CallStarted)
	equal(t, "value", started.Call, call)
	equal(t, "effect", started.Effect, caisson.EffectIDOf(call.ID))
	equal(t, "executor", started.Executor, &executor)
	equal(t, "attempts", started.Attempts, 1)
	_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.JudgeCall(ctx, drive, call, verdict(caisson.Allow))
	wantCode(t, err, caisson.CodeStateInvalid)

	result := caisson.Result{Outcome: caisson.OutcomeDone, Text: longText, Summary: "exit 0", Data: json.RawMessage(`{"exit":0}`), Bytes: 1 << 60}
	settled := must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Result: result, Used: caisson.Amount{Calls: 1, Output: 7}}))(t)
	equal(t, "result", settled.Result, &result)
	equal(t, "outcome", settled.State.Outcome(), caisson.OutcomeDone)
	equal(t, "read", must(f.Call(ctx, call.ID))(t), settled)
	equal(t, "events", must(f.Run(ctx, "r"))(t).Events, events+2)
	equal(t, "pool", must(f.Pool(ctx, "r"))(t), caisson.Pool{Limit: caisson.Budget{Calls: 2}, Used: caisson.Amount{Calls: 1, Output: 7}})
	_, err = f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeFailed})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.Call(ctx, "r.9.9")
	wantCode(t, err, caisson.CodeCallUnknown)
}

func testRefusedCall(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	deny := verdict(caisson.Deny)
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "rm")
	refused := caisson.Result{Error: caisson.Errorf(caisson.CodeRefused, "no")}
	record := must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Verdict: &deny, Outcome: caisson.OutcomeRefused, Result: refused}))(t)
	equal(t, "verdict", record.Verdict, &deny)
	equal(t, "error", caisson.CodeOf(record.Result.Error), caisson.CodeRefused)
	for _, outcome := range []caisson.Outcome{caisson.OutcomeDone, caisson.OutcomeFailed, caisson.OutcomeUnknown, "started", "judged", ""} {
		_, err := f.SettleCall(ctx, drive, caisson.CallSettle{Call: NewCall("r", 1, 2, caisson.EffectRead, "x"), Outcome: outcome})
		wantCode(t, err, caisson.CodeStateInvalid)
	}
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: NewCall("r", 1, 2, caisson.EffectRead, "x"), Outcome: caisson.OutcomeNotStarted}))(t)

	for name, change := range map[string]func(*caisson.Call){
		"of another run": func(c *caisson.Call) { c.ID, c.Run = "q.1.3", "q" },
		"of no run":      func(c *caisson.Call) { c.ID = "r" },
	} {
		call := NewCall("r", 1, 3, caisson.EffectRead, "x")
		change(&call)
		_, err := f.JudgeCall(ctx, drive, Summed(call), verdict(caisson.Allow))
		if caisson.CodeOf(err) != caisson.CodeCallUnknown {
			t.Errorf("%s: %v", name, err)
		}
	}
	forged := NewCall("r", 1, 3, caisson.EffectRead, "x")
	forged.Input = json.RawMessage(`{"command":"y"}`)
	_, err := f.JudgeCall(ctx, drive, forged, verdict(caisson.Allow))
	wantCode(t, err, caisson.CodeCallInvalid)
	must(f.JudgeCall(ctx, drive, NewCall("r", 1, 3, caisson.EffectRead, "x"), verdict(caisson.Allow)))(t)
	_, err = f.JudgeCall(ctx, drive, NewCall("r", 1, 3, caisson.EffectRead, "y"), verdict(caisson.Allow))
	wantCode(t, err, caisson.CodeCallUnknown)
	_, err = f.StartCall(ctx, drive, caisson.CallStart{Call: NewCall("r", 1, 3, caisson.EffectRead, "y"), Verdict: verdict(caisson.Allow)})
	wantCode(t, err, caisson.CodeCallUnknown)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: NewCall("r", 1, 3, caisson.EffectRead, "x"), Outcome: caisson.OutcomeCancelled}))(t)
}

func testStartsAgain(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	for i, c := range []struct {
		effect caisson.Effect
		again  bool
	}{
		{caisson.EffectRead, true}, {caisson.EffectIdempotent, true}, {caisson.EffectReconcilable, false}, {caisson.EffectUnsafe, false},
	} {
		start := caisson.CallStart{Call: NewCall("r", 1, i+1, c.effect, "x"), Verdict: verdict(caisson.Allow), Reserve: caisson.Amount{Calls: 1}}
		first := must(f.StartCall(ctx, drive, start))(t)
		second, err := f.StartCall(ctx, drive, start)
		if !c.again {
			wantCode(t, err, caisson.CodeStateInvalid)
		} else {
			ok(t, err)
			equal(t, "effect id", second.Effect, first.Effect)
			equal(t, "attempts", second.Attempts, 2)
			equal(t, "charged in full", second.Used, caisson.Amount{Calls: 1})
		}
		must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: start.Call, Outcome: caisson.OutcomeFailed, Used: caisson.Amount{Calls: 1}}))(t)
	}
	equal(t, "pool", must(f.Pool(ctx, "r"))(t), caisson.Pool{Used: caisson.Amount{Calls: 6}})
}

// R22 (agent-os 823): children that start at once must not overspend together.
func testCaseR22(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.driven(t, "root", caisson.Budget{Tokens: 300})
	var drives []caisson.Drive
	for _, id := range []caisson.RunID{"a", "b", "c", "d", "e", "f", "g", "h"} {
		drives = append(drives, f.child(t, id, "root", "root", caisson.Budget{}))
	}
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	errs := make([]error, len(drives))
	var all sync.WaitGroup
	for i, drive := range drives {
		l := f.Ledger
		if i%2 == 1 {
			l = other
		}
		all.Go(func() { _, errs[i] = l.AskTurn(ctx, drive, caisson.Turn{Reserve: caisson.Amount{Tokens: 100}}) })
	}
	all.Wait()
	allowed := 0
	for _, err := range errs {
		if err == nil {
			allowed++
			continue
		}
		wantCode(t, err, caisson.CodeBudgetExceeded)
	}
	equal(t, "allowed", allowed, 3)
	equal(t, "pool", must(f.Pool(ctx, "h"))(t), caisson.Pool{Limit: caisson.Budget{Tokens: 300}, Reserved: caisson.Amount{Tokens: 300}})
}

func testChildren(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.driven(t, "root", caisson.Budget{Calls: 10})
	mid := f.child(t, "mid", "root", "root", caisson.Budget{Calls: 3})
	leaf := f.child(t, "leaf", "mid", "root", caisson.Budget{})
	start := func(drive caisson.Drive, n int, reserve caisson.Amount) error {
		_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: NewCall(drive.Run, 1, n, caisson.EffectRead, "x"), Verdict: verdict(caisson.Allow), Reserve: reserve})
		return err
	}
	ok(t, start(mid, 1, caisson.Amount{Calls: 1}))
	ok(t, start(leaf, 1, caisson.Amount{Calls: 2}))
	err := start(leaf, 2, caisson.Amount{Calls: 1})
	wantCode(t, err, caisson.CodeBudgetExceeded)
	equal(t, "whose budget", caisson.AsError(err).Detail["run"], any("mid"))
	ok(t, start(leaf, 2, caisson.Amount{Output: 5}))
	for _, reserve := range []caisson.Amount{{Calls: -1}, {Tokens: 1 << 62}} {
		wantCode(t, start(leaf, 3, reserve), caisson.CodeLimitInvalid)
	}
	equal(t, "tree", must(f.Pool(ctx, "leaf"))(t), caisson.Pool{Limit: caisson.Budget{Calls: 10}, Reserved: caisson.Amount{Calls: 3, Output: 5}})
	must(f.SettleCall(ctx, leaf, caisson.CallSettle{Call: NewCall("leaf", 1, 1, caisson.EffectRead, "x"), Outcome: caisson.OutcomeUnknown, Used: caisson.Amount{Calls: 2}}))(t)
	wantCode(t, start(mid, 2, caisson.Amount{Calls: 1}), caisson.CodeBudgetExceeded)
}

func testOrder(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	nested := NewCall("r", 2, 2, caisson.EffectRead, "x")
	nested.ID, nested.Parent = nested.ID.Nested(1), nested.ID
	for _, call := range []caisson.Call{
		NewCall("r", 2, 10, caisson.EffectRead, "x"), NewCall("r", 10, 1, caisson.EffectRead, "x"), Summed(nested),
		NewCall("r", 2, 2, caisson.EffectRead, "x"), NewCall("r", 1, 3, caisson.EffectRead, "x"),
	} {
		must(f.JudgeCall(ctx, drive, call, verdict(caisson.Allow)))(t)
	}
	var ids []caisson.CallID
	for _, record := range must(f.Calls(ctx, "r"))(t) {
		ids = append(ids, record.Call.ID)
	}
	equal(t, "order", ids, []caisson.CallID{"r.1.3", "r.2.2", "r.2.2.1", "r.2.10", "r.10.1"})
}

func testStartNeedsApproval(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "push")
	start := caisson.CallStart{Call: call, Verdict: verdict(caisson.ReviewIt)}
	startWith := func(change func(*caisson.CallStart)) error {
		s := start
		change(&s)
		_, err := f.StartCall(ctx, drive, s)
		return err
	}
	wantCode(t, startWith(func(s *caisson.CallStart) {}), caisson.CodeRefused)
	review := f.ask(t, drive, call)
	start.Review = review.ID
	wantCode(t, startWith(func(s *caisson.CallStart) {}), caisson.CodeStateInvalid)
	wantCode(t, startWith(func(s *caisson.CallStart) { s.Review, s.Verdict = "", verdict(caisson.Allow) }), caisson.CodeStateInvalid)
	must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, time.Hour))(t)
	equal(t, "state", must(f.Call(ctx, call.ID))(t).State, caisson.CallDecided)

	wantCode(t, startWith(func(s *caisson.CallStart) { s.Review = "" }), caisson.CodeRefused)
	wantCode(t, startWith(func(s *caisson.CallStart) { s.Review, s.Verdict = "", verdict(caisson.Allow) }), caisson.CodeStateInvalid)
	wantCode(t, startWith(func(s *caisson.CallStart) { s.Verdict = verdict(caisson.Deny) }), caisson.CodeRefused)
	wantCode(t, startWith(func(s *caisson.CallStart) { s.Verdict = caisson.Verdict{} }), caisson.CodeRefused)
	wantCode(t, startWith(func(s *caisson.CallStart) { s.Review = "q99" }), caisson.CodeNotFound)
	wantCode(t, startWith(func(s *caisson.CallStart) { s.Call = NewCall("r", 1, 1, caisson.EffectUnsafe, "push -f") }), caisson.CodeReviewDigestMismatch)
	must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunWaiting}))(t)
	wantCode(t, startWith(func(s *caisson.CallStart) {}), caisson.CodeStateInvalid)
	must(f.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunRunning}))(t)

	record := must(f.StartCall(ctx, drive, start))(t)
	equal(t, "review", record.Review, review.ID)
	equal(t, "consumed", must(f.Review(ctx, review.ID))(t).Consumed, true)
	wantCode(t, startWith(func(s *caisson.CallStart) {}), caisson.CodeStateInvalid)
}

func testForeignReview(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive, other := f.driven(t, "r", caisson.Budget{}), f.driven(t, "o", caisson.Budget{})
	mine, theirs := NewCall("r", 1, 1, caisson.EffectUnsafe, "x"), NewCall("o", 1, 1, caisson.EffectUnsafe, "x")
	review := f.ask(t, other, theirs)
	f.ask(t, drive, mine)
	must(f.Decide(ctx, review.ID, theirs.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, time.Hour))(t)
	_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: mine, Verdict: verdict(caisson.ReviewIt), Review: review.ID})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.EndReview(ctx, drive, review.ID, caisson.ReviewWithdrawn, "not mine")
	wantCode(t, err, caisson.CodeNotFound)
}
