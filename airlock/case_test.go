package airlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

func approve() caisson.Decision { return caisson.Decision{Kind: caisson.Approve} }

// Three gated calls in one turn, answered in reverse order from another
// process: each gets its own answer and runs once. Origin: langgraph 6533, 6624.
func TestCase_R01(t *testing.T) {
	w := newWorld(t)
	batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "gated", "b"), w.request(3, "gated", "c")}
	s := w.settle(batch...)
	if len(s.Waiting) != 3 || states(s) != "asked asked asked" {
		t.Fatalf("waiting %v, states %s", s.Waiting, states(s))
	}
	for i := len(s.Waiting) - 1; i >= 0; i-- {
		runChild(t, child{Mode: "decide", Dir: w.dir, Run: w.run, Review: s.Waiting[i], Decision: caisson.Approve}, "").mustEnd(t)
	}
	s = w.settle(batch...)
	if states(s) != "done done done" || len(s.Waiting) != 0 {
		t.Fatalf("states %s, waiting %v", states(s), s.Waiting)
	}
	for i, text := range []string{"a", "b", "c"} {
		if got := s.Records[i]; !strings.Contains(got.Result.Text, `"text":"`+text+`"`) || w.done()[got.Call.ID] != 1 {
			t.Errorf("call %d: %q, done %d times", i, got.Result.Text, w.done()[got.Call.ID])
		}
	}
}

// One of three is rejected: it never runs by any path, the others run once, and
// there are three results. Origin: langchain 37093.
func TestCase_R02(t *testing.T) {
	w := newWorld(t)
	hook := &countingHook{}
	w.options.Hooks = []caisson.Hook{hook}
	batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "gated", "b"), w.request(3, "write", "c")}
	s := w.settle(batch...)
	if states(s) != "asked asked done" {
		t.Fatalf("states %s", states(s))
	}
	w.decide(s.Waiting[0], approve())
	w.decide(s.Waiting[1], caisson.Decision{Kind: caisson.Reject, Feedback: "use the other file"})
	hook.inputs = nil
	s = w.settle(batch...)
	if states(s) != "done refused done" {
		t.Fatalf("states %s", states(s))
	}
	if got := s.Records[1].Result.Text; !strings.Contains(got, "use the other file") {
		t.Errorf("the model is not told why: %q", got)
	}
	if got := strings.Join(hook.inputs, " "); strings.Contains(got, `"b"`) {
		t.Errorf("the rejected call reached a hook: %s", got)
	}
	w.settle(batch...) // replay
	done := w.done()
	if done[batch[0].ID] != 1 || done[batch[1].ID] != 0 || done[batch[2].ID] != 1 {
		t.Errorf("effects %v", done)
	}
}

type countingHook struct{ inputs []string }

func (h *countingHook) Name() string { return "counting" }
func (h *countingHook) Before(_ context.Context, _ caisson.ToolRef, input json.RawMessage) (json.RawMessage, error) {
	h.inputs = append(h.inputs, string(input))
	return nil, nil
}

// Two drivers go for an approved call: one has lost its lease, and does
// nothing; the call runs once. Origin: langgraph 8796, adk-go PR1120.
func TestCase_R03(t *testing.T) {
	w := newWorld(t)
	r := w.request(1, "gated", "a")
	s := w.settle(r)
	w.decide(s.Waiting[0], approve())
	old := w.door()
	w.takeOver()
	young := w.door()
	if _, err := old.Settle(t.Context(), []airlock.Request{r}); caisson.CodeOf(err) != caisson.CodeLeaseLost {
		t.Errorf("the old driver got %v", err)
	}
	if n := w.done()[r.ID]; n != 0 {
		t.Fatalf("the old driver did it %d times", n)
	}
	got, err := young.Settle(t.Context(), []airlock.Request{r})
	if err != nil || states(got) != "done" || w.done()[r.ID] != 1 {
		t.Errorf("the new driver: %v, %s, done %d times", err, states(got), w.done()[r.ID])
	}
}

// A driver that loses its lease in the middle of an effect stops it and writes nothing.
func TestLeaseLostStopsDoers(t *testing.T) {
	w := newWorld(t)
	opened := make(chan struct{})
	var cause error
	slow := w.tools["write"].(*doer)
	slow.open = func(ctx context.Context, _ caisson.Call) (caisson.Result, error) {
		close(opened)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return caisson.Result{}, cause
	}
	side := w.tools["side"].(*doer)
	slow.spec.Parallel = true
	side.open = func(context.Context, caisson.Call) (caisson.Result, error) {
		<-opened
		w.takeOver()
		return caisson.Result{Text: "x"}, nil
	}
	_, err := w.door().Settle(t.Context(), []airlock.Request{w.request(1, "write", "a"), w.request(2, "side", "b")})
	if caisson.CodeOf(err) != caisson.CodeLeaseLost {
		t.Errorf("got %v", err)
	}
	var named *caisson.CauseError
	if !errors.As(cause, &named) || named.Cause != caisson.CauseLeaseLost {
		t.Errorf("the doer was stopped for %v", cause)
	}
	w.options.OnUnknown = airlock.OnUnknownTell
	s := w.settle(w.request(1, "write", "a"), w.request(2, "side", "b"))
	if states(s) != "unknown unknown" {
		t.Errorf("states %s", states(s))
	}
}

