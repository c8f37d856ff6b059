package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// An answer that is on record and not there is there again when the channel is
// open, with its payload.
func TestAnswersAreRebuilt(t *testing.T) {
	w := newWorld(t)
	spill := filepath.Join(w.dir, "spill")
	whole := bytes.Repeat([]byte("all of it\xff\n"), 10_000)
	if err := os.WriteFile(spill, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	w.add("large", caisson.EffectRead, func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Text: "a part", Spill: &caisson.Spill{Path: spill, Bytes: int64(len(whole)), Total: int64(len(whole)), SHA256: caisson.DigestOf(whole)}}, nil
	})
	w.start()
	large, refused := w.ask("large", `{}`), w.ask("nothing", `{}`)
	first := w.answer(large)
	w.answer(refused)
	payload := filepath.Join(w.channel(), caisson.ControlResponses, string(large)+".payload")
	if raw, err := os.ReadFile(payload); err != nil || !bytes.Equal(raw, whole) || first.Payload != int64(len(whole)) || first.Output != "a part" {
		t.Errorf("%+v with %d bytes, %v", first, len(raw), err)
	}
	w.close()
	responses := filepath.Join(w.channel(), caisson.ControlResponses)
	for name := range w.published() {
		if err := os.Remove(filepath.Join(responses, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.takeOver()
	w.start()
	var again caisson.ControlAnswer
	if !w.file(filepath.Join(caisson.ControlResponses, string(large)+".json"), &again) || !w.has(refused, ".json") {
		t.Fatal("healthy before its answers were there")
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	if raw, err := os.ReadFile(payload); err != nil || !bytes.Equal(raw, whole) {
		t.Errorf("the payload has %d bytes, %v", len(raw), err)
	}
}

// What an answer does not hold is said in it: an output that is longer than a
// payload may be, one that was not kept, and a result that is too large.
func TestAnswersSayWhatIsLeftOut(t *testing.T) {
	w := newWorld(t)
	spill := filepath.Join(w.dir, "spill")
	const all = caisson.ControlPayload + 1000
	if err := os.WriteFile(spill, bytes.Repeat([]byte("x"), all), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := &caisson.Spill{Path: spill, Bytes: all, Total: all}
	data := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("d", n-2) + `"`) }
	cases := map[string]struct {
		result caisson.Result
		want   caisson.ControlAnswer
	}{
		"whole":  {caisson.Result{Text: "all", Bytes: 3, Data: data(caisson.ControlResult)}, caisson.ControlAnswer{}},
		"long":   {caisson.Result{Text: "a part", Bytes: all, Spill: kept}, caisson.ControlAnswer{Payload: caisson.ControlPayload, Produced: all}},
		"kept":   {caisson.Result{Text: "a part", Bytes: 500, Spill: &caisson.Spill{Path: spill, Bytes: 500, Total: 500}}, caisson.ControlAnswer{Payload: 500}},
		"capped": {caisson.Result{Text: "a part", Bytes: 900, Spill: &caisson.Spill{Path: spill, Bytes: 500, Total: 900}}, caisson.ControlAnswer{Payload: 500, Produced: 900}},
		"gone":   {caisson.Result{Text: "a part", Bytes: 900, Spill: &caisson.Spill{Path: spill + "-not", Bytes: 900, Total: 900}}, caisson.ControlAnswer{Produced: 900}},
		"unkept": {caisson.Result{Text: "a part", Bytes: 900}, caisson.ControlAnswer{Produced: 900}},
		"large":  {caisson.Result{Text: "all", Data: data(caisson.ControlResult + 1)}, caisson.ControlAnswer{ResultLeftOut: caisson.ControlResult + 1}},
		"huge":   {caisson.Result{Text: "all", Data: data(1 << 20)}, caisson.ControlAnswer{ResultLeftOut: 1 << 20}},
	}
	for name, c := range cases {
		w.add(name, caisson.EffectRead, func(context.Context, caisson.Call) (caisson.Result, error) { return c.result, nil })
	}
	w.start()
	for name, c := range cases {
		got := w.answer(w.ask(name, `{}`))
		if got.Payload != c.want.Payload || got.Produced != c.want.Produced || got.ResultLeftOut != c.want.ResultLeftOut {
			t.Errorf("%s: payload %d, produced %d, left out %d", name, got.Payload, got.Produced, got.ResultLeftOut)
		}
		if said := strings.Contains(got.Output, "left out"); said != (c.want.ResultLeftOut > 0) || said != (got.Result == nil && c.result.Data != nil) {
			t.Errorf("%s: %q with a result of %d bytes", name, got.Output, len(got.Result))
		}
	}
}

// What the airlock takes out of an answer's text is not in its payload either.
func TestPayloadsHoldNoSecrets(t *testing.T) {
	w := newWorld(t)
	var redacted atomic.Int64
	w.options.Redact = func(text string) string {
		redacted.Add(1)
		return strings.NewReplacer("the-secret", "[TOKEN]").Replace(text)
	}
	spill := filepath.Join(w.dir, "spill")
	whole := bytes.Repeat([]byte("a line with the-secret\xff\n"), 10_000)
	if err := os.WriteFile(spill, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	w.add("large", caisson.EffectRead, func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Text: "a part", Spill: &caisson.Spill{Path: spill, Bytes: int64(len(whole)), Total: int64(len(whole)), SHA256: caisson.DigestOf(whole)}}, nil
	})
	cut := filepath.Join(w.dir, "cut") // where the payload ends, in the middle of one
	half := slices.Concat(bytes.Repeat([]byte("x"), caisson.ControlPayload-5), []byte("the-secret"), bytes.Repeat([]byte("y"), 100_000))
	if err := os.WriteFile(cut, half, 0o600); err != nil {
		t.Fatal(err)
	}
	w.add("cut", caisson.EffectRead, func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Text: "a part", Spill: &caisson.Spill{Path: cut, Bytes: int64(len(half)), Total: int64(len(half))}}, nil
	})
	short := filepath.Join(w.dir, "short") // where what could be kept ends, in the middle of one
	begun := append(bytes.Repeat([]byte("x"), 100_000), "the-sec"...)
	if err := os.WriteFile(short, begun, 0o600); err != nil {
		t.Fatal(err)
	}
	w.add("short", caisson.EffectRead, func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Text: "a part", Spill: &caisson.Spill{Path: short, Bytes: int64(len(begun)), Total: 200_000}}, nil
	})
	w.start()
	kept := w.ask("short", `{}`)
	told := w.answer(kept)
	if raw, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlResponses, string(kept)+".payload")); err != nil || len(raw) < 50_000 || bytes.Contains(raw, []byte("the")) || told.Payload != int64(len(raw)) || told.Produced != 200_000 {
		t.Errorf("%d bytes, %v; payload %d of %d", len(raw), err, told.Payload, told.Produced)
	}
	inTwo := w.ask("cut", `{}`)
	first := w.answer(inTwo)
	shown, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlResponses, string(inTwo)+".payload"))
	if err != nil || len(shown) > caisson.ControlPayload || len(shown) < caisson.ControlPayload-100 || bytes.Contains(shown, []byte("the")) || first.Payload != int64(len(shown)) || first.Produced != int64(len(half)) {
		t.Errorf("%d bytes that end with %q, %v; payload %d of %d", len(shown), shown[max(len(shown)-20, 0):], err, first.Payload, first.Produced)
	}
	id := w.ask("large", `{}`)
	answer := w.answer(id)
	want := bytes.ReplaceAll(whole, []byte("the-secret"), []byte("[TOKEN]"))
	raw, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+".payload"))
	if err != nil || !bytes.Equal(raw, want) || answer.Payload != int64(len(want)) {
		t.Errorf("%d bytes of %d, with %v, %v: %.60q", len(raw), answer.Payload, len(want), err, raw)
	}
	// What is there is not read again for whoever asks for it again and again.
	before := redacted.Load()
	if a := w.answer(w.ask("recover", `{"id":"`+string(id)+`"}`)); a.Exit != 0 || redacted.Load() != before {
		t.Errorf("%+v; it was read %d times more", a, redacted.Load()-before)
	}
}

