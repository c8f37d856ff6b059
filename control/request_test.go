package control_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
)

// A request goes from its file to its answer: recorded, accepted, done once,
// completed; and what the channel is like can be read inside all the while.
func TestRequest(t *testing.T) {
	w := newWorld(t)
	b := w.start()
	id := w.ask("count", `{"text":"a"}`)
	a := w.answer(id)
	call := caisson.NewRequestCallID(w.run, 1, id)
	want := caisson.ControlAnswer{Version: 1, ID: id, Generation: 1, State: caisson.AnswerCompleted, Call: call, At: a.At, Output: `did {"text":"a"}`}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
	if first := w.accepted(id); first.State != caisson.AnswerAccepted || first.Call != call || first.At.After(a.At) {
		t.Errorf("accepted %+v", first)
	}
	if n := w.done(id); n != 1 {
		t.Errorf("done %d times", n)
	}
	w.await("that it is idle", func() bool { return b.Status().Running == 0 })
	if s := b.Status(); s.State != caisson.BrokerHealthy || s.Epoch != 1 {
		t.Errorf("status %+v", s)
	}
	var identity caisson.ControlIdentityFile
	w.file(caisson.ControlIdentity, &identity)
	var names []string
	for _, v := range identity.Verbs {
		names = append(names, v.Name)
	}
	if !slices.Equal(names, []string{"count", "gated", "denied", "look", "fail", "recover"}) || identity.Run != w.run || identity.Limits.Queued != 64 || identity.Branch != "feature/x" {
		t.Errorf("identity %+v", identity)
	}
	if guide, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlGuide)); err != nil || string(guide) != "Ask." {
		t.Errorf("guide %q, %v", guide, err)
	}
	w.close()
	if s := w.status(); s.State != caisson.BrokerEnded {
		t.Errorf("at the end the status is %+v", s)
	}
}

// What became of a request's call is told in the channel's own words.
func TestAnswers(t *testing.T) {
	w := newWorld(t)
	w.start()
	if a := w.answer(w.ask("fail", `{}`)); a.State != caisson.AnswerCompleted || a.Exit != 7 || a.Output != "no luck" {
		t.Errorf("failed: %+v", a)
	}
	if a := w.answer(w.ask("denied", `{}`)); a.Error == nil || a.Error.Code != caisson.CodeRefused || a.Exit != caisson.ExitRefused || !strings.Contains(a.Error.Message, "rule-denied") {
		t.Errorf("denied: %+v", a)
	}
	a := w.answer(w.ask("count", `{"other":1}`))
	if a.Error == nil || a.Error.Code != caisson.CodeRequestInvalid || a.Call == "" {
		t.Errorf("an input that the verb does not take: %+v", a)
	}
}

