package kernel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/kernel"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/model"
	"go.uber.org/goleak"
)

// stage is a run on a real ledger, with a scripted model, the real airlock and
// tools whose effects are lines in a file.
type stage struct {
	dir    string
	ledger caisson.Ledger
	id     caisson.RunID
	opts   kernel.Options
	lock   airlock.Options
	slow   chan struct{} // each begin of a slow call
	mu     sync.Mutex
	events []kernel.Event
	locked *airlock.Airlock
	kernel *kernel.Kernel
}

func openLedger(ctx context.Context, dir string) (caisson.Ledger, error) {
	return sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "ledger.db")})
}

func newStage(t *testing.T, script string, budget caisson.Budget) *stage {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script.yaml"), []byte("record: asked.jsonl\n"+script), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := enter(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.ledger.Check(context.Background()); err != nil {
			t.Errorf("check: %v", err)
		}
		if err := s.ledger.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s.create(t, budget)
	return s
}

func (s *stage) create(t *testing.T, budget caisson.Budget) {
	t.Helper()
	spec := caisson.RunSpec{Prompt: "make it work", Model: "script", Engine: "none", Preset: "test", OnUnknown: airlock.OnUnknownTell, Root: s.id, Budget: budget, By: "tester"}
	if _, err := s.ledger.CreateRun(t.Context(), s.id, spec); err != nil {
		t.Fatal(err)
	}
}

// enter opens what a process needs to drive the run in dir.
func enter(ctx context.Context, dir string) (*stage, error) {
	ledger, err := openLedger(ctx, dir)
	if err != nil {
		return nil, err
	}
	script, err := model.OpenScript(filepath.Join(dir, "script.yaml"))
	if err != nil {
		return nil, err
	}
	judge, err := gate.Load(gate.Sources{User: []gate.File{{Name: "policy.yaml", Data: []byte(policy)}}})
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, ledger: ledger, id: "rtest", slow: make(chan struct{}, 64)}
	s.lock = airlock.Options{Ledger: ledger, Judge: judge, ParkAfter: -1, OnUnknown: airlock.OnUnknownTell, SettleFor: time.Nanosecond}
	s.opts = kernel.Options{Ledger: ledger, Model: script, Tools: s.tools(), System: "be good", Observe: s.observe}
	return s, nil
}

func (s *stage) observe(e kernel.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *stage) kinds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kinds []string
	for _, e := range s.events {
		name := string(e.Kind)
		if e.Kind == kernel.EventRun {
			name += " " + string(e.Run.State)
		}
		kinds = append(kinds, name)
	}
	return slices.Compact(kinds)
}

// life takes the lease as a new process would, and drives the run.
func (s *stage) life(ctx context.Context) (caisson.Run, error) {
	inst := caisson.Instance{ID: caisson.NewInstanceID(), Program: "test", Lock: s.dir, Process: caisson.ProcessIdentity{Host: "h", Boot: "b", PID: os.Getpid()}}
	if err := s.ledger.PutInstance(context.WithoutCancel(ctx), inst); err != nil {
		return caisson.Run{}, err
	}
	run, err := s.ledger.Run(context.WithoutCancel(ctx), s.id)
	if err != nil {
		return run, err
	}
	lease, err := s.ledger.TakeLease(context.WithoutCancel(ctx), s.id, inst.ID, run.Lease.Fence)
	if err != nil {
		return run, err
	}
	drive := caisson.Drive{Run: s.id, Fence: lease.Fence}
	if s.locked == nil {
		s.lock.Observe = func(n airlock.Notice) {
			if s.kernel != nil {
				s.kernel.Notice(n)
			}
		}
		s.locked = airlock.New(s.lock)
	}
	opts := s.opts
	if opts.Door == nil {
		opts.Door = s.locked.Enter(drive, func() caisson.Subject { return caisson.Subject{Run: s.id} }, "", "")
	}
	s.kernel = kernel.New(opts)
	return s.kernel.Run(ctx, drive)
}

func (s *stage) run(t *testing.T) caisson.Run {
	t.Helper()
	run, err := s.life(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func wantEnd(t *testing.T, run caisson.Run, state caisson.RunState, stop caisson.StopReason) {
	t.Helper()
	if run.State != state || run.Stop != stop {
		t.Fatalf("the run is %s (%s, %s): %s; want %s (%s)", run.State, run.Stop, run.Cause, run.Text, state, stop)
	}
}

// asked are the requests that the model was sent.
func (s *stage) asked(t *testing.T) []caisson.ModelRequest {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.dir, "asked.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var requests []caisson.ModelRequest
	for line := range strings.Lines(string(raw)) {
		var req caisson.ModelRequest
		if err := json.Unmarshal([]byte(line), &req); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, req)
	}
	return requests
}

// effects are the lines that calls have written.
func (s *stage) effects(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.dir, "effects"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(raw))
}

// policy denies, reviews and allows by the word of the input.
const policy = `rules:
  - {when: 'has(input.word) && input.word == "deny"', verdict: deny, reason: the test says so}
  - {when: 'has(input.word) && input.word == "review"', verdict: review}
  - {tools: [write, put, read, fail, slow], verdict: allow}
`

// tool writes its effect id into a file, and answers with its input's word.
type tool struct {
	name     string
	effect   caisson.Effect
	parallel bool
	do       func(ctx context.Context, word string) (caisson.Result, error)
	s        *stage
}

func (s *stage) tools() map[string]caisson.Tool {
	list := []tool{
		{name: "write", effect: caisson.EffectUnsafe},
		{name: "put", effect: caisson.EffectIdempotent},
		{name: "read", effect: caisson.EffectRead, parallel: true},
		{name: "fail", effect: caisson.EffectRead, parallel: true, do: func(context.Context, string) (caisson.Result, error) {
			return caisson.Result{}, caisson.Errorf(caisson.CodeNotFound, "no such thing")
		}},
		{name: "slow", effect: caisson.EffectUnsafe, do: func(ctx context.Context, word string) (caisson.Result, error) {
			s.slow <- struct{}{}
			<-ctx.Done()
			return caisson.Result{Outcome: caisson.OutcomeCancelled, Text: "began " + word}, nil
		}},
	}
	tools := map[string]caisson.Tool{}
	for _, one := range list {
		one.s = s
		tools[one.name] = one
	}
	return tools
}

func (t tool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: t.name}, Description: "test tool", Effect: t.effect, Reach: caisson.ReachInside, Parallel: t.parallel,
		Schema: json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"],"additionalProperties":false}`),
	}
}

func (t tool) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

func (t tool) Hold(_ context.Context, call caisson.Call, effect caisson.EffectID) (caisson.Executor, error) {
	var input struct{ Word string }
	if err := json.Unmarshal(call.Input, &input); err != nil {
		return nil, err
	}
	return doing{t, input.Word, call.ID}, nil
}

type doing struct {
	tool tool
	word string
	call caisson.CallID
}

func (doing) Identity() *caisson.ProcessIdentity { return nil }
func (doing) Drop()                              {}

func (d doing) Open(ctx context.Context) (caisson.Result, error) {
	f, err := os.OpenFile(filepath.Join(d.tool.s.dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return caisson.Result{}, err
	}
	_, err = fmt.Fprintf(f, "%s:%s\n", d.tool.name, d.call)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return caisson.Result{}, err
	}
	if d.tool.do != nil {
		return d.tool.do(ctx, d.word)
	}
	return caisson.Result{Text: d.tool.name + " " + d.word, Bytes: int64(len(d.word))}, nil
}