type settingHook struct{ text string }

func (h *settingHook) Name() string { return "setting" }
func (h *settingHook) Before(_ context.Context, _ caisson.ToolRef, _ json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"text": h.text})
}

// What a hook adds changes between asking and use: not run on the old
// approval, asked again. Origin: pydantic-ai 6968.
func TestCase_R05(t *testing.T) {
	for _, today := range []caisson.Ruling{caisson.ReviewIt, caisson.Allow} {
		t.Run(string(today), func(t *testing.T) {
			w := newWorld(t)
			hook := &settingHook{"one"}
			w.options.Hooks = []caisson.Hook{hook}
			r := w.request(1, "gated", "a")
			first := w.settle(r)
			w.decide(first.Waiting[0], approve())
			hook.text = "two"
			w.options.Judge = rules("gated", string(today))
			second := w.settle(r)
			if states(second) != "asked" || second.Waiting[0] == first.Waiting[0] || len(w.done()) != 0 {
				t.Fatalf("states %s, waiting %v, effects %v", states(second), second.Waiting, w.done())
			}
			if n := w.events(caisson.EventReviewStale); n != 1 {
				t.Errorf("%d events say that the approval is stale", n)
			}
			w.decide(second.Waiting[0], approve())
			third := w.settle(r)
			if states(third) != "done" || !strings.Contains(third.Records[0].Result.Text, "two") || w.done()[r.ID] != 1 {
				t.Errorf("states %s, %+v", states(third), third.Records[0].Result)
			}
		})
	}
}

// Policy denies now what was approved: refused and audited. Origin: ai PR15947.
func TestCase_R06(t *testing.T) {
	for _, judge := range []caisson.Judge{rules("gated", "deny"), nil} {
		w := newWorld(t)
		r := w.request(1, "gated", "a")
		s := w.settle(r)
		w.decide(s.Waiting[0], approve())
		w.options.Judge = judge
		s = w.settle(r)
		if states(s) != "refused" || len(w.done()) != 0 || w.events(caisson.EventReviewStale) != 1 {
			t.Errorf("states %s, effects %v, stale events %d", states(s), w.done(), w.events(caisson.EventReviewStale))
		}
	}
}

// Policy was tightened to ask again: a new review, and the old decision stays
// as evidence. Origin: openai-agents 4896.
func TestCase_R07(t *testing.T) {
	w := newWorld(t)
	r := w.request(1, "gated", "a")
	first := w.settle(r)
	w.decide(first.Waiting[0], approve())
	tight := rules("gated", "review")
	v := tight.rules["gated"]
	v.Again, v.RuleDigest = true, "another text"
	tight.rules["gated"] = v
	w.options.Judge = tight
	second := w.settle(r)
	if states(second) != "asked" || second.Waiting[0] == first.Waiting[0] || len(w.done()) != 0 {
		t.Fatalf("states %s, waiting %v, effects %v", states(second), second.Waiting, w.done())
	}
	old, err := w.ledger.Review(t.Context(), first.Waiting[0])
	if err != nil || old.State != caisson.ReviewDecided || old.Decision.Kind != caisson.Approve || old.Consumed {
		t.Errorf("the old review is %+v, %v", old, err)
	}
	w.decide(second.Waiting[0], approve())
	if s := w.settle(r); states(s) != "done" || w.done()[r.ID] != 1 {
		t.Errorf("states %s, effects %v", states(s), w.done())
	}
}