// Each check is in its place: what is wrong in several ways is answered with the
// first of them, and nothing of what the client wrote is in the answer.
func TestOrderOfChecks(t *testing.T) {
	w := newWorld(t)
	b := w.start()
	good := func() map[string]any {
		s := w.status()
		return map[string]any{"version": 1, "generation": s.Generation, "epoch": s.Epoch, "wait": 5000, "verb": "count", "input": map[string]any{}}
	}
	const content = "CONTENT"
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct {
		name string
		with map[string]any
		raw  func(string) string
		want caisson.Code
		text string
	}{
		{"another generation", map[string]any{"generation": 2, "epoch": 99, content: 1}, nil, caisson.CodeGenerationStale, "generation 2"},
		{"another epoch", map[string]any{"epoch": 99, "verb": content, content: 1}, nil, caisson.CodeRequestExpired, "epoch 99"},
		{"a key too many", map[string]any{content: 1, "verb": content}, nil, caisson.CodeRequestInvalid, "field"},
		{"no verb", map[string]any{"verb": nil}, nil, caisson.CodeRequestInvalid, "verb"},
		{"another version", map[string]any{"version": 2}, nil, caisson.CodeRequestInvalid, "version"},
		{"a wait too long", map[string]any{"wait": 10_001}, nil, caisson.CodeRequestInvalid, "wait"},
		{"a wait that is text", map[string]any{"wait": content}, nil, caisson.CodeRequestInvalid, "wait"},
		{"a generation that is none", map[string]any{"generation": 1.5}, nil, caisson.CodeRequestInvalid, "generation"},
		{"an input that is a list", map[string]any{"input": []string{content}}, nil, caisson.CodeRequestInvalid, "input"},
		{"the id of another", map[string]any{"id": string(newRequestID())}, nil, caisson.CodeRequestInvalid, "id"},
		{"no JSON", nil, func(string) string { return content }, caisson.CodeRequestInvalid, ""},
		{"nothing", nil, func(string) string { return "" }, caisson.CodeRequestInvalid, ""},
		{"text behind", nil, func(s string) string { return s + ` "` + content + `"` }, caisson.CodeRequestInvalid, ""},
		{"a key twice", nil, func(s string) string {
			return strings.Replace(s, `"input":{}`, `"input":{"`+content+`":1,"`+content+`":2}`, 1)
		}, caisson.CodeRequestInvalid, ""},
		{"NaN", nil, func(s string) string { return strings.Replace(s, `"wait":5000`, `"wait":NaN`, 1) }, caisson.CodeRequestInvalid, ""},
		{"deep", nil, func(s string) string { return strings.Replace(s, `"input":{}`, `"input":{"a":`+deep+`}`, 1) }, caisson.CodeRequestInvalid, ""},
		{"a number beyond all", nil, func(s string) string { return strings.Replace(s, `"input":{}`, `"input":{"n":1e999}`, 1) }, caisson.CodeRequestInvalid, "input"},
		{"a verb that is not there", map[string]any{"verb": content}, nil, caisson.CodeVerbDenied, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := newRequestID()
			fields := good()
			fields["id"] = string(id)
			for key, value := range c.with {
				if fields[key] = value; value == nil {
					delete(fields, key)
				}
			}
			body, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			if c.raw != nil {
				body = []byte(c.raw(string(body)))
			}
			w.put(id, body)
			if code := w.refused(id); code != c.want {
				t.Errorf("answered %s, want %s", code, c.want)
			}
			raw, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+".json"))
			if err != nil || bytes.Contains(raw, []byte(content)) || !bytes.Contains(raw, []byte(c.text)) {
				t.Errorf("the answer is %s, %v", raw, err)
			}
			recorded, err := w.ledger.Requests(t.Context(), w.run, caisson.RequestFilter{IDs: []caisson.RequestID{id}})
			if err != nil || len(recorded) != 1 || recorded[0].Rejected == nil || recorded[0].Rejected.Code != c.want {
				t.Errorf("the record is %+v, %v", recorded, err)
			}
		})
	}
	b.Park(caisson.CodeHandoffActive, "a person works here")
	id := newRequestID()
	w.put(id, []byte(content))
	if code := w.refused(id); code != caisson.CodeHandoffActive {
		t.Errorf("parked, it answered %s", code)
	}
	b.Unpark(caisson.CodeHandoffActive)
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("after it was parked: %+v", a)
	}
	if moves := w.events(caisson.EventBrokerMoved); len(moves) != 2 || !strings.Contains(moves[0], "a person works here") {
		t.Errorf("recorded moves %v", moves)
	}
}

// An answer that was removed is published again for whoever asks, as the record
// has it: also that of a request that was rejected.
func TestRecoverVerb(t *testing.T) {
	w := newWorld(t)
	w.start()
	for _, verb := range []string{"count", "nothing", "denied"} {
		id := w.ask(verb, `{}`)
		first := w.answer(id)
		if err := os.Remove(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+".json")); err != nil {
			t.Fatal(err)
		}
		a := w.answer(w.ask("recover", `{"id":"`+string(id)+`"}`))
		if a.State != caisson.AnswerCompleted || a.Exit != 0 {
			t.Errorf("recover %s: %+v", verb, a)
		}
		again := w.answer(id)
		first.At = again.At // of a rejection: the ledger's own clock
		if diff := cmp.Diff(first, again, cmp.Comparer(func(x, y *caisson.Error) bool {
			return (x == nil) == (y == nil) && (x == nil || x.Code == y.Code && x.Message == y.Message)
		})); diff != "" {
			t.Errorf("%s: %s", verb, diff)
		}
		if n := w.done(id); n > 1 {
			t.Errorf("%s was done %d times", verb, n)
		}
	}
	if a := w.answer(w.ask("recover", `{"id":"`+string(newRequestID())+`"}`)); a.State != caisson.AnswerCompleted || a.Exit != 1 || a.Error.Code != caisson.CodeNotFound {
		t.Errorf("recover what never was: %+v", a)
	}
}
