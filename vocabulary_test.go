package caisson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

func TestCodes(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	exits := map[int]bool{1: true, 2: true, 75: true, 76: true, 77: true, 78: true, 124: true, 130: true}
	seen := map[caisson.Code]bool{}
	for _, row := range caisson.Codes() {
		if !kebab.MatchString(string(row.Code)) || seen[row.Code] {
			t.Errorf("%s: not a kebab word, or twice", row.Code)
		}
		seen[row.Code] = true
		if row.Meaning == "" || row.HTTP < 400 || row.HTTP > 599 || !exits[row.Exit] {
			t.Errorf("%s: incomplete row %+v", row.Code, row)
		}
		if row.Retryable != (row.Exit == caisson.ExitRetryable) && row.Retryable {
			t.Errorf("%s: retryable, but exits %d", row.Code, row.Exit)
		}
	}
}

// A hint of the table is said wherever its code is used: a flag in it is named with
// the command that has it. That of all commands alone is --help.
func TestHintsNameNoFlagOfSomeCommand(t *testing.T) {
	for _, row := range caisson.Codes() {
		for i, piece := range strings.Split(row.Hint, "`") {
			quoted := i%2 == 1
			if strings.Contains(piece, "--") && piece != "--help" && (!quoted || !strings.HasPrefix(piece, "caisson")) {
				t.Errorf("%s: %s", row.Code, row.Hint)
			}
		}
	}
}

func TestErrorKeepsItsShapeOnTheWire(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("open sandbox: %w", caisson.Errorf(caisson.CodeHostFull, "no room: %w", cause).With("need", "4 GiB"))
	if caisson.CodeOf(err) != caisson.CodeHostFull || !errors.Is(err, cause) {
		t.Fatalf("code %s", caisson.CodeOf(err))
	}
	raw, _ := json.Marshal(caisson.AsError(err))
	want := `{"code":"host-full","message":"no room: cause","hint":"Wait, or give it smaller limits.","retryable":true,"detail":{"need":"4 GiB"}}`
	if string(raw) != want {
		t.Errorf("got %s\nwant %s", raw, want)
	}
	var back caisson.Error
	if err := json.Unmarshal(raw, &back); err != nil || back.Code != caisson.CodeHostFull || back.Hint == "" {
		t.Errorf("came back as %+v, %v", back, err)
	}
	if caisson.CodeOf(cause) != caisson.CodeInternal || caisson.CodeOf(nil) != "" {
		t.Error("an error without a code is internal, none has none")
	}
}

func TestStateTables(t *testing.T) {
	for _, table := range caisson.StateTables() {
		reached := map[string]bool{table.Initial: true}
		for range table.Edges {
			for _, e := range table.Edges {
				if reached[e.From] {
					reached[e.To] = true
				}
			}
		}
		for _, state := range table.States() {
			if !reached[state] {
				t.Errorf("%s: %s cannot be reached", table.Name, state)
			}
		}
		for i, e := range table.Edges {
			for _, f := range table.Edges[:i] {
				if e.From == f.From && e.To == f.To {
					t.Errorf("%s: %s → %s stands twice", table.Name, e.From, e.To)
				}
			}
		}
	}
	if !caisson.CallState("unknown").Terminal() || caisson.CallStarted.Terminal() || caisson.CallState("done").Outcome() != caisson.OutcomeDone {
		t.Error("outcomes are the terminal states of a call")
	}
	if err := caisson.RunStates().Move("succeeded", "running"); caisson.CodeOf(err) != caisson.CodeStateInvalid {
		t.Errorf("a run that succeeded ran again: %v", err)
	}
}