// A new generation closes what the old one left open, and knows nothing of its ids.
func TestNewGeneration(t *testing.T) {
	w := newWorld(t)
	w.start()
	old, id := w.request(newRequestID(), "count", `{}`), w.ask("gated", `{}`)
	review, done := w.accepted(id).Review, w.ask("count", `{}`)
	w.answer(done)
	w.close()
	w.takeOver()
	w.sandbox.Generation = 2
	b := w.start()
	if s := b.Status(); s.Generation != 2 || len(s.Waiting) != 0 {
		t.Errorf("status %+v", s)
	}
	if r, err := w.ledger.Review(t.Context(), review); err != nil || r.State != caisson.ReviewWithdrawn {
		t.Errorf("the old review is %+v, %v", r, err)
	}
	w.put(old.ID, marshal(t, old))
	if code := w.refused(old.ID); code != caisson.CodeGenerationStale {
		t.Errorf("a request for the old generation: %s", code)
	}
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted || a.Generation != 2 {
		t.Errorf("a request for the new one: %+v", a)
	}
	// Who comes back for a request of the old one is not told that it never was,
	// which would have it done again.
	for of, how := range map[caisson.RequestID]string{done: "completed with exit 0", id: "rejected: not-executed"} {
		if a := w.answer(w.ask("recover", `{"id":"`+string(of)+`"}`)); a.Error == nil || a.Error.Code != caisson.CodeGenerationStale || !strings.Contains(a.Error.Message, how) || !strings.HasPrefix(a.Error.HintText(), "No other answer comes") {
			t.Errorf("recover what was %s: %+v", how, a)
		}
	}
	if open, err := w.ledger.Requests(t.Context(), w.run, caisson.RequestFilter{Open: true}); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

// faulty is a ledger some of whose writes do not succeed.
type faulty struct {
	caisson.Ledger
	take, start, settle atomic.Pointer[caisson.Error]
	unstarted           atomic.Int64           // calls that could not be started
	untaken             atomic.Int64           // requests that could not be recorded
	reading             atomic.Pointer[func()] // at the next read of a call
	taking              atomic.Pointer[func()] // before the next request is recorded
}

func (l *faulty) Call(ctx context.Context, id caisson.CallID) (caisson.CallRecord, error) {
	if reading := l.reading.Swap(nil); reading != nil {
		(*reading)()
	}
	return l.Ledger.Call(ctx, id)
}

func asErr(p *atomic.Pointer[caisson.Error]) error {
	if e := p.Load(); e != nil {
		return e
	}
	return nil
}

func (l *faulty) TakeRequest(ctx context.Context, d caisson.Drive, r caisson.RequestRecord) error {
	if taking := l.taking.Swap(nil); taking != nil {
		(*taking)()
	}
	if err := asErr(&l.take); err != nil {
		l.untaken.Add(1)
		return err
	}
	return l.Ledger.TakeRequest(ctx, d, r)
}

func (l *faulty) StartCall(ctx context.Context, d caisson.Drive, s caisson.CallStart) (caisson.CallRecord, error) {
	if err := asErr(&l.start); err != nil {
		l.unstarted.Add(1)
		return caisson.CallRecord{}, err
	}
	return l.Ledger.StartCall(ctx, d, s)
}

func (l *faulty) SettleCall(ctx context.Context, d caisson.Drive, s caisson.CallSettle) (caisson.CallRecord, error) {
	if err := asErr(&l.settle); err != nil {
		return caisson.CallRecord{}, err
	}
	return l.Ledger.SettleCall(ctx, d, s)
}

// While the ledger takes no writes nothing is begun, and each request has the
// answer that is true as soon as there can be one.
func TestLedgerTakesNoWrites(t *testing.T) {
	full := caisson.Errorf(caisson.CodeWriteFailed, "the disk does not do as it is told")
	none := caisson.Errorf(caisson.CodeStateInvalid, "the run takes no calls")
	w := newWorld(t)
	l := &faulty{Ledger: w.ledger}
	w.through = l
	w.start()

	l.take.Store(full)
	if code := w.refused(w.ask("count", `{}`)); code != caisson.CodeNotExecuted {
		t.Errorf("what could not be taken is %s", code)
	}
	l.take.Store(nil)

	l.start.Store(none)
	id := w.ask("count", `{}`)
	// That it is on record and nothing runs is also so before it has begun.
	w.await("that it could not be started", func() bool { return l.unstarted.Load() == 1 && w.broker.Load().Status().Running == 0 })
	l.start.Store(nil)
	w.tickNow()
	if code := w.refused(id); code != caisson.CodeNotExecuted || w.done(id) != 0 {
		t.Errorf("what could not be started is %s, done %d times", code, w.done(id))
	}

	l.settle.Store(full)
	id = w.ask("count", `{}`)
	w.accepted(id)
	w.await("that it was done and not recorded", func() bool { return w.done(id) == 1 && w.broker.Load().Status().Running == 0 })
	if w.has(id, ".json") {
		t.Error("answered without a record")
	}
	l.settle.Store(nil)
	w.tickNow()
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
		t.Errorf("what could not be settled is %+v, done %d times", a, w.done(id))
	}
}

