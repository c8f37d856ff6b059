package airlock_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// A reviewed call leaves the chain and joins its end when it is decided; the
// results keep the order of the calls. The decision comes while Settle waits.
func TestLiveDecision(t *testing.T) {
	w := newWorld(t)
	w.options.ParkAfter = time.Hour
	batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "write", "b"), w.request(3, "gated", "c")}
	go func() {
		w.await(airlock.NoticeWaiting, 1)
		asked := w.await(airlock.NoticeAsked, 2)
		runChild(t, child{Mode: "decide", Dir: w.dir, Run: w.run, Review: asked[1].Review.ID, Decision: caisson.Approve}, "")
		w.await(airlock.NoticeSettled, 2)
		w.decide(asked[0].Review.ID, caisson.Decision{Kind: caisson.Approve})
	}()
	s := w.settle(batch...)
	if states(s) != "done done done" {
		t.Fatalf("states %s", states(s))
	}
	var order []caisson.CallID
	for _, n := range w.await(airlock.NoticeSettled, 3) {
		order = append(order, n.Record.Call.ID)
	}
	if order[0] != batch[1].ID || order[1] != batch[2].ID || order[2] != batch[0].ID || s.Records[0].Call.ID != batch[0].ID {
		t.Errorf("order %v", order)
	}
	if got := w.await(airlock.NoticeAsked, 1)[0].Review; !strings.Contains(got.Preview, `"a"`) || got.Schema == nil {
		t.Errorf("the review shows %q and schema %s", got.Preview, got.Schema)
	}
}

// An unattended run refuses what would be asked, questions too.
func TestUnattended(t *testing.T) {
	w := newWorld(t)
	w.options.Unattended = true
	s := w.settle(w.request(1, "gated", "a"), w.request(2, "ask", "b"), w.request(3, "denied", "c"))
	if states(s) != "refused refused refused" || w.events(caisson.EventReviewOpened) != 0 || len(w.done()) != 0 {
		t.Errorf("states %s", states(s))
	}
	for i, want := range []string{"unattended", "unattended", "rule-denied"} {
		if got := s.Records[i].Result.Text; !strings.Contains(got, want) {
			t.Errorf("call %d: %q", i+1, got)
		}
	}
}

// A question is answered by its decision and is nothing else.
func TestQuestion(t *testing.T) {
	w := newWorld(t)
	r := w.request(1, "ask", "shall I?")
	s := w.settle(r, w.request(2, "ask", "and this?"))
	review, err := w.ledger.Review(t.Context(), s.Waiting[0])
	if err != nil || review.Kind != caisson.ReviewQuestion || review.Question.Text != "shall I?" {
		t.Fatalf("%+v, %v", review, err)
	}
	w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Answer, Options: []string{"yes"}})
	w.decide(s.Waiting[1], caisson.Decision{Kind: caisson.Reject, Feedback: "do not ask"})
	s = w.settle(r, w.request(2, "ask", "and this?"))
	if states(s) != "done refused" || s.Records[0].Result.Text != "answer: yes" || !strings.Contains(s.Records[1].Result.Text, "do not ask") {
		t.Errorf("states %s, %+v", states(s), s.Records)
	}
}

// A person gives another input.
func TestModify(t *testing.T) {
	other := json.RawMessage(`{"text":"other"}`)
	for _, c := range []struct {
		name  string
		today caisson.Judge
		input json.RawMessage
		exact bool
		want  string
	}{
		{"allowed today", rules(), other, false, "done"},
		{"denied today", rules("gated", "deny"), other, false, "refused"},
		{"reviewed today", rules("gated", "review"), other, false, "asked"},
		{"reviewed today, exactly that approved", rules("gated", "review"), other, true, "done"},
		{"not valid", rules("gated", "review"), json.RawMessage(`{"txet":"other"}`), false, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.request(1, "gated", "a")
			s := w.settle(r)
			d := caisson.Decision{Kind: caisson.Modify, Input: c.input}
			if c.exact {
				call := s.Records[0].Call
				call.Input = json.RawMessage(`{"count":1,"text":"other"}`)
				var err error
				if d.ApproveModified, err = call.Sum(); err != nil {
					t.Fatal(err)
				}
			}
			w.decide(s.Waiting[0], d)
			w.options.Judge = c.today
			s = w.settle(r)
			if states(s) != c.want {
				t.Fatalf("states %s, %+v", states(s), s.Records[0].Result)
			}
			if c.want == "asked" {
				// Another driver finds the modified value, and runs that.
				w.takeOver()
				if again := w.settle(r); again.Waiting[0] != s.Waiting[0] {
					t.Errorf("asked again: %v, %v", s.Waiting, again.Waiting)
				}
				w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Approve})
				s = w.settle(r)
			}
			if s.Records[0].State == "done" && !strings.Contains(s.Records[0].Result.Text, "other") {
				t.Errorf("it ran with %q", s.Records[0].Result.Text)
			}
			if n := w.done()[r.ID]; n > 1 || c.want == "refused" && n > 0 {
				t.Errorf("done %d times", n)
			}
		})
	}
}

