package kernel_test

import (
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/kernel"
	"github.com/google/go-cmp/cmp"
)

const twoTurns = `
turns:
  - text: I look.
    calls:
      - {tool: read, id: same, input: {word: one}}
      - {tool: write, id: same, input: {word: two}}
    usage: {input: 100, output: 10}
  - expect:
      - {tool: read, contains: read one, failed: false}
      - {tool: write, contains: write two, failed: false}
    text: all done
    usage: {input: 150, output: 5}
`

func TestRunToItsEnd(t *testing.T) {
	s := newStage(t, twoTurns, caisson.Budget{})
	s.opts.Instructions = []kernel.Instruction{{Name: "AGENTS.md", Text: "use tabs"}, {Name: "CLAUDE.md", Text: " "}}
	var ended []int
	s.opts.TurnEnd = func(_ context.Context, turn caisson.Turn, settled airlock.Settled) error {
		ended = append(ended, turn.N, len(settled.Records))
		return nil
	}
	run := s.run(t)
	wantEnd(t, run, caisson.RunSucceeded, caisson.StopEndTurn)
	if run.Text != "all done" || run.Turns != 2 {
		t.Errorf("got %q after %d turns", run.Text, run.Turns)
	}
	if diff := cmp.Diff([]int{1, 2, 2, 0}, ended); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"read:rtest.1.1", "write:rtest.1.2"}, s.effects(t)); diff != "" {
		t.Error(diff)
	}
	want := []string{"run running", "asked", "model", "answered", "settled", "asked", "model", "answered", "settled", "run succeeded"}
	if diff := cmp.Diff(want, s.kinds()); diff != "" {
		t.Error(diff)
	}
	pool, err := s.ledger.Pool(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	wantUsed := caisson.Amount{Tokens: 265, Turns: 2, Calls: 2, Output: pool.Used.Output}
	if diff := cmp.Diff(caisson.Pool{Used: wantUsed}, pool); diff != "" {
		t.Error(diff)
	}
	asked := s.asked(t)
	first := asked[0]
	if first.System != "be good" || len(first.Tools) != 5 || first.MaxOutput != 8192 {
		t.Errorf("got system %q, %d tools, cap %d", first.System, len(first.Tools), first.MaxOutput)
	}
	parts := first.Messages[0].Parts
	if len(parts) != 2 || !strings.Contains(parts[0].Text, "AGENTS.md") || !strings.Contains(parts[0].Text, "use tabs") || parts[1].Text != "make it work" {
		t.Errorf("the run begins with %+v", parts)
	}
	if diff := cmp.Diff(first.Messages, asked[1].Messages[:1]); diff != "" {
		t.Errorf("the transcript's beginning has changed:\n%s", diff)
	}
	if again := s.run(t); again.State != caisson.RunSucceeded || len(s.asked(t)) != 2 {
		t.Errorf("a run that has ended was driven again: %s", again.State)
	}
}

// Origin: openai-agents PR2584. One of several parallel calls fails.
func TestCase_R17(t *testing.T) {
	s := newStage(t, `
turns:
  - calls:
      - {tool: read, input: {word: a}}
      - {tool: fail, input: {word: b}}
      - {tool: read, input: {word: c}}
      - {tool: nothing, input: {word: d}}
      - {tool: read, input: {word: deny}}
  - expect:
      - {contains: read a, failed: false}
      - {contains: no such thing, failed: true}
      - {contains: read c, failed: false}
      - {contains: nothing, failed: true}
      - {contains: the test says so, failed: true}
    text: ok
`, caisson.Budget{})
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	results := s.asked(t)[1].Messages[2].Parts
	if len(results) != 5 {
		t.Fatalf("%d results for 5 calls", len(results))
	}
}

