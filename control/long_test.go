package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/control/channel"
)

// longEnv is how many requests go through one channel in TestCase_K07.
const longEnv = "CAISSON_LONG_REQUESTS"

// Many requests through one channel: the last are as quick as the first, and
// what is kept on disk is bounded. From reading what others have.
func TestCase_K07(t *testing.T) {
	n := 3_000
	if text := os.Getenv(longEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		t.Skip("writes many requests")
	}
	w := newWorld(t)
	w.verbs = []caisson.Tool{noop{}}
	w.start()
	part := n / 10
	var first, last time.Duration // of a processor: what else the machine does takes time, too
	for done := 0; done < n; done += part {
		before := used()
		w.send(part)
		last = used() - before
		if done == part { // the first warms up
			first = last
		}
	}
	t.Logf("%d requests: the second tenth took %s, the last %s", n, first, last)
	if last > 3*first+2*time.Second {
		t.Errorf("it slows down: %s for the second tenth, %s for the last", first, last)
	}
	if files := len(w.published()); files > 2*(caisson.ControlKept+2*64) {
		t.Errorf("%d files are kept", files)
	}
	if s := w.broker.Load().Status(); s.State != caisson.BrokerHealthy {
		t.Errorf("status %+v", s)
	}
}

// noop is a verb that does nothing.
type noop struct{ verb }

func (noop) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{Ref: caisson.ToolRef{Name: "noop"}, Schema: json.RawMessage(anySchema), Effect: caisson.EffectRead, Parallel: true}
}

func (noop) Hold(context.Context, caisson.Call, caisson.EffectID) (caisson.Executor, error) {
	return nothing{}, nil
}

type nothing struct{}

func (nothing) Identity() *caisson.ProcessIdentity           { return nil }
func (nothing) Drop()                                        {}
func (nothing) Open(context.Context) (caisson.Result, error) { return caisson.Result{}, nil }

// send sends n requests, eight at a time, and waits for their answers.
func (w *world) send(n int) {
	w.t.Helper()
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for range n/8 + min(1, max(0, n%8-c)) {
				if a := w.answer(w.ask("noop", `{}`)); a.State != caisson.AnswerCompleted {
					w.t.Errorf("answer %+v", a)
				}
			}
		})
	}
	clients.Wait()
}

// BenchmarkRequest is a request that does nothing, from its file to its answer.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b)
	w.verbs = []caisson.Tool{noop{}}
	w.start()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		w.answer(w.ask("noop", `{}`))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// fleet are channels in one ledger.
type fleet struct {
	boxes   []control.Sandbox
	service *control.Service
	// reopen opens all of them in another service, and tells how long that took.
	reopen func() time.Duration
}

// many makes channels with some old requests each in one ledger.
func many(b testing.TB, channels, old int) *fleet {
	dir := b.TempDir()
	l := openLedger(b, dir, time.Now)
	f := &fleet{}
	for i := range channels {
		run := caisson.NewRunID()
		if _, err := l.CreateRun(b.Context(), run, caisson.RunSpec{Root: run, Session: caisson.SessionServed}); err != nil {
			b.Fatal(err)
		}
		drive, err := takeLease(b.Context(), l, run)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.MoveRun(b.Context(), drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
			b.Fatal(err)
		}
		f.boxes = append(f.boxes, control.Sandbox{
			Dir: filepath.Join(dir, strconv.Itoa(i)), Drive: drive, Record: caisson.SandboxRecord{ID: caisson.SandboxID("s" + strconv.Itoa(i)), Run: run, Engine: "none"},
			Door: doorOf(l, drive, nil, func(airlock.Notice) {}), Verbs: func() []caisson.Tool { return []caisson.Tool{noop{}} },
			Bound: func(context.Context) error { _, err := os.Stat(dir); return err },
		})
	}
	var filling sync.WaitGroup
	for _, s := range f.boxes {
		filling.Go(func() { fill(b, l, s, old) })
	}
	filling.Wait()
	f.reopen = func() time.Duration {
		f.service = control.New(control.Options{Ledger: l, Watcher: channel.NewWatcher(channel.WatcherOptions{}), Present: func(context.Context, string) (control.Listing, error) {
			all := control.Listing{Sandboxes: map[caisson.SandboxID]bool{}}
			for _, s := range f.boxes {
				all.Sandboxes[s.Record.ID] = true
			}
			return all, nil
		}})
		began := time.Now()
		var opening sync.WaitGroup
		for _, s := range f.boxes {
			opening.Go(func() {
				if _, err := f.service.Open(b.Context(), s); err != nil {
					b.Errorf("open: %v", err)
				}
			})
		}
		opening.Wait()
		return time.Since(began)
	}
	return f
}

// fill gives a channel closed requests with their answers.
func fill(b testing.TB, l caisson.Ledger, s control.Sandbox, old int) {
	files, err := channel.Make(s.Dir)
	if err != nil {
		b.Error(err)
		return
	}
	defer files.Close()
	if _, err := l.OpenChannel(b.Context(), s.Drive, 0); err != nil {
		b.Error(err)
		return
	}
	for range old {
		r := caisson.RequestRecord{Run: s.Drive.Run, Generation: 1, ID: newRequestID(), Rejected: caisson.Errorf(caisson.CodeBusy, "busy")}
		if err := l.TakeRequest(b.Context(), s.Drive, r); err != nil {
			b.Error(err)
			return
		}
		if err := files.Answer(caisson.ControlAnswer{ID: r.ID, Generation: 1, State: caisson.AnswerRejected, Error: r.Rejected}, nil); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkReopen is a restart with 100 sandboxes of 1,000 old requests each.
func BenchmarkReopen(b *testing.B) {
	f := many(b, 100, 1_000)
	var took, cpu time.Duration
	for b.Loop() {
		before := used()
		took = f.reopen()
		cpu = used() - before
		b.StopTimer()
		ended, cancel := context.WithCancel(b.Context())
		cancel()
		_ = f.service.Run(ended)
		b.StartTimer()
	}
	b.ReportMetric(float64(took.Milliseconds()), "ms-to-healthy")
	b.ReportMetric(float64(cpu.Milliseconds()), "ms-of-processor")
}

// BenchmarkIdle is what 100 channels cost in which nothing happens.
func BenchmarkIdle(b *testing.B) {
	f := many(b, 100, 10)
	f.reopen()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.service.Run(ctx) }()
	<-time.After(3 * time.Second) // until the first checks are over
	for b.Loop() {
		before := used()
		began := time.Now()
		<-time.After(20 * time.Second)
		b.ReportMetric(100*float64(used()-before)/float64(time.Since(began)), "%-of-a-core")
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys-m.HeapReleased)/(1<<20), "MiB")
	b.Log(fmt.Sprint(runtime.NumGoroutine(), " goroutines"))
	cancel()
	<-ended
}
