package sqlite_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// TestRandomOperations does what drivers and people could do, in any order, with
// values that fit and values that do not, from two ledgers on one file. Whatever
// is refused, the record must stay whole, and a refused write must leave the
// run's head as it was, unless it recorded a deadline.
func TestRandomOperations(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		opts := sqlite.Options{Path: filepath.Join(dir, fmt.Sprint(n), "ledger.db"), Now: func() time.Time { return now }}
		m := &machine{
			now: &now, fences: map[caisson.RunID]caisson.Fence{}, taken: map[asked]bool{}, begun: map[asked]bool{}, ended: map[asked]string{},
		}
		for range 2 {
			l, err := sqlite.Open(t.Context(), opts)
			if err != nil {
				rt.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			m.ledgers = append(m.ledgers, l)
		}
		if err := m.ledgers[0].PutInstance(t.Context(), ledgertest.Instance("i1")); err != nil {
			rt.Fatal(err)
		}
		if rapid.Bool().Draw(rt, "begun") {
			m.begin(t, rt)
		}
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			m.step(t, rt)
		}
		for _, run := range machineRuns {
			if err := m.requests(t, rt, m.ledgers[0], run); err != nil && caisson.CodeOf(err) != caisson.CodeNotFound {
				rt.Fatal(err)
			}
		}
		if err := m.ledgers[0].Check(t.Context()); err != nil {
			rt.Fatalf("%s: %v", caisson.CodeOf(err), err)
		}
	})
}

type machine struct {
	ledgers []caisson.Ledger
	now     *time.Time
	fences  map[caisson.RunID]caisson.Fence

	taken, begun map[asked]bool
	ended        map[asked]string // how
}

// begin makes two of the runs, running, so that the steps go deeper.
func (m *machine) begin(t *testing.T, rt *rapid.T) {
	for _, run := range machineRuns[:2] {
		drive, err := lead(t.Context(), m.ledgers[0], run, caisson.Budget{Tokens: 200})
		if err != nil {
			rt.Fatal(err)
		}
		m.fences[run] = drive.Fence
		if _, err := m.ledgers[0].OpenChannel(t.Context(), drive, 0); err != nil {
			rt.Fatal(err)
		}
	}
}

var machineRuns = []caisson.RunID{"a", "b", "c"}

func (m *machine) step(t *testing.T, rt *rapid.T) {
	ctx := t.Context()
	l := rapid.SampledFrom(m.ledgers).Draw(rt, "ledger")
	run := rapid.SampledFrom(machineRuns).Draw(rt, "run")
	head := func() caisson.Digest {
		r, _ := l.Run(ctx, run)
		return r.Head
	}
	before := head()
	err := m.operate(t, rt, l, run)
	if err == nil {
		return
	}
	switch caisson.CodeOf(err) {
	case caisson.CodeInternal, caisson.CodeLedgerDamaged, caisson.CodeLedgerBusy, caisson.CodeWriteFailed, caisson.CodeChainBroken:
		rt.Fatalf("%s: %v", caisson.CodeOf(err), err)
	case caisson.CodeReviewExpired:
	default:
		if head() != before {
			rt.Fatalf("%s: %v; yet something was written", caisson.CodeOf(err), err)
		}
	}
}