// A request that goes wrong again while it is being mended is not forgotten.
func TestMendedAndWrongAgain(t *testing.T) {
	w := newWorld(t)
	l := &faulty{Ledger: w.ledger}
	w.through = l
	var unsure atomic.Bool
	w.sandbox.Owned = func(context.Context) error {
		if unsure.Load() {
			return caisson.Errorf(caisson.CodeWriteFailed, "nobody knows")
		}
		return nil
	}
	w.noticed = func(n airlock.Notice) { unsure.Store(n.Kind == airlock.NoticeAsked) }
	b := w.start()
	id := w.ask("gated", `{}`)
	w.await("that it waits", func() bool { return len(b.Status().Waiting) == 1 })
	if w.has(id, ".accepted.json") {
		t.Fatal("it was published")
	}
	unsure.Store(false)
	call, err := w.ledger.Call(t.Context(), caisson.NewRequestCallID(w.run, 1, id))
	if err != nil {
		t.Fatal(err)
	}

	mending, goOn := make(chan struct{}), make(chan struct{})
	l.reading.Store(new(func() { close(mending); <-goOn }))
	w.tickNow()
	<-mending
	l.start.Store(caisson.Errorf(caisson.CodeStateInvalid, "the run takes no calls"))
	w.decide(call.Review, caisson.Decision{Kind: caisson.Approve})
	w.await("that it could not be started", func() bool { s := b.Status(); return len(s.Waiting)+s.Queued+s.Running == 0 })
	l.start.Store(nil)
	close(goOn)
	w.accepted(id)
	w.tickNow()
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
		t.Errorf("%+v, done %d times", a, w.done(id))
	}
}

