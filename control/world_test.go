package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// world is one sandbox's channel, with the ledger, the airlock and the broker.
type world struct {
	t       testing.TB
	dir     string
	ledger  *sqlite.Ledger
	through caisson.Ledger // what the broker and the airlock write to
	run     caisson.RunID
	drive   caisson.Drive
	rules   policy
	sandbox control.Sandbox
	options control.Options
	watcher channel.WatcherOptions
	verbs   []caisson.Tool
	counted string          // the file that done counts in; effects where it is empty
	boxed   bool            // children have the verb of a program inside
	others  []caisson.RunID // whose channels children serve too
	name    string          // of the channel's directory; sandbox where it is empty

	boot  atomic.Int64 // added to the clock that the service has: see clock
	later atomic.Int64 // added to the ledger's

	noticed func(airlock.Notice) // before the broker is told

	service *control.Service
	broker  atomic.Pointer[control.Broker]
	end     func() // of Run

	mu   sync.Mutex
	seen chan struct{} // replaced when something is published
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), run: caisson.NewRunID(), seen: make(chan struct{}), rules: policy{"gated": caisson.ReviewIt, "denied": caisson.Deny}}
	w.ledger = openLedger(t, w.dir, func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) })
	if _, err := w.ledger.CreateRun(t.Context(), w.run, caisson.RunSpec{Root: w.run, Engine: "none", Preset: "sandboxed", OnUnknown: "tell", Session: caisson.SessionServed}); err != nil {
		t.Fatal(err)
	}
	w.through = w.ledger
	w.takeOver()
	if _, err := w.ledger.MoveRun(t.Context(), w.drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		t.Fatal(err)
	}
	w.add("count", caisson.EffectUnsafe, nil)
	w.add("gated", caisson.EffectUnsafe, nil)
	w.add("denied", caisson.EffectUnsafe, nil)
	w.add("look", caisson.EffectRead, nil)
	w.add("fail", caisson.EffectUnsafe, func(context.Context, caisson.Call) (caisson.Result, error) {
		return caisson.Result{Outcome: caisson.OutcomeFailed, Text: "no luck", Data: json.RawMessage(`{"code":7}`)}, nil
	})
	w.sandbox = control.Sandbox{Dir: w.channel(), Record: caisson.SandboxRecord{ID: "s0123456789", Run: w.run, Engine: "none"}, Branch: "feature/x", Guide: "Ask."}
	w.options = control.Options{Boot: w.clock}
	return w
}

// clock is that of the service. It stands while the test does not move it: no round
// begins by itself, nothing is late, and on a machine that is busy no stall is seen.
func (w *world) clock() time.Duration { return time.Hour + time.Duration(w.boot.Load()) }

// beside is another run in the same ledger, with a channel that only children
// serve: those of the first.
func (w *world) beside() *world {
	w.t.Helper()
	run := caisson.NewRunID()
	o := &world{t: w.t, dir: w.dir, ledger: w.ledger, through: w.ledger, run: run, name: string(run), seen: make(chan struct{})}
	if _, err := w.ledger.CreateRun(w.t.Context(), run, caisson.RunSpec{Root: run, Engine: "none", Preset: "sandboxed", OnUnknown: "tell", Session: caisson.SessionServed}); err != nil {
		w.t.Fatal(err)
	}
	o.takeOver()
	if _, err := w.ledger.MoveRun(w.t.Context(), o.drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		w.t.Fatal(err)
	}
	w.others = append(w.others, run)
	return o
}

func openLedger(t testing.TB, dir string, now func() time.Time) *sqlite.Ledger {
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

// takeOver takes the run's lease as another process would.
func (w *world) takeOver() {
	w.t.Helper()
	drive, err := takeLease(w.t.Context(), w.ledger, w.run)
	if err != nil {
		w.t.Fatal(err)
	}
	w.drive = drive
}

func (w *world) channel() string {
	if w.name != "" {
		return filepath.Join(w.dir, w.name)
	}
	return filepath.Join(w.dir, "sandbox")
}
func (w *world) effects() string { return filepath.Join(w.dir, "effects") }

func (w *world) add(name string, effect caisson.Effect, open func(context.Context, caisson.Call) (caisson.Result, error)) {
	w.verbs = append(w.verbs, verb{name: name, effect: effect, effects: w.effects(), open: open})
}

// blocking adds a verb whose effect lasts until it is let go, or stopped.
func (w *world) blocking(name string) (began chan caisson.CallID, let chan struct{}) {
	began, let = make(chan caisson.CallID, 100), make(chan struct{})
	w.add(name, caisson.EffectUnsafe, func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
		began <- call.ID
		select {
		case <-let:
			return caisson.Result{Text: "let go"}, nil
		case <-ctx.Done():
			return caisson.Result{Text: "half of it"}, context.Cause(ctx)
		}
	})
	return began, let
}

