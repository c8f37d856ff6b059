package airlock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// points are all places where a driver may die.
func points() []string {
	return []string{
		"airlock.prepared", "airlock.judged", "airlock.asked", "airlock.decided", "airlock.held", "airlock.started",
		"airlock.effected", "airlock.settling", "airlock.settled", "airlock.orphan", "ledger.commit.before", "ledger.commit.after",
	}
}

// everything is a batch with a call of every class.
func everything() []wanted {
	return []wanted{{"gated", "approved"}, {"write", "a"}, {"read", "b"}, {"put", "c"}, {"post", "d"}, {"denied", "e"}, {"gated", "rejected"}, {"side", "f"}, {"ask", "g"}}
}

// TestCrashEverywhere kills the driver at every point, each time it goes by it,
// and then lets other drivers finish: no effect that may not be repeated
// happened twice, none that was denied or rejected happened at all, and every
// call has its outcome.
func TestCrashEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	killed := 0
	for _, point := range points() {
		for nth := 1; ; nth++ {
			w := newWorld(t)
			c := child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: everything(), Rules: []string{"gated", "review", "denied", "deny"}}
			if !runChild(t, c, fmt.Sprintf("%s=crash@%d", point, nth)).Killed {
				break
			}
			killed++
			finish(t, w, everything(), nil)
			if t.Failed() {
				t.Fatalf("after a crash at %s, pass %d", point, nth)
			}
		}
	}
	if killed < 40 {
		t.Errorf("only %d crashes: a point is not reached any more", killed)
	}
}

// answers decides the open reviews of a world, once.
func answers(t *testing.T, w *world, waiting []caisson.ReviewID, say func(caisson.Review) caisson.Decision) {
	t.Helper()
	for _, id := range waiting {
		r, err := w.ledger.Review(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		w.decide(id, say(r))
	}
}

// usual approves calls, but rejects those that say so; answers questions; and
// takes for done what nobody saw the end of.
func usual(r caisson.Review) caisson.Decision {
	switch {
	case r.Kind == caisson.ReviewQuestion:
		return caisson.Decision{Kind: caisson.Answer, Options: []string{"yes"}}
	case r.Kind == caisson.ReviewUnknown:
		return caisson.Decision{Kind: caisson.Answer, Options: []string{"done"}}
	case strings.Contains(string(r.Call.Input), "rejected"):
		return caisson.Decision{Kind: caisson.Reject}
	default:
		return caisson.Decision{Kind: caisson.Approve}
	}
}

// finish drives a batch to its end in this process and checks what must hold.
func finish(t *testing.T, w *world, calls []wanted, say func(caisson.Review) caisson.Decision) airlock.Settled {
	t.Helper()
	if say == nil {
		say = usual
	}
	w.takeOver()
	var batch []airlock.Request
	for i, c := range calls {
		batch = append(batch, w.request(i+1, c.Tool, c.Text))
	}
	s := w.settle(batch...)
	for round := 0; len(s.Waiting) > 0; round++ {
		if round > 10 {
			t.Fatalf("still waits for %v", s.Waiting)
		}
		answers(t, w, s.Waiting, say)
		s = w.settle(batch...)
	}
	checkEffects(t, w, calls, s)
	return s
}

func checkEffects(t *testing.T, w *world, calls []wanted, s airlock.Settled) {
	t.Helper()
	done := w.done()
	for i, c := range calls {
		rec := s.Records[i]
		n := done[rec.Call.ID]
		outcome := rec.State.Outcome()
		where := fmt.Sprintf("call %d (%s %s): %s, done %d times", i+1, c.Tool, c.Text, rec.State, n)
		if outcome == "" || rec.Result == nil || rec.Result.Text == "" {
			t.Errorf("%s: no outcome or result", where)
		}
		switch c.Tool {
		case "read", "put":
			if outcome == caisson.OutcomeDone && n < 1 || n > rec.Attempts {
				t.Errorf("%s in %d attempts", where, rec.Attempts)
			}
		case "denied", "ask":
			if n != 0 {
				t.Errorf("%s", where)
			}
		default:
			if n > 1 {
				t.Errorf("%s", where)
			}
		}
		if strings.Contains(c.Text, "rejected") && c.Tool == "gated" && n != 0 || (outcome == caisson.OutcomeRefused || outcome == caisson.OutcomeNotStarted) && n != 0 {
			t.Errorf("%s", where)
		}
		if c.Tool == "denied" && outcome != caisson.OutcomeRefused || c.Tool == "post" && (outcome != caisson.OutcomeDone && outcome != caisson.OutcomeUnknown) {
			t.Errorf("%s", where)
		}
	}
}

// SIGKILL after a question was recorded, before anything else: the same review
// after a restart. Origin: eve 3103.
func TestCase_R10(t *testing.T) {
	w := newWorld(t)
	c := child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: []wanted{{"gated", "a"}}, Rules: []string{"gated", "review"}}
	if !runChild(t, c, "airlock.asked=crash").Killed {
		t.Fatal("the child lives")
	}
	open, err := w.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil || len(open) != 1 {
		t.Fatalf("open reviews %v, %v", open, err)
	}
	w.takeOver()
	s := w.settle(w.request(1, "gated", "a"))
	if len(s.Waiting) != 1 || s.Waiting[0] != open[0].ID {
		t.Errorf("waits for %v, was asked as %s", s.Waiting, open[0].ID)
	}
}