// A decision that is missing, of the wrong kind or for a forged id: nothing
// runs and the review stays open. Origin: pydantic-ai 8060, agent-framework 4597.
func TestCase_R08(t *testing.T) {
	w := newWorld(t)
	r := w.request(1, "gated", "a")
	s := w.settle(r)
	id := s.Waiting[0]
	stored, err := w.ledger.Review(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		id     caisson.ReviewID
		digest caisson.Digest
		d      caisson.Decision
		want   caisson.Code
	}{
		{"wrong kind", id, stored.Call.Digest, caisson.Decision{Kind: caisson.Answer, By: "x"}, caisson.CodeDecisionKindMismatch},
		{"no kind", id, stored.Call.Digest, caisson.Decision{By: "x"}, caisson.CodeDecisionKindMismatch},
		{"unknown kind", id, stored.Call.Digest, caisson.Decision{Kind: "yes", By: "x"}, caisson.CodeDecisionKindMismatch},
		{"wrong digest", id, "0", caisson.Decision{Kind: caisson.Approve, By: "x"}, caisson.CodeReviewDigestMismatch},
		{"forged id", "q999999", stored.Call.Digest, caisson.Decision{Kind: caisson.Approve, By: "x"}, caisson.CodeNotFound},
	} {
		if _, err := w.ledger.Decide(t.Context(), c.id, c.digest, c.d, time.Hour); caisson.CodeOf(err) != c.want {
			t.Errorf("%s: got %v", c.name, err)
		}
		if s := w.settle(r); len(s.Waiting) != 1 || s.Waiting[0] != id || len(w.done()) != 0 {
			t.Errorf("%s: waiting %v, effects %v", c.name, s.Waiting, w.done())
		}
	}
}

// The answer arrives while the one who asked is still about to park: it is
// delivered. Origin: inngest 1433.
func TestCase_R09(t *testing.T) {
	w := newWorld(t)
	w.options.Observe = func(n airlock.Notice) {
		if n.Kind == airlock.NoticeWaiting {
			reviews, err := w.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
			if err != nil || len(reviews) != 1 {
				t.Errorf("reviews %v, %v", reviews, err)
				return
			}
			w.decide(reviews[0].ID, approve())
		}
	}
	r := w.request(1, "gated", "a")
	if s := w.settle(r); states(s) != "done" || w.done()[r.ID] != 1 {
		t.Errorf("states %s, waiting %v", states(s), s.Waiting)
	}
}

// A gated call inside a call is asked once, answered once, and goes on where it
// was asked. Origin: openai-agents 2487, 5141.
func TestCase_R12(t *testing.T) {
	w := newWorld(t)
	var door *airlock.Door
	var inner airlock.Settled
	parent := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: "parent"}, CallsTools: true, Effect: caisson.EffectRead}, effects: w.effectsPath()}
	parent.open = func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
		n, err := door.Nested(call.ID)
		if err != nil {
			return caisson.Result{}, err
		}
		inner, err = n.Settle(ctx, []airlock.Request{
			{Name: "gated", Tool: w.tools["gated"], Input: `{"text":"inner"}`},
			{Name: "write", Tool: w.tools["write"], Input: `{"text":"inner"}`},
		})
		return caisson.Result{Text: "parent"}, err
	}
	w.tools["parent"] = parent
	door = w.door()
	type got struct {
		s   airlock.Settled
		err error
	}
	ends := make(chan got, 1)
	go func() {
		s, err := door.Settle(t.Context(), []airlock.Request{w.request(1, "parent", "p")})
		ends <- got{s, err}
	}()
	asked := w.await(airlock.NoticeAsked, 1)
	if asked[0].Review.Call.ID != caisson.NewCallID(w.run, 1, 1).Nested(1) || asked[0].Review.Call.Parent != caisson.NewCallID(w.run, 1, 1) {
		t.Errorf("asked for %+v", asked[0].Review.Call)
	}
	w.decide(asked[0].Review.ID, approve())
	e := <-ends
	if e.err != nil || states(e.s) != "done" || states(inner) != "done done" {
		t.Errorf("%v: outer %s, inner %s", e.err, states(e.s), states(inner))
	}
	if e.s.Records[0].Call.Effect != caisson.EffectUnsafe {
		t.Errorf("a tool that calls tools is %s", e.s.Records[0].Call.Effect)
	}
	if n := len(w.await(airlock.NoticeAsked, 1)); n != 1 {
		t.Errorf("asked %d times", n)
	}
	for id, n := range w.done() {
		if n != 1 {
			t.Errorf("%s was done %d times", id, n)
		}
	}
}

// A grant for a tool of one server says nothing about the tool of that name of
// another. Origin: openai-agents-js PR1600.
func TestCase_R13(t *testing.T) {
	w := newWorld(t)
	for _, server := range []string{"a", "b"} {
		w.tools[server] = &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Server: server, Name: "gated"}}, effects: w.effectsPath()}
	}
	judge := rules("a/gated", "review", "b/gated", "review")
	w.options.Judge = judge
	s := w.settle(w.request(1, "a", "x"))
	review, err := w.ledger.Review(t.Context(), s.Waiting[0])
	if err != nil {
		t.Fatal(err)
	}
	w.decide(review.ID, caisson.Decision{Kind: caisson.Approve, Grant: &caisson.Grant{
		ID: "g1", Run: w.run, Tool: review.Call.Tool, InputDigest: review.Call.InputDigest, PolicyDigest: judge.digest, Review: review.ID,
	}})
	s = w.settle(w.request(1, "a", "x"), w.request(2, "b", "x"), w.request(3, "a", "x"), w.request(4, "a", "y"))
	if states(s) != "done asked done asked" {
		t.Errorf("states %s", states(s))
	}
}

