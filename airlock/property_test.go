package airlock_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
)

// Whatever is asked for, however people decide and wherever drivers die: no
// effect that may not be repeated happens twice, and none that was denied or
// rejected happens.
func TestRandomCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	names := []string{"gated", "write", "read", "put", "post", "denied", "side", "ask", "fail", "missing"}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		var calls []wanted
		for i := range rapid.IntRange(1, 6).Draw(rt, "calls") {
			calls = append(calls, wanted{rapid.SampledFrom(names).Draw(rt, "tool"), fmt.Sprint("text ", i)})
		}
		rejected := map[caisson.CallID]bool{}
		say := func(r caisson.Review) caisson.Decision {
			switch r.Kind {
			case caisson.ReviewUnknown:
				return caisson.Decision{Kind: caisson.Answer, Options: []string{rapid.SampledFrom([]string{"done", "retry"}).Draw(rt, "unknown")}}
			case caisson.ReviewQuestion:
				return caisson.Decision{Kind: caisson.Answer, Text: "so"}
			}
			switch rapid.IntRange(0, 3).Draw(rt, "decision") {
			case 0:
				rejected[r.Call.ID] = true
				return caisson.Decision{Kind: caisson.Reject}
			case 1:
				d := caisson.Decision{Kind: caisson.Modify, Input: []byte(`{"text":"other"}`)}
				other := r.Call
				other.Input = []byte(`{"count":1,"text":"other"}`)
				if rapid.Bool().Draw(rt, "exact") {
					d.ApproveModified, _ = other.Sum()
				}
				return d
			default:
				return caisson.Decision{Kind: caisson.Approve}
			}
		}
		c := child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: calls, Rules: []string{"gated", "review", "denied", "deny"}}
		for range rapid.IntRange(1, 3).Draw(rt, "lives") {
			fault := fmt.Sprintf("%s=crash@%d", rapid.SampledFrom(points()).Draw(rt, "point"), rapid.IntRange(1, 6).Draw(rt, "pass"))
			r := runChild(t, c, fault)
			if r.Err != "" {
				rt.Fatalf("child: %s", r.Err)
			}
			open, err := w.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
			if err != nil {
				rt.Fatal(err)
			}
			for _, review := range open {
				if rapid.Bool().Draw(rt, "now") {
					answers(t, w, []caisson.ReviewID{review.ID}, say)
				}
			}
		}
		finish(t, w, calls, say)
		for id := range rejected {
			if n := w.done()[id]; n != 0 {
				rt.Errorf("rejected call %s was done %d times", id, n)
			}
		}
		if t.Failed() {
			rt.Fatalf("calls %v", calls)
		}
	})
}