// SIGKILL between an effect and its record: the outcome is unknown, and it is
// not done again unless its class allows. Nobody else has it.
func TestCase_R11(t *testing.T) {
	for _, c := range []struct {
		tool, onUnknown string
		answer          string // of the review, if there is one
		outcome         caisson.Outcome
		times           int // of the call's own effect
		retried         int // of its retry
		abort           bool
	}{
		{tool: "write", onUnknown: "tell", outcome: caisson.OutcomeUnknown, times: 1},
		{tool: "write", onUnknown: "ask", answer: "done", outcome: caisson.OutcomeDone, times: 1},
		{tool: "write", onUnknown: "ask", answer: "retry", outcome: caisson.OutcomeUnknown, times: 1, retried: 1},
		{tool: "write", onUnknown: "ask", answer: "stop", outcome: caisson.OutcomeUnknown, times: 1, abort: true},
		{tool: "read", onUnknown: "ask", outcome: caisson.OutcomeDone, times: 2},
		{tool: "put", onUnknown: "ask", outcome: caisson.OutcomeDone, times: 2},
		{tool: "post", onUnknown: "ask", outcome: caisson.OutcomeDone, times: 1},
	} {
		t.Run(c.tool+" "+c.onUnknown+" "+c.answer, func(t *testing.T) {
			w := newWorld(t)
			w.options.OnUnknown = c.onUnknown
			if !runChild(t, child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: []wanted{{c.tool, "a"}}}, "airlock.effected=crash").Killed {
				t.Fatal("the child lives")
			}
			w.takeOver()
			r := w.request(1, c.tool, "a")
			s := w.settle(r)
			if c.answer != "" {
				if len(s.Waiting) != 1 || w.done()[r.ID] != 1 {
					t.Fatalf("waiting %v, effects %v", s.Waiting, w.done())
				}
				w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Answer, Options: []string{c.answer}})
				s = w.settle(r)
			}
			again := r.ID.Nested(0)
			done := w.done()
			if s.Records[0].State.Outcome() != c.outcome || done[r.ID] != c.times || done[again] != c.retried || s.Abort != c.abort || len(s.Waiting) != 0 {
				t.Errorf("state %s, effects %v, abort %v, waiting %v", s.Records[0].State, done, s.Abort, s.Waiting)
			}
			if c.retried > 0 {
				rec, err := w.ledger.Call(t.Context(), again)
				if err != nil || rec.Of != r.ID || rec.Effect == s.Records[0].Effect || rec.State != "done" {
					t.Errorf("the retry is %+v, %v", rec, err)
				}
				if !strings.Contains(s.Records[0].Result.Text, "did {") {
					t.Errorf("the model is not told of the retry: %q", s.Records[0].Result.Text)
				}
			}
			before := states(s)
			if s = w.settle(r); states(s) != before || s.Abort != c.abort || w.done()[r.ID] != c.times {
				t.Errorf("replayed as %s, abort %v, effects %v", states(s), s.Abort, w.done())
			}
		})
	}
}

// A driver that dies while a retry is under way: the retry is the same call
// after that, and is not done twice.
func TestCrashInRetry(t *testing.T) {
	for _, point := range []string{"airlock.held", "airlock.started", "airlock.effected", "airlock.settled", "airlock.settling"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t)
			c := child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: []wanted{{"write", "a"}}}
			if !runChild(t, c, "airlock.effected=crash").Killed {
				t.Fatal("the child lives")
			}
			w.takeOver()
			r := w.request(1, "write", "a")
			s := w.settle(r)
			w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Answer, Options: []string{"retry"}})
			if !runChild(t, c, point+"=crash").Killed {
				t.Fatal("the child lives")
			}
			s = finish(t, w, c.Calls, nil)
			if n := w.done(); n[r.ID] != 1 || n[r.ID.Nested(0)] > 1 || n[r.ID.Nested(0)] == 0 && s.Records[0].State != "unknown" {
				t.Errorf("effects %v, states %s", n, states(s))
			}
		})
	}
}