// A very large value is asked about, approved and done. Origin: Mastra 22413.
func TestCase_R14(t *testing.T) {
	w := newWorld(t)
	gated := w.tools["gated"].(previewer)
	var got int
	gated.open = func(_ context.Context, call caisson.Call) (caisson.Result, error) {
		got = len(call.Input)
		return caisson.Result{Text: "ok"}, nil
	}
	gated.doer.effects = "/dev/null"
	r := w.request(1, "gated", strings.Repeat("0123456789abcdef", 1<<18)) // 4 MiB
	s := w.settle(r)
	if states(s) != "asked" {
		t.Fatalf("states %s", states(s))
	}
	w.decide(s.Waiting[0], approve())
	if s := w.settle(r); states(s) != "done" || got < 4<<20 {
		t.Errorf("states %s, input of %d bytes", states(s), got)
	}
}

// Arguments that were cut are mended for a read at most, else refused with what
// is wrong. Origin: fantasy PR294.
func TestCase_R15(t *testing.T) {
	w := newWorld(t)
	cut := func(n int, tool, input string) airlock.Request {
		r := w.request(n, tool, "")
		r.Input = input
		return r
	}
	s := w.settle(
		cut(1, "write", `{"text":"half of a val`),
		cut(2, "read", `{"text":"half of a val`),
		cut(3, "write", `{"text":"a"}{"text":"b"}`),
		cut(4, "write", `{"tex":"a"}`),
		cut(5, "write", ``),
		cut(6, "write", `{"text":"whole"}`),
	)
	if states(s) != "refused done refused refused refused done" {
		t.Errorf("states %s", states(s))
	}
	for _, i := range []int{0, 2, 3, 4} {
		r := s.Records[i].Result
		if r.Error == nil || r.Error.Code != caisson.CodeCallInvalid || r.Text == "" {
			t.Errorf("call %d: %+v", i+1, r)
		}
	}
	if got := s.Records[3].Result.Text; !strings.Contains(got, "tex") {
		t.Errorf("does not say what is wrong: %q", got)
	}
	if len(w.done()) != 2 {
		t.Errorf("effects %v", w.done())
	}
}

// One of four parallel calls fails: the others keep their results. Origin:
// openai-agents PR2584.
func TestCase_R17(t *testing.T) {
	w := newWorld(t)
	broken := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: "broken"}, Parallel: true}, effects: w.effectsPath()}
	broken.open = func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{}, errors.New("broke")
	}
	w.tools["broken"] = broken
	s := w.settle(w.request(1, "side", "a"), w.request(2, "broken", "b"), w.request(3, "side", "c"), w.request(4, "side", "d"), w.request(5, "fail", "e"), w.request(6, "missing", "f"))
	if states(s) != "done failed done done failed refused" {
		t.Errorf("states %s", states(s))
	}
	for i, r := range s.Records {
		if r.Result == nil || r.Result.Text == "" {
			t.Errorf("call %d has no result", i+1)
		}
	}
	if got := s.Records[5].Result.Error; got.Code != caisson.CodeToolUnknown {
		t.Errorf("an unknown tool: %v", got)
	}
}

// A result that is too large is bounded, whatever the tool does. Origin: pydantic-ai 7110.
func TestCase_R18(t *testing.T) {
	w := newWorld(t)
	w.options.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
	w.tools["write"].(*doer).open = func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{
			Text:    "the head hunter2 " + strings.Repeat("é\xff", 1<<20) + " the tail",
			Summary: "two\nlines hunter2", Data: json.RawMessage(`{"key":["hunter2"]}`), Error: caisson.Errorf(caisson.CodeInternal, "hunter2"),
		}, nil
	}
	s := w.settle(w.request(1, "write", "a"))
	r := s.Records[0].Result
	if len(r.Text) > 40_000 || strings.ToValidUTF8(r.Text, "") != r.Text {
		t.Errorf("%d bytes, valid %v", len(r.Text), strings.ToValidUTF8(r.Text, "") == r.Text)
	}
	if !strings.HasPrefix(r.Text, "the head [redacted] ") || !strings.HasSuffix(r.Text, " the tail") {
		t.Errorf("head %q, tail %q", r.Text[:30], r.Text[len(r.Text)-30:])
	}
	raw, err := json.Marshal(s.Records[0])
	if err != nil || strings.Contains(string(raw), "hunter2") {
		t.Errorf("the secret is in the record: %s", raw[:200])
	}
	if r.Summary != "two" || string(r.Data) != `{"key":["[redacted]"]}` {
		t.Errorf("summary %q, data %s", r.Summary, r.Data)
	}
}
