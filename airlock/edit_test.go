package airlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/internal/fault"
)

// noter is a tool whose effect is a task.
func noter(d *doer) *doer {
	d.spec.Reach = caisson.ReachLedger
	d.open = func(_ context.Context, call caisson.Call) (caisson.Result, error) {
		return caisson.Result{Edit: &caisson.LedgerEdit{
			Task: &caisson.TaskEdit{Activity: caisson.TaskActivity{By: "test", Kind: "created"}, Change: func(t *caisson.Task) error {
				t.Title, t.Branch = string(call.ID), "chore/"+string(call.Input)
				return nil
			}},
			Result: func(t caisson.Task) caisson.Result {
				return caisson.Result{Text: "made " + t.Title + " with sesame", Outcome: caisson.OutcomeUnknown}
			},
		}}, nil
	}
	return d
}

func (w *world) tasks() []caisson.Task {
	w.t.Helper()
	tasks, err := w.ledger.Tasks(w.t.Context(), caisson.TaskFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	return tasks
}

func TestEditIsTheEffect(t *testing.T) {
	w := newWorld(t)
	w.options.Redact = func(s string) string { return strings.ReplaceAll(s, "sesame", "•") }
	s := w.settle(w.request(1, "note", "a"))
	rec := s.Records[0]
	if states(s) != "done" || rec.Result.Text != "made "+string(rec.Call.ID)+" with •" || rec.Result.Outcome != caisson.OutcomeDone {
		t.Errorf("%s: %+v", states(s), rec.Result)
	}
	if tasks := w.tasks(); len(tasks) != 1 || tasks[0].Title != string(rec.Call.ID) {
		t.Errorf("tasks %+v", tasks)
	}
	if s = w.settle(w.request(1, "note", "a")); states(s) != "done" || len(w.tasks()) != 1 {
		t.Errorf("replayed: %s, %d tasks", states(s), len(w.tasks()))
	}
}

func TestEditIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *doer)
		code   caisson.Code
	}{
		"with a code": {func(d *doer) {
			d.open = func(context.Context, caisson.Call) (caisson.Result, error) {
				return caisson.Result{Edit: &caisson.LedgerEdit{Task: &caisson.TaskEdit{Change: func(*caisson.Task) error {
					return caisson.Errorf(caisson.CodeTaskUnfinished, "two findings are open")
				}}}}, nil
			}
		}, caisson.CodeTaskUnfinished},
		"without": {func(d *doer) {
			d.open = func(context.Context, caisson.Call) (caisson.Result, error) {
				return caisson.Result{Edit: &caisson.LedgerEdit{Task: &caisson.TaskEdit{Change: func(*caisson.Task) error { return errors.New("no") }}}}, nil
			}
		}, caisson.CodeInternal},
		"a state": {func(d *doer) {
			d.open = func(context.Context, caisson.Call) (caisson.Result, error) {
				return caisson.Result{Edit: &caisson.LedgerEdit{Task: &caisson.TaskEdit{Change: func(t *caisson.Task) error {
					t.State = caisson.TaskArchived
					return nil
				}}}}, nil
			}
		}, caisson.CodeStateInvalid},
		"of no task":       {func(d *doer) { d.open = opens(caisson.Result{Edit: &caisson.LedgerEdit{}}) }, caisson.CodeUsage},
		"of another reach": {func(d *doer) { d.spec.Reach = caisson.ReachOutside }, caisson.CodeInternal},
		"end not known": {func(d *doer) {
			d.open = func(context.Context, caisson.Call) (caisson.Result, error) {
				return caisson.Result{}, caisson.Errorf(caisson.CodeOutcomeUnknown, "lost")
			}
		}, caisson.CodeOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.change(w.tools["note"].(*doer))
			r := w.request(1, "note", "a")
			s := w.settle(r)
			if states(s) != "failed" || s.Records[0].Result.Error == nil || s.Records[0].Result.Error.Code != c.code || s.Records[0].Result.Text == "" || len(w.tasks()) != 0 {
				t.Errorf("%s: %+v, %d tasks", states(s), s.Records[0].Result, len(w.tasks()))
			}
			if s = w.settle(r); states(s) != "failed" || w.done()[r.ID] != 1 {
				t.Errorf("replayed: %s, opened %d times", states(s), w.done()[r.ID])
			}
		})
	}
	t.Run("not done", func(t *testing.T) {
		w := newWorld(t)
		d := w.tools["note"].(*doer)
		whole := d.open
		d.open = func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
			r, _ := whole(ctx, call)
			return r, errors.New("yet it went wrong")
		}
		if s := w.settle(w.request(1, "note", "a")); states(s) != "failed" || len(w.tasks()) != 0 {
			t.Errorf("%s, %d tasks", states(s), len(w.tasks()))
		}
	})
}

func opens(r caisson.Result) func(context.Context, caisson.Call) (caisson.Result, error) {
	return func(context.Context, caisson.Call) (caisson.Result, error) { return r, nil }
}