// Origin: fantasy PR294. Arguments that are cut go to the airlock as they are.
func TestCase_R15(t *testing.T) {
	s := newStage(t, `
turns:
  - calls:
      - {tool: read, input_raw: '{"word": "repaired'}
      - {tool: read, input_raw: 'word=no'}
  - expect:
      - {contains: read repaired, failed: false}
      - {failed: true}
    text: ok
`, caisson.Budget{})
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	if got := s.asked(t)[1].Messages[1].Parts[0].Input; got != `{"word": "repaired` {
		t.Errorf("the model's own words were changed to %q", got)
	}
}

func TestStuck(t *testing.T) {
	turn := "  - calls: [{tool: read, input: {word: again}}]\n"
	s := newStage(t, "turns:\n"+turn+strings.Replace(turn, "again", "other", 1)+strings.Repeat(turn, 9), caisson.Budget{})
	run := s.run(t)
	wantEnd(t, run, caisson.RunStopped, caisson.StopStuck)
	if run.Turns != 7 {
		t.Errorf("stopped after %d turns, want 2 and 5 of the same", run.Turns)
	}
}

func TestCutByItsCap(t *testing.T) {
	s := newStage(t, "turns:\n  - {text: first half, finish: length}\n  - {text: second half}\n", caisson.Budget{})
	run := s.run(t)
	wantEnd(t, run, caisson.RunSucceeded, caisson.StopEndTurn)
	last := s.asked(t)[1].Messages
	if text := last[len(last)-1].Parts[0].Text; !strings.Contains(text, "Go on") {
		t.Errorf("the model was not told to go on, but %q", text)
	}
	s = newStage(t, "turns:\n"+strings.Repeat("  - {text: on and on, finish: length}\n", 9), caisson.Budget{})
	run = s.run(t)
	wantEnd(t, run, caisson.RunFailed, caisson.StopModelError)
	if run.Turns != 3 {
		t.Errorf("gave up after %d turns", run.Turns)
	}
}

func TestModelFaults(t *testing.T) {
	tests := []struct {
		name, script string
		state        caisson.RunState
		stop         caisson.StopReason
		asked        int
		used         bool
	}{
		{"cut and asked again", "turns: [{text: half a sentence, cut: true, times: 2, usage: {input: 1, output: 1}}]", caisson.RunSucceeded, caisson.StopEndTurn, 3, true},
		{"cut for ever", "turns: [{text: half a sentence, cut: true}]", caisson.RunFailed, caisson.StopModelError, 3, true},
		{"refused", "turns: [{error: {message: bad key}}]", caisson.RunFailed, caisson.StopModelError, 1, false},
		{"script ended", "turns: []", caisson.RunFailed, caisson.StopModelError, 1, true},
		{"filtered", "turns: [{text: no, finish: filter}]", caisson.RunFailed, caisson.StopModelError, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.script, caisson.Budget{})
			wantEnd(t, s.run(t), tt.state, tt.stop)
			pool, err := s.ledger.Pool(t.Context(), s.id)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.asked(t)) != tt.asked || (pool.Used.Tokens > 0) != tt.used || pool.Reserved != (caisson.Amount{}) {
				t.Errorf("asked %d times, pool %+v", len(s.asked(t)), pool)
			}
		})
	}
}

func TestEventsOfACutAnswerAreKept(t *testing.T) {
	s := newStage(t, "turns: [{text: half a sentence, cut: true, times: 1}]", caisson.Budget{})
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	events, err := s.ledger.Events(t.Context(), s.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range events {
		if e.Kind == caisson.EventTurnAbandoned {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d turns recorded as abandoned", n)
	}
}

func TestRedact(t *testing.T) {
	s := newStage(t, "turns:\n  - {text: the key is hunter2, cut: true, times: 1}\n", caisson.Budget{})
	s.opts.Redact = func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }
	run := s.run(t)
	wantEnd(t, run, caisson.RunSucceeded, caisson.StopEndTurn)
	if run.Text != "the key is ***" {
		t.Errorf("got %q", run.Text)
	}
	turns, err := s.ledger.Turns(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if text := turns[0].Answer.Message.Parts[0].Text; text != run.Text {
		t.Errorf("recorded %q", text)
	}
}
