package airlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// policy is a judge: a ruling for each tool, allow where there is none.
type policy struct {
	rules  map[string]caisson.Verdict // by ToolRef.String()
	digest caisson.Digest
}

func rules(pairs ...string) policy {
	p := policy{rules: map[string]caisson.Verdict{}, digest: caisson.DigestOf([]byte(fmt.Sprint(pairs)))}
	for i := 0; i < len(pairs); i += 2 {
		p.rules[pairs[i]] = caisson.Verdict{Ruling: caisson.Ruling(pairs[i+1]), Layer: "user", Rule: "rule-" + pairs[i], RuleDigest: caisson.DigestOf([]byte(pairs[i])), Reason: "the test says so"}
	}
	return p
}

func (p policy) PolicyDigest() caisson.Digest { return p.digest }

func (p policy) Judge(call caisson.Call, s caisson.Subject) caisson.Verdict {
	v, ok := p.rules[call.Tool.String()]
	if !ok {
		v = caisson.Verdict{Ruling: caisson.Allow, Layer: "preset", Rule: "default"}
	}
	v.PolicyDigest = p.digest
	if v.Ruling == caisson.ReviewIt && !v.Again {
		for _, g := range s.Grants {
			if g.Tool == call.Tool && g.InputDigest == call.InputDigest && g.PolicyDigest == p.digest {
				v.Ruling, v.Layer = caisson.Allow, "grant"
			}
		}
	}
	return v
}

// doer is a tool whose effect is a line in a file: a counter outside of all
// that is tested.
type doer struct {
	spec    caisson.ToolSpec
	effects string
	open    func(ctx context.Context, call caisson.Call) (caisson.Result, error)
	hold    func(ctx context.Context) error
}

const anySchema = `{"type":"object","properties":{"text":{"type":"string"},"count":{"type":"integer","default":1}},"required":["text"],"additionalProperties":false}`

func (d *doer) Spec() caisson.ToolSpec {
	s := d.spec
	if s.Schema == nil {
		s.Schema = json.RawMessage(anySchema)
	}
	return s
}

func (d *doer) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

func (d *doer) Hold(ctx context.Context, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	if d.hold != nil {
		if err := d.hold(ctx); err != nil {
			return nil, err
		}
	}
	return &execution{d, call, effect}, nil
}

type execution struct {
	doer   *doer
	call   caisson.Call
	effect caisson.EffectID
}

func (e *execution) Identity() *caisson.ProcessIdentity { return nil }
func (e *execution) Drop()                              {}

func (e *execution) Open(ctx context.Context) (caisson.Result, error) {
	if err := appendLine(e.doer.effects, fmt.Sprintf("%s %s %s %s", e.call.ID, e.effect, e.call.Tool, e.call.Input)); err != nil {
		return caisson.Result{}, err
	}
	if e.doer.open != nil {
		return e.doer.open(ctx, e.call)
	}
	return caisson.Result{Text: "did " + string(e.call.Input)}, nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

type reconciler struct{ *doer }

func (r reconciler) Reconcile(_ context.Context, _ caisson.Call, effect caisson.EffectID) (caisson.Result, bool, error) {
	raw, err := os.ReadFile(r.effects)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return caisson.Result{}, false, err
	}
	if bytes.Contains(raw, []byte(effect)) {
		return caisson.Result{Text: "found it done"}, true, nil
	}
	return caisson.Result{}, false, nil
}

type questioner struct{ *doer }

func (q questioner) Question(input json.RawMessage) (caisson.Question, error) {
	var in struct{ Text string }
	err := json.Unmarshal(input, &in)
	return caisson.Question{Text: in.Text, Options: []string{"yes", "no"}}, err
}

func (q questioner) Answer(_ json.RawMessage, d caisson.Decision) caisson.Result {
	return caisson.Result{Text: "answer: " + strings.Join(d.Options, ",") + d.Text}
}

type previewer struct{ *doer }

func (p previewer) Preview(_ context.Context, call caisson.Call) (string, error) {
	return "+" + string(call.Input), nil
}

// parentTool makes two calls of its own.
type parentTool struct {
	*doer
	door  *airlock.Door
	inner map[string]caisson.Tool
}