// TestCrashBeforeEdit kills the driver wherever it goes by between the start of
// a call of the ledger and its outcome: whatever its effect is declared as,
// nobody is asked, it is done once and never unknown.
func TestCrashBeforeEdit(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	killed := 0
	for _, tool := range []string{"note", "renote"} {
		for _, point := range []string{"airlock.started", "airlock.effected", "airlock.settling", "airlock.settled", "ledger.job.after", "ledger.commit.before", "ledger.commit.after"} {
			for nth := 1; ; nth++ {
				w := newWorld(t)
				c := child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: []wanted{{tool, "a"}}}
				if !runChild(t, c, fmt.Sprintf("%s=crash@%d", point, nth)).Killed {
					break
				}
				killed++
				w.takeOver()
				s := w.settle(w.request(1, tool, "a"))
				if tasks := w.tasks(); states(s) != "done" || len(tasks) != 1 || len(s.Waiting) != 0 || !strings.HasPrefix(s.Records[0].Result.Text, "made ") {
					t.Fatalf("%s, crash at %s, pass %d: %s, %d tasks, %+v", tool, point, nth, states(s), len(tasks), s.Records[0].Result)
				}
			}
		}
	}
	if killed < 16 {
		t.Errorf("only %d crashes: a point is not reached any more", killed)
	}
}

// What began, and may not begin again today, has failed.
func TestCrashBeforeEditEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, r *airlock.Request) (airlock.Settled, error){
		"denied today": func(w *world, r *airlock.Request) (airlock.Settled, error) {
			w.options.Judge = rules("note", "deny")
			return w.door().Settle(w.t.Context(), []airlock.Request{*r})
		},
		"no such tool": func(w *world, r *airlock.Request) (airlock.Settled, error) {
			r.Tool = nil
			return w.door().Settle(w.t.Context(), []airlock.Request{*r})
		},
		"not ready": func(w *world, r *airlock.Request) (airlock.Settled, error) {
			w.tools["note"].(*doer).hold = func(context.Context) error { return errors.New("no") }
			return w.door().Settle(w.t.Context(), []airlock.Request{*r})
		},
		"cancelled": func(w *world, r *airlock.Request) (airlock.Settled, error) {
			ctx, cancel := context.WithCancelCause(w.t.Context())
			cancel(&caisson.CauseError{Cause: caisson.CauseUser, Text: "enough"})
			s, err := w.door().Settle(ctx, []airlock.Request{*r})
			var cause *caisson.CauseError
			if !errors.As(err, &cause) {
				return s, err
			}
			return s, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if !runChild(t, child{Mode: "settle", Dir: w.dir, Run: w.run, Calls: []wanted{{"note", "a"}}}, "airlock.effected=crash").Killed {
				t.Fatal("the child lives")
			}
			w.takeOver()
			r := w.request(1, "note", "a")
			s, err := end(w, &r)
			if err != nil || states(s) != "failed" || s.Records[0].Result.Error.Code != caisson.CodeNotExecuted || len(w.tasks()) != 0 {
				t.Errorf("%v: %s, %+v, %d tasks", err, states(s), s.Records[0].Result, len(w.tasks()))
			}
		})
	}
}

// A ledger that takes no writes for a while gets the edit later, once.
func TestEditIsKept(t *testing.T) {
	w := newWorld(t)
	w.options.SettleFor = time.Millisecond
	d := w.tools["note"].(*doer)
	whole, full := d.open, func() {}
	d.open = func(ctx context.Context, call caisson.Call) (caisson.Result, error) {
		full = fault.Arm("ledger.commit.before", fault.ENOSPC, 1)
		return whole(ctx, call)
	}
	lock, r := airlock.New(w.options), w.request(1, "note", "a")
	s, err := enter(lock, w.drive).Settle(t.Context(), []airlock.Request{r})
	full()
	if caisson.CodeOf(err) != caisson.CodeDiskFull || states(s) != "started" || len(w.tasks()) != 0 {
		t.Fatalf("%v, %s, %d tasks", err, states(s), len(w.tasks()))
	}
	s, err = enter(lock, w.drive).Settle(t.Context(), []airlock.Request{r})
	if err != nil || states(s) != "done" || len(w.tasks()) != 1 || w.done()[r.ID] != 1 {
		t.Errorf("%v, %s, %d tasks, opened %d times", err, states(s), len(w.tasks()), w.done()[r.ID])
	}
}

// A request from inside is a call as any other, and says nothing of the run.
func TestRequestCall(t *testing.T) {
	w := newWorld(t)
	channel, err := w.ledger.OpenChannel(t.Context(), w.drive, 0)
	if err != nil {
		t.Fatal(err)
	}
	take := func(id caisson.RequestID, tool string) airlock.Request {
		if err := w.ledger.TakeRequest(t.Context(), w.drive, caisson.RequestRecord{Generation: channel.Generation, ID: id, Verb: tool}); err != nil {
			t.Fatal(err)
		}
		r := w.request(1, tool, "a")
		r.ID, r.Turn, r.ProviderID = caisson.NewRequestCallID(w.run, channel.Generation, id), 0, ""
		return r
	}
	note, gated := take("0000000000000001", "note"), take("0000000000000002", "gated")
	if s := w.settle(note); states(s) != "done" || len(w.tasks()) != 1 {
		t.Errorf("%s, %d tasks", states(s), len(w.tasks()))
	}
	s := w.settle(gated)
	if len(s.Waiting) != 1 {
		t.Fatalf("waits for %v", s.Waiting)
	}
	w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Approve})
	if s = w.settle(gated); states(s) != "done" {
		t.Error(states(s))
	}
	for _, n := range w.notices {
		if n.Kind == airlock.NoticeWaiting || n.Kind == airlock.NoticeGoing {
			t.Errorf("the run is said to be %s", n.Kind)
		}
	}
	open, err := w.ledger.Requests(t.Context(), w.run, caisson.RequestFilter{Open: true})
	if err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}
