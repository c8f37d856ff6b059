package airlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/internal/fault"
)

// The ledger takes no writes right after a tool succeeded: the run is told why,
// nothing is done again, and it goes on when there is space. Origin:
// openai-agents PR4621.
func TestCase_R19(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		w.options.SettleFor = time.Millisecond
		w.options.OnUnknown = airlock.OnUnknownTell
		full := func() {}
		w.tools["write"].(*doer).open = func(context.Context, caisson.Call) (caisson.Result, error) {
			full = fault.Arm("ledger.commit.before", fault.ENOSPC, 1)
			return caisson.Result{Text: "did it"}, nil
		}
		lock := airlock.New(w.options)
		batch := []airlock.Request{w.request(1, "write", "a"), w.request(2, "read", "b")}
		s, err := enter(lock, w.drive).Settle(t.Context(), batch)
		full()
		if caisson.CodeOf(err) != caisson.CodeDiskFull || !strings.HasPrefix(states(s), "started") {
			t.Fatalf("%v, states %s", err, states(s))
		}
		want := "done done"
		if restart { // what only memory knew is gone
			lock, want = airlock.New(w.options), "unknown done"
		}
		w.takeOver()
		s, err = enter(lock, w.drive).Settle(t.Context(), batch)
		if err != nil || states(s) != want || w.done()[batch[0].ID] != 1 {
			t.Errorf("restart %v: %v, states %s, effects %v", restart, err, states(s), w.done())
		}
	}
}

// A short time without space is waited for.
func TestSettleTriesAgain(t *testing.T) {
	w := newWorld(t)
	w.tools["write"].(*doer).open = func(context.Context, caisson.Call) (caisson.Result, error) {
		t.Cleanup(fault.Arm("ledger.commit.before", fault.ENOSPC, 1))
		return caisson.Result{Text: "did it"}, nil
	}
	if s := w.settle(w.request(1, "write", "a")); states(s) != "done" {
		t.Errorf("states %s", states(s))
	}
}

// No space when a call is about to begin, or to be asked about: it does not
// begin, and is not asked about twice.
func TestDiskFullBefore(t *testing.T) {
	for _, tool := range []string{"write", "gated"} {
		w := newWorld(t)
		r := w.request(1, tool, "a")
		disarm := fault.Arm("ledger.commit.before", fault.ENOSPC, 1)
		_, err := w.door().Settle(t.Context(), []airlock.Request{r})
		disarm()
		if caisson.CodeOf(err) != caisson.CodeDiskFull || len(w.done()) != 0 {
			t.Errorf("%s: %v, effects %v", tool, err, w.done())
		}
		want := map[string]string{"write": "done", "gated": "asked"}[tool]
		if s := w.settle(r); states(s) != want || w.events(caisson.EventReviewOpened) > 1 {
			t.Errorf("%s: states %s", tool, states(s))
		}
	}
}

// Ids are ours: foreign ones, doubles and those in use are refused before anything happens.
func TestForeignIDs(t *testing.T) {
	w := newWorld(t)
	good := w.request(1, "write", "a")
	foreign, nested, empty := good, good, good
	foreign.ID = "rother.1.1"
	nested.Parent = "r.9"
	empty.ID = ""
	for name, batch := range map[string][]airlock.Request{"foreign": {foreign}, "nested": {nested}, "double": {good, good}, "empty": {empty}} {
		if _, err := w.door().Settle(t.Context(), batch); caisson.CodeOf(err) != caisson.CodeCallUnknown {
			t.Errorf("%s: %v", name, err)
		}
	}
	door := w.door()
	w.tools["write"].(*doer).open = func(context.Context, caisson.Call) (caisson.Result, error) {
		if _, err := door.Settle(t.Context(), []airlock.Request{good}); caisson.CodeOf(err) != caisson.CodeCallUnknown {
			t.Errorf("in use: %v", err)
		}
		return caisson.Result{}, nil
	}
	if s, err := door.Settle(t.Context(), []airlock.Request{good}); err != nil || states(s) != "done" || len(w.done()) != 1 {
		t.Errorf("%v, %s", err, states(s))
	}
}

