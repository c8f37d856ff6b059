// Package ledgertest is the conformance suite of [caisson.Ledger]: what every
// implementation must do, whatever it keeps its record in.
package ledgertest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
)

// Options are what the suite needs of a ledger that it opens.
type Options struct {
	Now func() time.Time // the wall clock
}

// Opener prepares an empty store for one test and returns a function that opens
// a ledger on it, each time another one. Failures end the test.
type Opener func(t *testing.T, opts Options) func() caisson.Ledger

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for name, test := range map[string]func(*testing.T, *fixture){
		"Runs":                   testRuns,
		"Leases":                 testLeases,
		"CancelFirstCauseWins":   testCancel,
		"ActiveTime":             testActive,
		"Turns":                  testTurns,
		"AllowedCall":            testAllowedCall,
		"RefusedCall":            testRefusedCall,
		"StartsAgain":            testStartsAgain,
		"StartNeedsApproval":     testStartNeedsApproval,
		"Modify":                 testModify,
		"ApprovalEnds":           testApprovalEnds,
		"Question":               testQuestion,
		"UnknownEnd":             testUnknownEnd,
		"ReviewEnds":             testReviewEnds,
		"Grants":                 testGrants,
		"TestCase_R04":           testCaseR04,
		"TestCase_R08":           testCaseR08,
		"TestCase_R22":           testCaseR22,
		"ChildrenShareBudget":    testChildren,
		"TerminalRun":            testTerminalRun,
		"Workspaces":             testWorkspaces,
		"Sandboxes":              testSandboxes,
		"EventsAndContent":       testEvents,
		"Wait":                   testWait,
		"ClockNeverGoesBack":     testClock,
		"ErrorsChangeNothing":    testErrorsChangeNothing,
		"EverythingAfterReopen":  testReopen,
		"ManyRunsAtOnce":         testManyRuns,
		"ContextsEnd":            testContexts,
		"CloseTwice":             testClose,
		"OrderOfCalls":           testOrder,
		"AppendOnlyOwnKinds":     testAppendKinds,
		"Note":                   testNote,
		"DecisionsBelongToCalls": testForeignReview,
		"Channel":                testChannel,
		"Requests":               testRequests,
		"RequestIsTakenOnce":     testTakenOnce,
		"RequestCalls":           testRequestCalls,
		"RequestsOfEndedRun":     testRequestsEnd,
		"ChannelIsFenced":        testChannelFence,
		"Tasks":                  testTasks,
		"TaskKey":                testTaskKey,
		"TaskBranch":             testTaskBranch,
		"TaskNew":                testTaskNew,
		"TaskWork":               testTaskWork,
		"TaskEditsAtOnce":        testTaskEdits,
		"TaskEditThatErrs":       testTaskEditErrs,
		"TaskContent":            testTaskContent,
		"EditByCall":             testEditByCall,
		"EditByCallThatErrs":     testEditByCallErrs,
		"EditByCallThatKeeps":    testEditByCallMost,
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}}
			f.open = open(t, Options{Now: f.clock.Now})
			f.Ledger = f.open()
			t.Cleanup(func() {
				if err := f.Check(context.WithoutCancel(t.Context())); err != nil && caisson.CodeOf(err) != caisson.CodeStateInvalid {
					t.Errorf("check after the test: %v", err)
				}
				if err := f.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			test(t, f)
		})
	}
}

// clock is a wall clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type fixture struct {
	caisson.Ledger
	clock *clock
	open  func() caisson.Ledger
}

// must ends the test on an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", caisson.CodeOf(err), err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", caisson.CodeOf(err), err)
	}
}

func wantCode(t *testing.T, err error, code caisson.Code) {
	t.Helper()
	if got := caisson.CodeOf(err); got != code {
		t.Fatalf("got code %q (%v), want %q", got, err, code)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// Instance is a process that tests lease to.
func Instance(id string) caisson.Instance {
	return caisson.Instance{
		ID: caisson.InstanceID(id), Lock: "/run/" + id + ".lock", Program: "test",
		Process: caisson.ProcessIdentity{Host: "h", Boot: "b", PIDNS: 1<<63 + 1, PID: 7, Start: 1<<63 + 2},
		Started: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC),
	}
}

// driven creates a run that is running under a lease.
func (f *fixture) driven(t *testing.T, id caisson.RunID, budget caisson.Budget) caisson.Drive {
	t.Helper()
	return f.child(t, id, "", id, budget)
}

func (f *fixture) child(t *testing.T, id, parent, root caisson.RunID, budget caisson.Budget) caisson.Drive {
	t.Helper()
	must(f.CreateRun(t.Context(), id, Spec(id, parent, root, budget)))(t)
	return f.drive(t, id)
}

func (f *fixture) drive(t *testing.T, id caisson.RunID) caisson.Drive {
	t.Helper()
	ok(t, f.PutInstance(t.Context(), Instance("i1")))
	lease := must(f.TakeLease(t.Context(), id, "i1", 0))(t)
	drive := caisson.Drive{Run: id, Fence: lease.Fence}
	must(f.MoveRun(t.Context(), drive, caisson.RunMove{To: caisson.RunRunning}))(t)
	return drive
}

// Spec is a spec with every kind of value in it.
func Spec(id, parent, root caisson.RunID, budget caisson.Budget) caisson.RunSpec {
	return caisson.RunSpec{
		Prompt: "do <this> & that", Argv: []caisson.Bytes{"a", "\xff\xfe"}, Model: "script/x", Engine: "namespace", Preset: "sandboxed",
		OnUnknown: "ask", Parent: parent, Root: root, Budget: budget, Dir: "/d", By: "alice",
		Limits: caisson.Limits{Memory: 1 << 60},
	}
}

// NewCall prepares a call as an airlock would.
func NewCall(run caisson.RunID, turn, n int, effect caisson.Effect, input string) caisson.Call {
	call := caisson.Call{
		ID: caisson.NewCallID(run, turn, n), Run: run, Turn: turn, Tool: caisson.ToolRef{Name: "shell"}, Effect: effect,
		Reach: caisson.ReachInside, SchemaDigest: caisson.DigestOf([]byte("schema")), Facets: caisson.Facets{Lines: []string{input}},
	}
	raw, err := caisson.CanonicalOf(map[string]string{"command": input})
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	call.Input = json.RawMessage(raw)
	return Summed(call)
}

// Summed gives a call its digests.
func Summed(call caisson.Call) caisson.Call {
	var err error
	if call.InputDigest, err = call.SumInput(); err != nil {
		panic(err) // its input is canonical
	}
	if call.Digest, err = call.Sum(); err != nil {
		panic(err)
	}
	return call
}

// Verdicts, as a gate gives them.
func verdict(ruling caisson.Ruling) caisson.Verdict {
	return caisson.Verdict{
		Ruling: ruling, Layer: "preset", Rule: "default", Reason: "because the preset says so in all cases of this kind",
		RuleDigest: caisson.DigestOf([]byte("rule")), PolicyDigest: caisson.DigestOf([]byte("policy")),
	}
}

// ask opens a review of a call.
func (f *fixture) ask(t *testing.T, drive caisson.Drive, call caisson.Call) caisson.Review {
	t.Helper()
	return must(f.AskReview(t.Context(), drive, caisson.Review{
		Call: call, Kind: caisson.ReviewCall, Verdict: verdict(caisson.ReviewIt), Schema: json.RawMessage(`{"type":"object"}`), Preview: "+1 −0",
	}, time.Hour))(t)
}