// A person aborts: what runs is stopped, nothing else begins, and it is known after a restart.
func TestAbort(t *testing.T) {
	w := newWorld(t)
	batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "gated", "b"), w.request(3, "gated", "c")}
	s := w.settle(batch...)
	w.decide(s.Waiting[0], approve())
	w.decide(s.Waiting[1], caisson.Decision{Kind: caisson.Abort})
	for range 2 {
		s = w.settle(batch...)
		if !s.Abort || states(s) != "cancelled refused cancelled" || len(w.done()) != 0 {
			t.Errorf("abort %v, states %s, effects %v", s.Abort, states(s), w.done())
		}
	}
}

// Nobody decides in time: it is asked anew, never done. An approval that is not
// used in time is asked anew too.
func TestExpiry(t *testing.T) {
	w := newWorld(t)
	w.options.ReviewExpiry = time.Nanosecond
	r := w.request(1, "gated", "a")
	first := w.settle(r)
	if len(first.Waiting) != 1 {
		t.Fatalf("states %s", states(first))
	}
	w.options.ReviewExpiry = time.Hour
	second := w.settle(r)
	if states(second) != "asked" || second.Waiting[0] == first.Waiting[0] || len(w.done()) != 0 {
		t.Fatalf("states %s, waiting %v", states(second), second.Waiting)
	}
	if old, err := w.ledger.Review(t.Context(), first.Waiting[0]); err != nil || old.State == caisson.ReviewOpen || old.State == caisson.ReviewDecided {
		t.Errorf("the old one is %s, %v", old.State, err)
	}
	w.decide(second.Waiting[0], approve())
	w.options.ApprovalTTL = time.Nanosecond
	third := w.settle(r)
	if states(third) != "asked" || third.Waiting[0] == second.Waiting[0] || len(w.done()) != 0 {
		t.Errorf("states %s, waiting %v", states(third), third.Waiting)
	}
}

// A review that expires while policy has become milder: the call runs without it.
func TestExpiredAndAllowed(t *testing.T) {
	w := newWorld(t)
	w.options.ReviewExpiry = time.Nanosecond
	r := w.request(1, "gated", "a")
	w.settle(r)
	w.options.Judge = rules()
	if s := w.settle(r); states(s) != "done" || w.done()[r.ID] != 1 {
		t.Errorf("states %s", states(s))
	}
}

// Nobody decides about a nested call in time: its doer is told no, and does not
// wait for ever.
func TestNestedExpiry(t *testing.T) {
	w := newWorld(t)
	w.options.ReviewExpiry = time.Millisecond
	var door *airlock.Door
	var inner airlock.Settled
	parent := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: "parent"}, CallsTools: true}, effects: w.effectsPath()}
	parent.open = func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
		n, err := door.Nested(call.ID)
		if err != nil {
			return caisson.Result{}, err
		}
		inner, err = n.Settle(ctx, []airlock.Request{{Name: "gated", Tool: w.tools["gated"], Input: `{"text":"y"}`}})
		return caisson.Result{Text: "ok"}, err
	}
	w.tools["parent"] = parent
	door = w.door()
	s, err := door.Settle(t.Context(), []airlock.Request{w.request(1, "parent", "p")})
	if err != nil || states(s) != "done" || states(inner) != "refused" || inner.Records[0].Result.Error.Code != caisson.CodeReviewExpired {
		t.Errorf("%v, outer %s, inner %s", err, states(s), states(inner))
	}
}

// A grant that is revoked while a call that it covers stands in the chain does
// not let it pass any more.
func TestRevokedInChain(t *testing.T) {
	w := newWorld(t)
	judge := rules("gated", "review")
	w.options.Judge = judge
	s := w.settle(w.request(1, "gated", "same"))
	first := s.Records[0].Call
	w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Approve, Grant: &caisson.Grant{InputDigest: first.InputDigest}})
	w.tools["write"].(*doer).open = func(ctx context.Context, _ caisson.Call) (caisson.Result, error) {
		grants, err := w.ledger.Grants(ctx, w.run)
		if err != nil || len(grants) != 1 {
			t.Errorf("grants %v, %v", grants, err)
			return caisson.Result{}, err
		}
		return caisson.Result{Text: "ok"}, w.ledger.RevokeGrant(ctx, w.run, grants[0].ID, "tester")
	}
	s = w.settle(w.request(1, "gated", "same"), w.request(2, "gated", "same"), w.request(3, "write", "x"), w.request(4, "gated", "same"))
	if states(s) != "done done done asked" {
		t.Errorf("states %s", states(s))
	}
}

