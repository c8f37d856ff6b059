package control

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson"
)

// A look that hangs is given up after its time, and is not begun a second time
// while it hangs; when it comes back, the next one is asked.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		back := make(chan struct{})
		l := look[int64]{ask: asking[int64](func(context.Context) (int64, error) {
			n := asked.Add(1)
			if n == 1 {
				<-back // whatever its context says, as a dead file system does
			}
			return n, nil
		})}
		for range 3 {
			began := time.Now()
			if _, err := l.within(t.Context(), 2*time.Second); err == nil || time.Since(began) != 2*time.Second {
				t.Errorf("it took %s: %v", time.Since(began), err)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times while one hangs", n)
		}
		close(back)
		synctest.Wait()
		if n, err := l.within(t.Context(), time.Second); err != nil || n != 2 {
			t.Errorf("afterwards %d, %v", n, err)
		}
	})
}

// Engines that do not answer are asked again after 1, 2, 4, 5, 5 s, each in its
// own time: one that hangs does not keep another from being asked.
func TestEnginesAreAskedInTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		asked := map[string][]time.Duration{}
		s := New(Options{Ledger: unasked{}, Boot: func() time.Duration { return time.Since(began) + time.Hour }, Present: func(ctx context.Context, engine string) (Listing, error) {
			mu.Lock()
			asked[engine] = append(asked[engine], time.Since(began))
			mu.Unlock()
			switch engine {
			case "hangs":
				<-ctx.Done()
				return Listing{}, ctx.Err()
			case "fails":
				return Listing{}, errors.New("no")
			default:
				return Listing{Sandboxes: map[caisson.SandboxID]bool{"s1": true}}, nil
			}
		}})
		for _, engine := range []string{"hangs", "fails", "works"} {
			b := s.broker(t.Context(), Sandbox{Record: caisson.SandboxRecord{ID: "s1", Engine: engine}})
			s.add(b)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		for ctx.Err() == nil {
			due, _ := s.dueListings(s.o.Boot())
			var looks []looking
			for i := range due {
				looks = append(looks, &due[i])
			}
			s.lookAround(ctx, looks)
			time.Sleep(250 * time.Millisecond) // of the bubble's clock
		}
		s.leave()
		s.looks.Wait()
		time.Sleep(lookFor) // nobody waits for one that hangs
		mu.Lock()
		defer mu.Unlock()
		for engine, want := range map[string][]time.Duration{
			"works": {0, 5, 10, 15, 20, 25}, "fails": {0, 1, 3, 7, 12, 17, 22, 27}, "hangs": {0, 3, 7, 13, 20, 27},
		} {
			if len(asked[engine]) != len(want) {
				t.Errorf("%s was asked at %v", engine, asked[engine])
				continue
			}
			for i, at := range asked[engine] {
				if off := at - want[i]*time.Second; off < 0 || off > time.Second {
					t.Errorf("%s was asked at %v", engine, asked[engine])
					break
				}
			}
		}
	})
}

func TestAnswersOfOutcomes(t *testing.T) {
	began := time.Unix(1, 0)
	r := caisson.RequestRecord{Run: "r1", Generation: 2, ID: "0123456789abcdef", Call: "c"}
	for _, c := range []struct {
		name  string
		call  caisson.CallRecord
		state caisson.AnswerState
		code  caisson.Code
		exit  int
	}{
		{"judged", caisson.CallRecord{State: caisson.CallJudged}, "", "", 0},
		{"asked", caisson.CallRecord{State: caisson.CallAsked, Review: "q1"}, caisson.AnswerWaiting, "", 0},
		{"started", caisson.CallRecord{State: caisson.CallStarted, Started: began}, caisson.AnswerAccepted, "", 0},
		{"done", caisson.CallRecord{State: "done", Started: began, Result: &caisson.Result{Text: "x", Data: []byte(`{"code":3}`)}}, caisson.AnswerCompleted, "", 0},
		{"failed", caisson.CallRecord{State: "failed", Started: began, Result: &caisson.Result{Text: "x"}}, caisson.AnswerCompleted, "", 1},
		{"failed with a status", caisson.CallRecord{State: "failed", Started: began, Result: &caisson.Result{Text: "x", Data: []byte(`{"code":3}`)}}, caisson.AnswerCompleted, "", 3},
		{"out of time", caisson.CallRecord{State: "failed", Started: began, Result: &caisson.Result{Cause: caisson.CauseDeadline}}, caisson.AnswerCompleted, "", 124},
		{"stopped", caisson.CallRecord{State: "cancelled", Started: began, Result: &caisson.Result{Cause: caisson.CauseShutdown}}, caisson.AnswerCompleted, "", 130},
		{"cancelled before", caisson.CallRecord{State: "cancelled", Result: &caisson.Result{Error: caisson.Errorf(caisson.CodeCancelled, "x")}}, caisson.AnswerRejected, caisson.CodeNotExecuted, 75},
		{"not valid", caisson.CallRecord{State: "refused", Result: &caisson.Result{Error: caisson.Errorf(caisson.CodeCallInvalid, "x")}}, caisson.AnswerRejected, caisson.CodeRequestInvalid, 2},
		{"no verb any more", caisson.CallRecord{State: "refused", Result: &caisson.Result{Error: caisson.Errorf(caisson.CodeToolUnknown, "x")}}, caisson.AnswerRejected, caisson.CodeVerbDenied, 77},
		{"refused", caisson.CallRecord{State: "refused", Result: &caisson.Result{Text: "rule x", Error: caisson.Errorf(caisson.CodeRefused, "x")}}, caisson.AnswerRejected, caisson.CodeRefused, 77},
		{"not started", caisson.CallRecord{State: "not-started", Result: &caisson.Result{Error: caisson.Errorf(caisson.CodeBudgetExceeded, "x")}}, caisson.AnswerRejected, caisson.CodeBudgetExceeded, 1},
		{"unknown", caisson.CallRecord{State: "unknown", Started: began, Result: &caisson.Result{Text: "half"}}, caisson.AnswerRejected, caisson.CodeResultUnknown, 76},
	} {
		a, any := answerOf(r, &c.call)
		if c.state == "" {
			if any {
				t.Errorf("%s: answered %+v", c.name, a)
			}
			continue
		}
		if !any || a.State != c.state || a.Exit != c.exit || (a.Error == nil) != (c.code == "") || a.Error != nil && a.Error.Code != c.code {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
	if _, any := answerOf(r, nil); any {
		t.Error("a request without a call is answered")
	}
	r.Rejected = caisson.Errorf(caisson.CodeBusy, "x")
	if a, _ := answerOf(r, &caisson.CallRecord{State: "done"}); a.Error == nil || a.Error.Code != caisson.CodeBusy || a.Call != "" {
		t.Errorf("rejected: %+v", a)
	}
}
