package kernel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/kernel"
)

// lookers is a script that would read n times, each time something else, with
// the usage given.
func lookers(n int, usage string) string {
	script := "turns:\n"
	for i := range n {
		script += fmt.Sprintf("  - {calls: [{tool: read, input: {word: w%d}}], usage: %s}\n", i, usage)
	}
	return script
}

// Origin: namzu changelog. A cost budget with a model whose price is not known.
func TestCase_R21(t *testing.T) {
	s := newStage(t, twoTurns, caisson.Budget{Cost: 1_000_000})
	if err := kernel.Check(caisson.Budget{Cost: 1}, s.opts.Model); caisson.CodeOf(err) != caisson.CodeCostUnmeasurable {
		t.Errorf("check says %v", err)
	}
	if err := kernel.Check(caisson.Budget{Tokens: 1}, s.opts.Model); err != nil {
		t.Errorf("check says %v of a budget without cost", err)
	}
	run, err := s.life(t.Context())
	if caisson.CodeOf(err) != caisson.CodeCostUnmeasurable {
		t.Fatalf("got %v", err)
	}
	wantEnd(t, run, caisson.RunStopped, caisson.StopCostUnmeasurable)
	if len(s.asked(t)) != 0 {
		t.Error("the model was asked")
	}
}

// closing checks how a run that a bound ended went: at some answer the model
// was told to finish and had tools that read, at the last it had none.
func closing(t *testing.T, s *stage, run caisson.Run, stop caisson.StopReason) {
	t.Helper()
	wantEnd(t, run, caisson.RunStopped, stop)
	asked := s.asked(t)
	last := asked[len(asked)-1]
	told := last.Messages[len(last.Messages)-1]
	if len(last.Tools) != 0 || !strings.Contains(told.Parts[0].Text, "closing answer") {
		t.Errorf("the last of %d requests has %d tools and ends with %+v", len(asked), len(last.Tools), told)
	}
	finishing := 0
	for i, req := range asked {
		names := ""
		for _, tool := range req.Tools {
			names += tool.Name + " "
		}
		end := req.Messages[len(req.Messages)-1].Parts[0].Text
		switch {
		case names == "fail read ":
			finishing++
			if finishing == 1 && !strings.Contains(end, "Finish now") {
				t.Errorf("request %d has tools that read only and ends with %q", i+1, end)
			}
		case names == "fail put read slow write " && finishing > 0:
			t.Errorf("request %d has all tools again", i+1)
		}
	}
	if finishing == 0 {
		t.Error("the model was never told to finish")
	}
}