func (m *machine) operate(t *testing.T, rt *rapid.T, l caisson.Ledger, run caisson.RunID) error {
	ctx := t.Context()
	drive := caisson.Drive{Run: run, Fence: m.fences[run] - caisson.Fence(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1}).Draw(rt, "behind"))}
	amount := func(name string) caisson.Amount {
		return caisson.Amount{Tokens: rapid.Int64Range(0, 40).Draw(rt, name), Calls: 1}
	}
	effect := caisson.EffectUnsafe
	index := rapid.IntRange(1, 3).Draw(rt, "call")
	if index == 3 {
		effect = caisson.EffectRead
	}
	call := ledgertest.NewCall(run, 1, index, effect, rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(rt, "input"))
	verdict := caisson.Verdict{Ruling: rapid.SampledFrom([]caisson.Ruling{caisson.Allow, caisson.Allow, caisson.ReviewIt, caisson.Deny}).Draw(rt, "ruling")}
	review := rapid.SampledFrom([]caisson.ReviewID{"", "", "q1", "q2", "q3", "q4"}).Draw(rt, "review")
	operation := rapid.IntRange(0, 17+controlOperations).Draw(rt, "operation")
	if operation > 17 {
		return m.control(t, rt, l, drive, operation-18, amount)
	}
	switch operation {
	case 0, 1:
		parent, root := caisson.RunID(""), run
		if run == "c" {
			parent, root = "a", "a"
		}
		_, err := l.CreateRun(ctx, run, ledgertest.Spec(run, parent, root, caisson.Budget{Tokens: 200}))
		return err
	case 2, 3:
		lease, err := l.TakeLease(ctx, run, "i1", m.fences[run])
		if err == nil {
			m.fences[run] = lease.Fence
		}
		return err
	case 4, 5, 6:
		_, err := l.MoveRun(ctx, drive, caisson.RunMove{To: rapid.SampledFrom([]caisson.RunState{
			caisson.RunRunning, caisson.RunRunning, caisson.RunRunning, caisson.RunWaiting, caisson.RunCancelling, caisson.RunSucceeded, caisson.RunCancelled,
		}).Draw(rt, "to")})
		return err
	case 7:
		_, err := l.AskTurn(ctx, drive, caisson.Turn{Reserve: amount("reserve")})
		return err
	case 8:
		_, err := l.AnswerTurn(ctx, drive, rapid.IntRange(1, 3).Draw(rt, "turn"), caisson.ModelAnswer{}, amount("used"))
		return err
	case 9:
		_, err := l.AbandonTurn(ctx, drive, rapid.IntRange(1, 3).Draw(rt, "turn"), "cut", "te", amount("used"))
		return err
	case 10:
		_, err := l.JudgeCall(ctx, drive, call, verdict)
		return err
	case 11, 12:
		_, err := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict, Review: review, Reserve: amount("reserve")})
		return err
	case 13:
		_, err := l.SettleCall(ctx, drive, caisson.CallSettle{
			Call: call, Verdict: &verdict, Review: review, Used: amount("used"),
			Outcome: rapid.SampledFrom([]caisson.Outcome{
				caisson.OutcomeDone, caisson.OutcomeDone, caisson.OutcomeUnknown, caisson.OutcomeRefused, caisson.OutcomeCancelled, caisson.OutcomeNotStarted, "asked",
			}).Draw(rt, "outcome"),
		})
		return err
	case 14:
		_, err := l.AskReview(ctx, drive, caisson.Review{
			Call: call, Verdict: verdict, Question: &caisson.Question{Text: "?"},
			Kind: rapid.SampledFrom([]caisson.ReviewKind{caisson.ReviewCall, caisson.ReviewCall, caisson.ReviewQuestion, caisson.ReviewUnknown}).Draw(rt, "kind"),
		}, time.Hour)
		return err
	case 15:
		d := caisson.Decision{Kind: rapid.SampledFrom([]caisson.DecisionKind{caisson.Approve, caisson.Approve, caisson.Reject, caisson.Modify, caisson.Answer, caisson.Abort}).Draw(rt, "kind"), By: "p"}
		switch d.Kind {
		case caisson.Modify:
			d.Input = json.RawMessage(`{"command":"y"}`)
		case caisson.Answer:
			d.Options, d.Text = nil, "so"
		case caisson.Approve:
			d.Grant = &caisson.Grant{Command: "x"}
		case caisson.Reject, caisson.Abort:
		}
		// The review's own value, as a person who looked at it would.
		if q, err := l.Review(ctx, review); err == nil {
			_, err = l.Decide(ctx, review, q.Call.Digest, d, time.Hour)
			return err
		}
		_, err := l.Decide(ctx, review, call.Digest, d, time.Hour)
		return err
	case 16:
		*m.now = m.now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(rt, "minutes")) * time.Minute)
		_, err := l.EndReview(ctx, drive, review, rapid.SampledFrom([]caisson.ReviewState{caisson.ReviewExpired, caisson.ReviewWithdrawn}).Draw(rt, "state"), "")
		return err
	default:
		if rapid.Bool().Draw(rt, "cancel") {
			_, err := l.AskCancel(ctx, run, caisson.CauseUser, "p")
			return err
		}
		return l.RevokeGrant(ctx, run, "g1", "p")
	}
}
