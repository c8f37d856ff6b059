package sqlite_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
)

// asked is a request by what names it.
type asked struct {
	run        caisson.RunID
	generation int64
	id         caisson.RequestID
}

// controlOperations are how many operations on channels and tasks there are.
const controlOperations = 9

// control does what a broker, its airlock and people could do with the channel of
// a run, and with tasks. What has been said of a request before must hold.
func (m *machine) control(t *testing.T, rt *rapid.T, l caisson.Ledger, drive caisson.Drive, operation int, amount func(string) caisson.Amount) error {
	ctx := t.Context()
	generation := rapid.SampledFrom([]int64{1, 1, 1, 2}).Draw(rt, "generation")
	r := asked{drive.Run, generation, rapid.SampledFrom([]caisson.RequestID{"0123456789abcdef", "0123456789abcde0", "0123456789abcde1"}).Draw(rt, "request")}
	reach := rapid.SampledFrom([]caisson.Reach{caisson.ReachInside, caisson.ReachOutside, caisson.ReachLedger}).Draw(rt, "reach")
	call := ledgertest.NewRequestCall(r.run, r.generation, r.id, reach, "x")
	verdict := caisson.Verdict{Ruling: rapid.SampledFrom([]caisson.Ruling{caisson.Allow, caisson.Allow, caisson.Deny}).Draw(rt, "ruling")}
	ended := m.ended[r]
	late := func(what string, err error) error {
		if err == nil && ended != "" {
			rt.Fatalf("request %+v was %s after it was %s", r, what, ended)
		}
		return err
	}
	end := func(how string) {
		m.ended[r] = how
	}
	why := caisson.Errorf(caisson.CodeBusy, "busy")
	switch operation {
	case 0:
		_, err := l.OpenChannel(ctx, drive, rapid.SampledFrom([]int64{0, 0, 1, 2}).Draw(rt, "of"))
		return err
	case 1, 2:
		record := caisson.RequestRecord{Generation: r.generation, ID: r.id, Verb: "v", Input: json.RawMessage(`{"text":"` + strings.Repeat("x", rapid.SampledFrom([]int{1, 300, 3000}).Draw(rt, "long")) + `"}`)}
		if rapid.IntRange(0, 3).Draw(rt, "rejected") == 0 {
			record.Rejected = why
		}
		err := l.TakeRequest(ctx, drive, record)
		if err == nil && m.taken[r] {
			rt.Fatalf("request %+v was taken twice", r)
		}
		if err == nil {
			m.taken[r] = true
			if record.Rejected != nil {
				end("rejected")
			}
		}
		return err
	case 3:
		err := late("rejected", l.RejectRequest(ctx, drive, r.generation, r.id, why))
		if err == nil {
			if m.begun[r] {
				rt.Fatalf("request %+v was rejected after it had become a call", r)
			}
			end("rejected")
		}
		return err
	case 4:
		_, err := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict, Reserve: amount("reserve")})
		if late("begun", err) == nil {
			m.begun[r] = true
		}
		return err
	case 5:
		outcome := rapid.SampledFrom([]caisson.Outcome{caisson.OutcomeDone, caisson.OutcomeUnknown, caisson.OutcomeRefused, caisson.OutcomeCancelled, caisson.OutcomeNotStarted}).Draw(rt, "outcome")
		settle := caisson.CallSettle{Call: call, Verdict: &verdict, Outcome: outcome, Used: amount("used")}
		if reach == caisson.ReachLedger && outcome == caisson.OutcomeDone {
			settle.Edit = &caisson.LedgerEdit{Task: m.edit(rt)}
		}
		_, err := l.SettleCall(ctx, drive, settle)
		if late("settled", err) == nil {
			end(string(outcome))
		}
		return err
	case 6:
		_, err := l.AskReview(ctx, drive, caisson.Review{Call: call, Verdict: caisson.Verdict{Ruling: caisson.ReviewIt}, Kind: caisson.ReviewCall}, time.Hour)
		if late("asked about", err) == nil {
			m.begun[r] = true
		}
		return err
	case 7:
		_, err := l.EditTask(ctx, *m.edit(rt))
		return err
	default:
		return m.requests(t, rt, l, drive.Run)
	}
}

// edit makes a task, or changes one.
func (m *machine) edit(rt *rapid.T) *caisson.TaskEdit {
	branch := rapid.SampledFrom([]string{"", "chore/x", "chore/y"}).Draw(rt, "branch")
	state := rapid.SampledFrom([]caisson.TaskState{caisson.TaskActive, caisson.TaskBlocked, caisson.TaskCompleted, caisson.TaskCancelled}).Draw(rt, "task state")
	return &caisson.TaskEdit{
		Key: rapid.SampledFrom([]string{"k1", "k2"}).Draw(rt, "key"),
		Change: func(task *caisson.Task) error {
			task.Branch, task.State = branch, state
			return nil
		},
	}
}

// requests looks whether what is told of requests is what was done with them.
func (m *machine) requests(t *testing.T, rt *rapid.T, l caisson.Ledger, run caisson.RunID) error {
	all, err := l.Requests(t.Context(), run, caisson.RequestFilter{})
	if err != nil {
		return err
	}
	open, err := l.Requests(t.Context(), run, caisson.RequestFilter{Open: true})
	if err != nil {
		return err
	}
	is := map[asked]bool{}
	for _, r := range open {
		is[asked{run, r.Generation, r.ID}] = true
	}
	for _, r := range all {
		one := asked{run, r.Generation, r.ID}
		if !m.taken[one] {
			rt.Fatalf("request %+v was never taken", one)
		}
		// A run that ends closes what is open.
		if m.ended[one] != "" && (is[one] || len(r.Input) > 0) || m.ended[one] == "" && !is[one] && r.Rejected == nil {
			rt.Fatalf("request %+v is %q; it is open: %v, its input has %d bytes", one, m.ended[one], is[one], len(r.Input))
		}
	}
	for one := range m.taken {
		if one.run == run && len(all) == 0 {
			rt.Fatalf("request %+v is forgotten", one)
		}
	}
	return nil
}