func TestTokenBudget(t *testing.T) {
	budget := caisson.Budget{Tokens: 20_000}
	s := newStage(t, lookers(19, "{input: 900, output: 100}")+"  - {text: closing words}\n", budget)
	run := s.run(t)
	closing(t, s, run, caisson.StopTokenBudget)
	pool, err := s.ledger.Pool(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if pool.Used.Tokens > budget.Tokens || pool.Used.Tokens < 19_000 {
		t.Errorf("used %d of %d tokens", pool.Used.Tokens, budget.Tokens)
	}
	left := budget.Tokens
	for i, req := range s.asked(t) {
		if req.MaxOutput > left {
			t.Errorf("request %d has the cap %d with %d tokens left", i+1, req.MaxOutput, left)
		}
		left -= 1000
	}
	if run.Text != "closing words" || run.Cause != caisson.CauseBudget {
		t.Errorf("got %q, cause %s", run.Text, run.Cause)
	}
}

func TestCostBudget(t *testing.T) {
	// 10,000 tokens in and 1000 out are 30,000 + 15,000 micro dollars.
	s := newStage(t, "price: {input: 3, output: 15}\n"+lookers(21, "{input: 10000, output: 1000}")+"  - {text: closing words, usage: {input: 9000, output: 10}}\n", caisson.Budget{Cost: 1_000_000})
	closing(t, s, s.run(t), caisson.StopCostBudget)
	pool, err := s.ledger.Pool(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if pool.Used.Cost > 1_000_000 || pool.Used.Cost < 900_000 {
		t.Errorf("used %d", pool.Used.Cost)
	}
}

func TestBudgetTooSmallForOneAnswer(t *testing.T) {
	s := newStage(t, twoTurns, caisson.Budget{Tokens: 50})
	wantEnd(t, s.run(t), caisson.RunStopped, caisson.StopTokenBudget)
	if len(s.asked(t)) != 0 {
		t.Error("the model was asked")
	}
}

func TestMaxTurns(t *testing.T) {
	s := newStage(t, lookers(9, "{input: 9, output: 1}"), caisson.Budget{Turns: 3})
	run := s.run(t)
	wantEnd(t, run, caisson.RunStopped, caisson.StopMaxTurns)
	if run.Turns != 3 || len(s.effects(t)) != 3 {
		t.Errorf("%d turns, effects %v", run.Turns, s.effects(t))
	}
	s = newStage(t, lookers(39, "{input: 9, output: 1}")+"  - {text: bye}\n", caisson.Budget{Turns: 40})
	s.opts.StuckAfter = 1000
	run = s.run(t)
	closing39 := s.asked(t)[38]
	if len(closing39.Tools) != 0 {
		t.Error("the reserve of a large turn budget was not kept for the closing answer")
	}
	wantEnd(t, run, caisson.RunStopped, caisson.StopMaxTurns)
}

func TestMaxCalls(t *testing.T) {
	s := newStage(t, lookers(10, "{input: 9, output: 1}")+"  - {text: bye}\n", caisson.Budget{Calls: 10})
	closing(t, s, s.run(t), caisson.StopMaxCalls)
	if len(s.effects(t)) != 10 {
		t.Errorf("%d calls were done", len(s.effects(t)))
	}
}

// A model that asks for a tool although none is left gets none.
func TestClosingAnswerWithCalls(t *testing.T) {
	s := newStage(t, lookers(19, "{input: 900, output: 100}")+"  - {text: one more, calls: [{tool: write, input: {word: x}}]}\n", caisson.Budget{Tokens: 20_000})
	closing(t, s, s.run(t), caisson.StopTokenBudget)
	for _, effect := range s.effects(t) {
		if strings.HasPrefix(effect, "write") {
			t.Error("a call of the closing answer was done")
		}
	}
}

// Origin: namzu reading. Elapsed time counts over all lives.
func TestCase_R25(t *testing.T) {
	// A busy machine may use all of it up in the first life, or be late by as much in
	// the last: it is given more, then.
	for wall := 1500 * time.Millisecond; !countsOverLives(t, wall); wall *= 4 {
		if wall > time.Minute {
			t.Fatal("it is over in the first life, or in the last not before that has had all of the time")
		}
	}
}

// countsOverLives tells whether a run had a second life before its time was over, and
// less than all of it in the last.
func countsOverLives(t *testing.T, wall time.Duration) bool {
	t.Helper()
	each := wall * 2 / 5
	s := newStage(t, "turns: [{text: half a sentence, stall: true}]", caisson.Budget{Wall: wall})
	tell, before := s.opts.Observe, time.Duration(0)
	for life := 1; ; life++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		s.opts.Observe = tell
		if life < 3 { // the third has what is left
			s.onModel(func() {
				time.AfterFunc(each, func() { cancel(&caisson.CauseError{Cause: caisson.CauseShutdown, Text: "the test says so"}) })
			})
		}
		run, err := s.life(ctx)
		cancel(nil)
		if err != nil {
			t.Fatal(err)
		}
		if run.State == caisson.RunPaused {
			if run.Active-before < each {
				t.Errorf("life %d counts for %s", life, run.Active-before)
			}
			before = run.Active
			continue
		}
		wantEnd(t, run, caisson.RunStopped, caisson.StopDeadline)
		if run.Cause != caisson.CauseDeadline {
			t.Errorf("stopped in life %d with cause %s", life, run.Cause)
		}
		if run.Active < wall {
			t.Errorf("was active for %s", run.Active)
		}
		return life > 1 && run.Active-before <= wall
	}
}

func TestDeadlineWhileACallRuns(t *testing.T) {
	for wall := time.Second; ; wall *= 4 {
		s := newStage(t, "turns: [{calls: [{tool: slow, input: {word: a}}, {tool: write, input: {word: b}}]}]", caisson.Budget{Wall: wall})
		wantEnd(t, s.run(t), caisson.RunStopped, caisson.StopDeadline)
		if len(s.effects(t)) == 0 && wall < time.Minute {
			continue // a busy machine did not come to the call in that time
		}
		records, err := s.ledger.Calls(t.Context(), s.id)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) != 2 || records[0].State != "cancelled" || records[1].State != "cancelled" || records[0].Result.Cause != caisson.CauseDeadline {
			t.Errorf("got %+v", records)
		}
		if got := s.effects(t); len(got) != 1 {
			t.Errorf("effects %v", got)
		}
		return
	}
}