// A channel that is full says so, and still does what it had taken.
func TestChannelFull(t *testing.T) {
	w := newWorld(t)
	l := &faulty{Ledger: w.ledger}
	w.through = l
	b := w.start()
	waiting := w.ask("gated", `{}`)
	review := w.accepted(waiting).Review
	l.take.Store(caisson.Errorf(caisson.CodeChannelFull, "full"))
	for range 2 {
		if code := w.refused(w.ask("count", `{}`)); code != caisson.CodeChannelFull {
			t.Errorf("it is answered %s", code)
		}
	}
	if s := b.Status(); s.State != caisson.BrokerParked || s.Reason != caisson.CodeChannelFull {
		t.Errorf("status %+v", s)
	}
	w.decide(review, caisson.Decision{Kind: caisson.Approve})
	if a := w.answer(waiting); a.State != caisson.AnswerCompleted {
		t.Errorf("what it had taken: %+v", a)
	}
}

// The workspace is looked at with each request: the first that finds it changed
// parks the broker, and the sandbox is told no path.
func TestBinding(t *testing.T) {
	w := newWorld(t)
	var lost atomic.Bool
	w.sandbox.Bound = func(context.Context) error {
		if lost.Load() {
			return caisson.Errorf(caisson.CodeWorkspaceBindingLost, "/host/path is another's")
		}
		return nil
	}
	b := w.start()
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("%+v", a)
	}
	lost.Store(true)
	id := w.ask("count", `{}`)
	if code := w.refused(id); code != caisson.CodeWorkspaceBindingLost || w.done(id) != 0 {
		t.Errorf("answered %s", code)
	}
	if s := b.Status(); s.Reason != caisson.CodeWorkspaceBindingLost || strings.Contains(s.Text, "/host") {
		t.Errorf("status %+v", s)
	}
	w.await("that it is recorded why", func() bool {
		moves := w.events(caisson.EventBrokerMoved)
		return len(moves) == 1 && strings.Contains(moves[0], "/host/path")
	})
	lost.Store(false)
	w.tickNow()
	w.await("that it is healthy", func() bool { return b.Status().State == caisson.BrokerHealthy })
}