// Who moves the run hears that it goes on before a call begins, and when what
// was waited for ends without one.
func TestNoticesFrameTheWait(t *testing.T) {
	t.Run("approve", func(t *testing.T) { noticesFrame(t, approve(), "done") })
	t.Run("reject", func(t *testing.T) { noticesFrame(t, caisson.Decision{Kind: caisson.Reject}, "refused") })
}

func noticesFrame(t *testing.T, decision caisson.Decision, want string) {
	w := newWorld(t)
	w.options.ParkAfter = time.Hour
	moved := func(to caisson.RunState) {
		if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: to}); err != nil {
			t.Errorf("move to %s: %v", to, err)
		}
	}
	w.options.Observe = func(n airlock.Notice) {
		switch n.Kind {
		case airlock.NoticeWaiting:
			moved(caisson.RunWaiting)
			open, err := w.ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
			if err != nil || len(open) != 1 {
				t.Errorf("open %v, %v", open, err)
				return
			}
			w.decide(open[0].ID, decision)
		case airlock.NoticeGoing:
			moved(caisson.RunRunning)
		default:
		}
	}
	if s := w.settle(w.request(1, "gated", "a")); states(s) != want {
		t.Errorf("states %s, want %s", states(s), want)
	}
	if run, err := w.ledger.Run(t.Context(), w.run); err != nil || run.State != caisson.RunRunning {
		t.Errorf("the run is %s, %v", run.State, err)
	}
}

// Time passes while nobody drives the run: what was not decided is asked anew,
// what was approved and not used too. Where policy has become milder, the call
// runs without a person, but not as a value that nobody was ever shown.
func TestTimePasses(t *testing.T) {
	for _, c := range []struct {
		name    string
		decided bool
		today   caisson.Judge
		hook    caisson.Hook
		want    string
	}{
		{"not decided", false, rules("gated", "review"), nil, "asked"},
		{"approved", true, rules("gated", "review"), nil, "asked"},
		{"not decided, allowed today", false, rules(), nil, "done"},
		{"not decided, allowed today, another value", false, rules(), &settingHook{"other"}, "asked"},
		{"not decided, denied today", false, rules("gated", "deny"), nil, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.request(1, "gated", "a")
			first := w.settle(r)
			if c.decided {
				w.decide(first.Waiting[0], approve())
			}
			w.later.Store(int64(25 * time.Hour))
			w.options.Judge = c.today
			if c.hook != nil {
				w.options.Hooks = []caisson.Hook{c.hook}
			}
			w.takeOver()
			s := w.settle(r)
			if states(s) != c.want || c.want == "asked" && s.Waiting[0] == first.Waiting[0] || (len(w.done()) == 1) != (c.want == "done") {
				t.Errorf("states %s, waiting %v, effects %v", states(s), s.Waiting, w.done())
			}
		})
	}
}

// A replacement is judged by the schema that the person was shown, also where
// the tool's own has become wider since.
func TestModifyBySchemaOfReview(t *testing.T) {
	w := newWorld(t)
	gated := w.tools["gated"].(previewer)
	gated.spec.Schema = json.RawMessage(`{"type":"object","properties":{"text":{"enum":["a","b"]}},"required":["text"]}`)
	r := w.request(1, "gated", "a")
	s := w.settle(r)
	w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Modify, Input: json.RawMessage(`{"text":"c"}`)})
	gated.spec.Schema = nil
	w.options.Judge = rules()
	if s = w.settle(r); states(s) != "refused" || len(w.done()) != 0 {
		t.Errorf("states %s, effects %v", states(s), w.done())
	}
	review, err := w.ledger.Review(t.Context(), s.Records[0].Review)
	if err != nil || airlock.ValidateModified(review, json.RawMessage(`{"text":"b"}`)) != nil || airlock.ValidateModified(review, json.RawMessage(`{"text":"c"}`)) == nil {
		t.Errorf("%v: the check before deciding says something else", err)
	}
}

// A caller that wants nobody to be asked now gets a call that was not started,
// with its own error; what needs no approval is done.
func TestNotAsked(t *testing.T) {
	w := newWorld(t)
	full := caisson.Errorf(caisson.CodeBusy, "too many are asked")
	batch := []airlock.Request{w.request(1, "gated", "a"), w.request(2, "ask", "b"), w.request(3, "write", "c")}
	for i := range batch {
		batch[i].Ask = func() error { return full }
	}
	s := w.settle(batch...)
	if states(s) != "not-started not-started done" || w.events(caisson.EventReviewOpened) != 0 || len(w.done()) != 1 {
		t.Errorf("states %s, effects %v", states(s), w.done())
	}
	if got := s.Records[0].Result.Error; got == nil || got.Code != caisson.CodeBusy {
		t.Errorf("its error is %v", got)
	}
}