// Calls run in order, alone, but for those that declare that they may run
// beside their like, and never more of these than may.
func TestChain(t *testing.T) {
	w := newWorld(t)
	w.options.Parallel = 2
	var mu sync.Mutex
	var order []string
	busy, most, alone := 0, 0, true
	open := func(own bool) func(context.Context, caisson.Call) (caisson.Result, error) {
		return func(_ context.Context, call caisson.Call) (caisson.Result, error) {
			mu.Lock()
			busy++
			most = max(most, busy)
			alone = alone && (!own || busy == 1)
			order = append(order, string(call.ID)[len(w.run)+3:])
			mu.Unlock()
			w.await(airlock.NoticeStarted, 1)
			mu.Lock()
			busy--
			mu.Unlock()
			return caisson.Result{Text: "ok"}, nil
		}
	}
	w.tools["write"].(*doer).open, w.tools["side"].(*doer).open = open(true), open(false)
	s := w.settle(w.request(1, "side", ""), w.request(2, "side", ""), w.request(3, "side", ""), w.request(4, "write", ""), w.request(5, "write", ""), w.request(6, "side", ""))
	if states(s) != "done done done done done done" || most > 2 || !alone {
		t.Errorf("states %s, at most %d, alone %v", states(s), most, alone)
	}
	if got := strings.Join(order[3:], " "); got != "4 5 6" {
		t.Errorf("order %v", order)
	}
}

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

type counterHook struct{ n int }

func (h *counterHook) Name() string { return "counter" }
func (h *counterHook) Before(context.Context, caisson.ToolRef, json.RawMessage) (json.RawMessage, error) {
	h.n++
	return json.Marshal(map[string]any{"text": "x", "count": h.n})
}

type refusingHook struct{}

func (refusingHook) Name() string { return "refusing" }
func (refusingHook) Before(context.Context, caisson.ToolRef, json.RawMessage) (json.RawMessage, error) {
	return nil, errors.New("not on a Sunday")
}

type brokenHook struct{}