// What a person approved is done only in the workspace that it was asked for.
func TestBindingIsLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	var lost atomic.Bool
	w.sandbox.Bound = func(context.Context) error {
		if lost.Load() {
			return caisson.Errorf(caisson.CodeWorkspaceBindingLost, "it is another's")
		}
		return nil
	}
	b := w.start()
	id := w.ask("gated", `{}`)
	review := w.accepted(id).Review
	w.await("that it waits", func() bool { return len(b.Status().Waiting) == 1 })
	lost.Store(true)
	w.decide(review, caisson.Decision{Kind: caisson.Approve})
	w.await("that it is parked", func() bool { s := b.Status(); return s.Reason == caisson.CodeWorkspaceBindingLost && s.Queued == 1 })
	if n := w.done(id); n != 0 {
		t.Errorf("done %d times", n)
	}
	lost.Store(false)
	w.tickNow()
	if a := w.answer(id); a.State != caisson.AnswerCompleted || w.done(id) != 1 {
		t.Errorf("%+v, done %d times", a, w.done(id))
	}
}

// What is in the queue when the process ends is answered as not executed.
func TestClose(t *testing.T) {
	w := newWorld(t)
	began, _ := w.blocking("block")
	b := w.start()
	var ids []caisson.RequestID
	for i := range 6 {
		ids = append(ids, w.ask("block", `{}`))
		w.await("that it is taken", func() bool { s := b.Status(); return s.Running+s.Queued == i+1 })
	}
	for range 4 {
		<-began
	}
	w.close()
	var outcomes []string
	for _, id := range ids {
		a := w.answer(id)
		outcome := string(a.State)
		if a.Error != nil {
			outcome = string(a.Error.Code)
		}
		outcomes = append(outcomes, outcome)
	}
	want := []string{"completed", "completed", "completed", "completed", "not-executed", "not-executed"}
	if !slices.Equal(outcomes, want) || b.Err() != nil {
		t.Errorf("%v, ended with %v", outcomes, b.Err())
	}
}

// tickNow has all that is done by time be due.
func (w *world) tickNow() {
	w.t.Helper()
	w.service.Tick(w.t.Context())
	for range 2 { // less than a stall each time
		w.boot.Add(int64(4 * time.Second))
		w.service.Tick(w.t.Context())
	}
}