func (p *parentTool) Hold(ctx context.Context, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	p.open = func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
		n, err := p.door.Nested(call.ID)
		if err != nil {
			return caisson.Result{}, err
		}
		s, err := n.Settle(ctx, []airlock.Request{
			{Name: "write", Tool: p.inner["write"], Input: `{"text":"inner"}`}, {Name: "put", Tool: p.inner["put"], Input: `{"text":"inner"}`},
		})
		return caisson.Result{Text: "made two calls: " + states(s)}, err
	}
	return p.doer.Hold(ctx, call, effect)
}

// tools are the doers of the tests, by name.
func tools(effects string) map[string]caisson.Tool {
	doerOf := func(name string, effect caisson.Effect, parallel bool) *doer {
		return &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: name}, Effect: effect, Parallel: parallel}, effects: effects}
	}
	ask := doerOf("ask", caisson.EffectUnsafe, false)
	ask.spec.Reach = caisson.ReachLedger
	fail := doerOf("fail", caisson.EffectUnsafe, true)
	fail.open = func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Text: "no luck", Outcome: caisson.OutcomeFailed}, nil
	}
	inner := map[string]caisson.Tool{"write": doerOf("write", caisson.EffectUnsafe, false), "put": doerOf("put", caisson.EffectIdempotent, true)}
	parent := doerOf("parent", caisson.EffectRead, false)
	parent.spec.CallsTools = true
	return map[string]caisson.Tool{
		"parent": &parentTool{doer: parent, inner: inner},
		"write":  doerOf("write", caisson.EffectUnsafe, false), "gated": previewer{doerOf("gated", caisson.EffectUnsafe, false)},
		"side": doerOf("side", caisson.EffectUnsafe, true), "read": doerOf("read", caisson.EffectRead, true),
		"put": doerOf("put", caisson.EffectIdempotent, false), "post": reconciler{doerOf("post", caisson.EffectReconcilable, false)},
		"note": noter(doerOf("note", caisson.EffectUnsafe, false)), "renote": noter(doerOf("renote", caisson.EffectReconcilable, false)),
		"denied": doerOf("denied", caisson.EffectUnsafe, false), "ask": questioner{ask}, "fail": fail,
	}
}

// world is a ledger on disk with one run, and a file of effects beside it.
type world struct {
	t       *testing.T
	dir     string
	ledger  *sqlite.Ledger
	run     caisson.RunID
	drive   caisson.Drive
	tools   map[string]caisson.Tool
	options airlock.Options
	later   atomic.Int64 // how far the ledger's clock is ahead

	mu      sync.Mutex
	notices []airlock.Notice
	seen    chan struct{} // replaced at each notice
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), run: caisson.NewRunID(), seen: make(chan struct{})}
	w.tools = tools(w.effectsPath())
	w.ledger = openLedger(t, w.dir, func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) })
	ctx := t.Context()
	if _, err := w.ledger.CreateRun(ctx, w.run, caisson.RunSpec{Prompt: "test", Root: w.run, Engine: "none", Preset: "sandboxed", OnUnknown: "ask"}); err != nil {
		t.Fatal(err)
	}
	w.options = airlock.Options{Ledger: w.ledger, Judge: rules("gated", "review", "denied", "deny"), ParkAfter: -1}
	w.takeOver()
	if _, err := w.ledger.MoveRun(ctx, w.drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		t.Fatal(err)
	}
	return w
}

