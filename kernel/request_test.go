package kernel_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
)

// Requests from inside a run end with it: none stays open, none is told to the
// model, and only what had an effect beyond the ledger is unknown.
func TestRequestsEndWithTheRun(t *testing.T) {
	ctx := t.Context()
	s := newStage(t, "turns: [{calls: [{tool: slow, input: {word: b}}]}, {text: bye}]", caisson.Budget{})
	done := s.driven(ctx)
	<-s.slow
	run, err := s.ledger.Run(ctx, s.id)
	if err != nil {
		t.Fatal(err)
	}
	drive := caisson.Drive{Run: s.id, Fence: run.Lease.Fence}
	if _, err := s.ledger.OpenChannel(ctx, drive, 0); err != nil {
		t.Fatal(err)
	}
	allow := caisson.Verdict{Ruling: caisson.Allow}
	call := func(id caisson.RequestID, reach caisson.Reach) caisson.Call {
		if err := s.ledger.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: id}); err != nil {
			t.Fatal(err)
		}
		return ledgertest.NewRequestCall(s.id, 1, id, reach, "x")
	}
	call("0000000000000001", caisson.ReachLedger)
	if _, err := s.ledger.JudgeCall(ctx, drive, call("0000000000000002", caisson.ReachOutside), allow); err != nil {
		t.Fatal(err)
	}
	for id, reach := range map[caisson.RequestID]caisson.Reach{"0000000000000003": caisson.ReachOutside, "0000000000000004": caisson.ReachLedger} {
		if _, err := s.ledger.StartCall(ctx, drive, caisson.CallStart{Call: call(id, reach), Verdict: allow}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ledger.AskReview(ctx, drive, caisson.Review{Call: call("0000000000000005", caisson.ReachOutside), Kind: caisson.ReviewCall, Verdict: caisson.Verdict{Ruling: caisson.ReviewIt}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ledger.AskCancel(ctx, s.id, caisson.CauseUser, "tester"); err != nil {
		t.Fatal(err)
	}
	end := <-done
	if end.err != nil {
		t.Fatal(end.err)
	}
	wantEnd(t, end.run, caisson.RunCancelled, caisson.StopCancelled)
	requests, err := s.ledger.Requests(ctx, s.id, caisson.RequestFilter{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range requests {
		if r.Rejected != nil {
			got[string(r.ID[15:])] = string(r.Rejected.Code)
			continue
		}
		record, err := s.ledger.Call(ctx, r.Call)
		if err != nil {
			t.Fatal(err)
		}
		got[string(r.ID[15:])] = string(record.State)
	}
	if diff := cmp.Diff(map[string]string{"1": "not-executed", "2": "cancelled", "3": "unknown", "4": "cancelled", "5": "cancelled"}, got); diff != "" {
		t.Error(diff)
	}
	if err := s.ledger.Check(ctx); err != nil {
		t.Error(err)
	}
}