func doorOf(l caisson.Ledger, drive caisson.Drive, rules policy, observe func(airlock.Notice)) *airlock.Door {
	a := airlock.New(airlock.Options{Ledger: l, Judge: rules, ParkAfter: -1, OnUnknown: airlock.OnUnknownTell, Observe: observe})
	return a.Enter(drive, func() caisson.Subject { return caisson.Subject{} }, "", "")
}

// start runs a service and opens the broker in it.
func (w *world) start() *control.Broker {
	w.t.Helper()
	if w.service == nil {
		w.serve()
	}
	b, err := w.open()
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	return b
}

func (w *world) open() (*control.Broker, error) {
	s := w.sandbox
	s.Drive = w.drive
	// The broker is known to the one that observes before its calls begin.
	opened := make(chan struct{})
	var broker *control.Broker
	s.Door = doorOf(w.through, w.drive, w.rules, func(n airlock.Notice) {
		<-opened
		if w.noticed != nil {
			w.noticed(n)
		}
		broker.Observe(n)
	})
	s.Verbs = func() []caisson.Tool { return w.verbs }
	b, err := w.service.Open(w.t.Context(), s)
	broker = b
	close(opened)
	if err == nil {
		w.broker.Store(b)
	}
	return b, err
}

func (w *world) serve() {
	w.t.Helper()
	o := w.options
	o.Ledger, o.Watcher = w.through, channel.NewWatcher(w.watcher)
	w.service = control.New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.service.Run(ctx) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("run: %v", err)
		}
	})
	w.t.Cleanup(w.end)
	w.watch()
}

// watch tells the test of everything that is published or recorded.
func (w *world) watch() {
	w.t.Helper()
	for _, dir := range []string{caisson.ControlResponses, caisson.ControlRequests} {
		if err := os.MkdirAll(filepath.Join(w.channel(), dir), 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range []string{caisson.ControlResponses, caisson.ControlPublic, caisson.ControlRequests} {
		if err := watcher.Add(filepath.Join(w.channel(), dir)); err != nil {
			w.t.Fatal(err)
		}
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for range watcher.Events {
			w.happened()
		}
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended.Go(func() {
		for n := int64(0); ctx.Err() == nil; {
			var err error
			if n, err = w.ledger.Wait(ctx, w.run, n); err == nil {
				w.happened()
			}
		}
	})
	w.t.Cleanup(func() { cancel(); watcher.Close(); ended.Wait() })
}

func (w *world) happened() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.seen)
	w.seen = make(chan struct{})
}

// await waits until is holds; it is asked whenever something was published, and
// from time to time for what is only in the broker's memory.
func (w *world) await(what string, is func() bool) {
	w.t.Helper()
	timeout, again := time.NewTimer(60*time.Second), time.NewTicker(50*time.Millisecond)
	defer timeout.Stop()
	defer again.Stop()
	for {
		w.mu.Lock()
		seen := w.seen
		w.mu.Unlock()
		if is() {
			return
		}
		select {
		case <-seen:
		case <-again.C:
		case <-timeout.C:
			w.t.Fatalf("waited in vain for %s; status %+v", what, w.status())
		}
	}
}

func (w *world) decide(id caisson.ReviewID, d caisson.Decision) {
	w.t.Helper()
	r, err := w.ledger.Review(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	d.By = "tester"
	if _, err := w.ledger.Decide(w.t.Context(), id, r.Call.Digest, d, 24*time.Hour); err != nil {
		w.t.Fatalf("decide %s: %v", id, err)
	}
}

func (w *world) events(kind caisson.EventKind) (bodies []string) {
	w.t.Helper()
	all, err := w.ledger.Events(w.t.Context(), w.run, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == kind {
			bodies = append(bodies, string(e.Body))
		}
	}
	return bodies
}

// closed ends the broker as the end of its process would.
func (w *world) close() {
	w.t.Helper()
	if err := w.broker.Load().Close(context.WithoutCancel(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
}

type ctxType = context.Context

func withTimeout(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// idle makes a service that does nothing by time alone: the test ticks.
func (w *world) idle() {
	w.t.Helper()
	o := w.options
	o.Ledger, o.Watcher = w.through, channel.NewWatcher(w.watcher)
	w.service = control.New(o)
	w.watch()
	w.t.Cleanup(func() {
		if b := w.broker.Load(); b != nil {
			w.close()
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
		cancel()
		if err := w.service.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("run: %v", err)
		}
	})
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