func openLedger(t *testing.T, dir string, now func() time.Time) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(dir, "ledger.db"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Check(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("check ledger: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	return l
}

func (w *world) effectsPath() string { return filepath.Join(w.dir, "effects") }

// takeOver takes the run's lease as another process would.
func (w *world) takeOver() {
	w.t.Helper()
	drive, err := takeLease(w.t.Context(), w.ledger, w.run)
	if err != nil {
		w.t.Fatal(err)
	}
	w.drive = drive
}

func takeLease(ctx context.Context, l caisson.Ledger, run caisson.RunID) (caisson.Drive, error) {
	inst := caisson.Instance{ID: caisson.NewInstanceID(), Program: "test", Process: caisson.ProcessIdentity{Host: "test", PID: os.Getpid()}}
	if err := l.PutInstance(ctx, inst); err != nil {
		return caisson.Drive{}, err
	}
	stored, err := l.Run(ctx, run)
	if err != nil {
		return caisson.Drive{}, err
	}
	lease, err := l.TakeLease(ctx, run, inst.ID, stored.Lease.Fence)
	return caisson.Drive{Run: run, Fence: lease.Fence}, err
}

func (w *world) observe(n airlock.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, n)
	close(w.seen)
	w.seen = make(chan struct{})
}

// await waits until n notices of a kind were given.
func (w *world) await(kind airlock.NoticeKind, n int) []airlock.Notice {
	w.t.Helper()
	for {
		w.mu.Lock()
		var of []airlock.Notice
		for _, notice := range w.notices {
			if notice.Kind == kind {
				of = append(of, notice)
			}
		}
		seen := w.seen
		w.mu.Unlock()
		if len(of) >= n {
			return of
		}
		select {
		case <-seen:
		case <-w.t.Context().Done():
			w.t.Fatalf("waited for %d notices of %s, saw %d", n, kind, len(of))
		}
	}
}

func (w *world) door() *airlock.Door {
	o := w.options
	if o.Observe == nil {
		o.Observe = w.observe
	}
	return enterFor(airlock.New(o), w.drive, w.tools)
}

// enterFor gives the door to the tool that makes calls of its own.
func enterFor(a *airlock.Airlock, drive caisson.Drive, tools map[string]caisson.Tool) *airlock.Door {
	door := enter(a, drive)
	if p, ok := tools["parent"].(*parentTool); ok {
		p.door = door
	}
	return door
}

func enter(a *airlock.Airlock, drive caisson.Drive) *airlock.Door {
	return a.Enter(drive, func() caisson.Subject { return caisson.Subject{} }, "binding", "")
}

// request is call n of turn 1.
func (w *world) request(n int, tool, text string) airlock.Request {
	return requestOf(w.run, n, tool, text, w.tools)
}

func requestOf(run caisson.RunID, n int, tool, text string, tools map[string]caisson.Tool) airlock.Request {
	input, _ := json.Marshal(map[string]string{"text": text})
	return airlock.Request{ID: caisson.NewCallID(run, 1, n), Turn: 1, ProviderID: "same", Name: tool, Tool: tools[tool], Input: string(input)}
}

func (w *world) settle(requests ...airlock.Request) airlock.Settled {
	w.t.Helper()
	s, err := w.door().Settle(w.t.Context(), requests)
	if err != nil {
		w.t.Fatalf("settle: %v", err)
	}
	return s
}

func (w *world) decide(id caisson.ReviewID, d caisson.Decision) {
	w.t.Helper()
	if err := decideIt(w.t.Context(), w.ledger, id, d); err != nil {
		w.t.Fatalf("decide %s: %v", id, err)
	}
}

func decideIt(ctx context.Context, l caisson.Ledger, id caisson.ReviewID, d caisson.Decision) error {
	r, err := l.Review(ctx, id)
	if err != nil {
		return err
	}
	if d.By == "" {
		d.By = "tester"
	}
	_, err = l.Decide(ctx, id, r.Call.Digest, d, 24*60*60*1e9)
	return err
}

// done counts the effects of each call.
func (w *world) done() map[caisson.CallID]int {
	w.t.Helper()
	n, err := effectsOf(w.effectsPath())
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func effectsOf(path string) (map[caisson.CallID]int, error) {
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	n := map[caisson.CallID]int{}
	for line := range strings.Lines(string(raw)) {
		id, _, _ := strings.Cut(line, " ")
		n[caisson.CallID(id)]++
	}
	return n, nil
}

// states are the states of the records, in order.
func states(s airlock.Settled) string {
	var out []string
	for _, r := range s.Records {
		out = append(out, string(r.State))
	}
	return strings.Join(out, " ")
}

func (w *world) events(kind caisson.EventKind) int {
	w.t.Helper()
	all, err := w.ledger.Events(w.t.Context(), w.run, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, e := range all {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