func TestCallDigests(t *testing.T) {
	call := caisson.Call{ID: "r1.1.1", Tool: caisson.ToolRef{Server: "a", Name: "t"}, Input: json.RawMessage(`{"x":1}`), Binding: "b"}
	base, err := call.Sum()
	if err != nil {
		t.Fatal(err)
	}
	input, _ := call.SumInput()
	changes := map[string]func(*caisson.Call){
		"server": func(c *caisson.Call) { c.Tool.Server = "b" }, "schema": func(c *caisson.Call) { c.SchemaDigest = "d" },
		"input": func(c *caisson.Call) { c.Input = json.RawMessage(`{"x":2}`) }, "binding": func(c *caisson.Call) { c.Binding = "c" },
	}
	for name, change := range changes {
		other := call
		change(&other)
		if sum, _ := other.Sum(); sum == base {
			t.Errorf("another %s has the same digest", name)
		}
		if sum, _ := other.SumInput(); sum == input {
			t.Errorf("another %s has the same input digest", name)
		}
	}
	other := call
	other.ID = "r1.1.2"
	if sum, _ := other.Sum(); sum == base {
		t.Error("another call has the same digest")
	}
	if sum, _ := other.SumInput(); sum != input {
		t.Error("the call id is part of the input digest")
	}
	if caisson.EffectIDOf(call.ID) != caisson.EffectIDOf("r1.1.1") || caisson.EffectIDOf(call.ID) == caisson.EffectIDOf(other.ID) {
		t.Error("an effect id follows from the call id alone")
	}
}

func TestChainNamesTheFirstBrokenLink(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	var events []caisson.Event
	var prev caisson.Digest
	for i := range 5 {
		e := caisson.Event{Run: "r1", Seq: int64(i + 1), At: at.Add(time.Duration(i) * time.Second), Kind: caisson.EventNote, Body: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), Prev: prev}
		sum, err := e.Sum()
		if err != nil {
			t.Fatal(err)
		}
		e.Hash, prev = sum, sum
		events = append(events, e)
	}
	verify := func(events []caisson.Event) error {
		var chain caisson.Chain
		for _, e := range events {
			if err := chain.Add(e); err != nil {
				return err
			}
		}
		return nil
	}
	if err := verify(events); err != nil {
		t.Fatal(err)
	}
	for name, tamper := range map[string]func([]caisson.Event) []caisson.Event{
		"body":    func(e []caisson.Event) []caisson.Event { e[2].Body = json.RawMessage(`{"n":9}`); return e },
		"kind":    func(e []caisson.Event) []caisson.Event { e[2].Kind = caisson.EventRunMoved; return e },
		"time":    func(e []caisson.Event) []caisson.Event { e[2].At = e[2].At.Add(1); return e },
		"hash":    func(e []caisson.Event) []caisson.Event { e[2].Hash = e[1].Hash; return e },
		"missing": func(e []caisson.Event) []caisson.Event { return append(e[:2], e[3:]...) },
		"twice":   func(e []caisson.Event) []caisson.Event { return append(e[:3], e[2:]...) },
		"run":     func(e []caisson.Event) []caisson.Event { e[2].Run = "r2"; return e },
	} {
		err := verify(tamper(append([]caisson.Event(nil), events...)))
		if caisson.CodeOf(err) != caisson.CodeChainBroken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecisionsFitReviews(t *testing.T) {
	for kind, fits := range map[caisson.ReviewKind][]caisson.DecisionKind{
		caisson.ReviewCall:     {caisson.Approve, caisson.Reject, caisson.Modify, caisson.Abort},
		caisson.ReviewQuestion: {caisson.Answer, caisson.Reject, caisson.Abort},
		caisson.ReviewUnknown:  {caisson.Answer, caisson.Abort},
	} {
		for _, d := range []caisson.DecisionKind{caisson.Approve, caisson.Reject, caisson.Modify, caisson.Answer, caisson.Abort, "", "yes"} {
			want := false
			for _, f := range fits {
				want = want || f == d
			}
			if d.Fits(kind) != want {
				t.Errorf("%q for a review of kind %s: %v", d, kind, !want)
			}
		}
	}
}