func (brokenHook) Name() string { return "broken" }
func (brokenHook) Before(context.Context, caisson.ToolRef, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{"text":`), nil
}

// Hooks may change a call, but not each time they see it.
func TestHooks(t *testing.T) {
	for _, c := range []struct {
		hook caisson.Hook
		code caisson.Code
		says string
	}{
		{&settingHook{"set"}, "", "set"},
		{&counterHook{}, caisson.CodePrepareUnstable, "counter"},
		{refusingHook{}, caisson.CodeRefused, "not on a Sunday"},
		{brokenHook{}, caisson.CodeCallInvalid, "broken"},
	} {
		w := newWorld(t)
		w.options.Hooks = []caisson.Hook{c.hook}
		s := w.settle(w.request(1, "write", "a"))
		r := s.Records[0].Result
		var code caisson.Code
		if r.Error != nil {
			code = r.Error.Code
		}
		if code != c.code || !strings.Contains(r.Text, c.says) || (code == "") != (len(w.done()) == 1) {
			t.Errorf("%s: %s, %+v", c.hook.Name(), states(s), r)
		}
	}
}

// What a doer returns becomes an outcome that a started call can have.
func TestDoerResults(t *testing.T) {
	for _, c := range []struct {
		result  caisson.Result
		err     error
		outcome caisson.Outcome
	}{
		{caisson.Result{Text: "x"}, nil, caisson.OutcomeDone},
		{caisson.Result{Outcome: caisson.OutcomeRefused, Text: "x"}, nil, caisson.OutcomeFailed},
		{caisson.Result{Outcome: "odd", Text: "x"}, nil, caisson.OutcomeFailed},
		{caisson.Result{}, errors.New("broke"), caisson.OutcomeFailed},
		{caisson.Result{}, context.Canceled, caisson.OutcomeFailed}, // nobody cancelled it
		{caisson.Result{Text: "half"}, caisson.Errorf(caisson.CodeOutcomeUnknown, "the sandbox is lost"), caisson.OutcomeUnknown},
	} {
		w := newWorld(t)
		w.options.OnUnknown = airlock.OnUnknownTell
		w.tools["write"].(*doer).open = func(context.Context, caisson.Call) (caisson.Result, error) { return c.result, c.err }
		s := w.settle(w.request(1, "write", "a"))
		if got := s.Records[0]; got.State.Outcome() != c.outcome || got.Result.Text == "" || !strings.Contains(got.Result.Text, c.result.Text) {
			t.Errorf("%+v, %v: %s, %+v", c.result, c.err, got.State, got.Result)
		}
	}
}

// A doer that says that its end is unknown is asked about as after a crash, and
// what it produced is told.
func TestUnknownLive(t *testing.T) {
	w := newWorld(t)
	w.tools["write"].(*doer).open = func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Text: "half"}, caisson.Errorf(caisson.CodeOutcomeUnknown, "the sandbox is lost")
	}
	w.options.ParkAfter = time.Hour
	go func() {
		asked := w.await(airlock.NoticeAsked, 1)
		w.decide(asked[0].Review.ID, caisson.Decision{Kind: caisson.Answer, Options: []string{"stop"}})
	}()
	s := w.settle(w.request(1, "write", "a"))
	if states(s) != "unknown" || !s.Abort || !strings.Contains(s.Records[0].Result.Text, "half") {
		t.Errorf("states %s, abort %v, %+v", states(s), s.Abort, s.Records[0].Result)
	}
}

// A doer that cannot be made ready has not begun; the others go on.
func TestHoldFails(t *testing.T) {
	w := newWorld(t)
	w.tools["write"].(*doer).hold = func(context.Context) error {
		return caisson.Errorf(caisson.CodeHostFull, "no room")
	}
	s := w.settle(w.request(1, "write", "a"), w.request(2, "read", "b"))
	if states(s) != "not-started done" || s.Records[0].Result.Error.Code != caisson.CodeHostFull || w.done()[s.Records[0].Call.ID] != 0 {
		t.Errorf("states %s, %+v", states(s), s.Records[0].Result)
	}
}

// Calls of a parent whose doer is gone are ended before the parent is.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	parent := w.request(1, "write", "p")
	ctx := t.Context()
	start := func(id, parent caisson.CallID) caisson.Call {
		call := caisson.Call{ID: id, Run: w.run, Turn: 1, Parent: parent, Tool: caisson.ToolRef{Name: "write"}, Effect: caisson.EffectUnsafe, Reach: caisson.ReachOutside, Input: json.RawMessage(`{}`)}
		var err error
		if call.InputDigest, err = call.SumInput(); err != nil {
			t.Fatal(err)
		}
		if call.Digest, err = call.Sum(); err != nil {
			t.Fatal(err)
		}
		return call
	}
	allow := caisson.Verdict{Ruling: caisson.Allow}
	for _, call := range []caisson.Call{start(parent.ID, ""), start(parent.ID.Nested(1), parent.ID)} {
		if _, err := w.ledger.StartCall(ctx, w.drive, caisson.CallStart{Call: call, Verdict: allow}); err != nil {
			t.Fatal(err)
		}
	}
	asked := start(parent.ID.Nested(2), parent.ID)
	review, err := w.ledger.AskReview(ctx, w.drive, caisson.Review{Run: w.run, Call: asked, Kind: caisson.ReviewCall, Verdict: caisson.Verdict{Ruling: caisson.ReviewIt}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w.options.OnUnknown = airlock.OnUnknownTell
	w.takeOver()
	if s := w.settle(parent); states(s) != "unknown" {
		t.Errorf("states %s", states(s))
	}
	for id, want := range map[caisson.CallID]caisson.CallState{parent.ID.Nested(1): "unknown", parent.ID.Nested(2): "not-started"} {
		if rec, err := w.ledger.Call(ctx, id); err != nil || rec.State != want {
			t.Errorf("%s is %s, %v", id, rec.State, err)
		}
	}
	if r, err := w.ledger.Review(ctx, review.ID); err != nil || r.State != caisson.ReviewWithdrawn || r.Reason != "parent-gone" {
		t.Errorf("the review is %s (%s), %v", r.State, r.Reason, err)
	}
}

// A budget that is used up refuses the start; nothing is done.
func TestBudget(t *testing.T) {
	w := newWorld(t)
	id := caisson.NewRunID()
	if _, err := w.ledger.CreateRun(t.Context(), id, caisson.RunSpec{Prompt: "x", Root: id, Engine: "none", Preset: "sandboxed", OnUnknown: "ask", Budget: caisson.Amount{Calls: 1}}); err != nil {
		t.Fatal(err)
	}
	w.run = id
	w.takeOver()
	if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		t.Fatal(err)
	}
	s := w.settle(w.request(1, "write", "a"), w.request(2, "write", "b"))
	if states(s) != "done not-started" || s.Records[1].Result.Error.Code != caisson.CodeBudgetExceeded || len(w.done()) != 1 {
		t.Errorf("states %s, %+v", states(s), s.Records[1].Result)
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

// Who moves the run hears that it goes on before a call begins.
func TestNoticesFrameTheWait(t *testing.T) {
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
			w.decide(open[0].ID, approve())
		case airlock.NoticeGoing:
			moved(caisson.RunRunning)
		}
	}
	if s := w.settle(w.request(1, "gated", "a")); states(s) != "done" {
		t.Errorf("states %s", states(s))
	}
}
