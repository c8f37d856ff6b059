package control_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// A broker that dies after it has taken a request from its client and before
// there is a record of it, or before it has forgotten the file, leaves none
// without an answer, and none with two: also where the one after it dies while
// it deals with what was left.
func TestCase_K04_Windows(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	for _, c := range []struct {
		points []string // where one broker after the other is killed
		want   caisson.Code
	}{
		{[]string{"channel.claim.moved"}, caisson.CodeRequestExpired},
		{[]string{"control.claimed"}, caisson.CodeRequestExpired},
		{[]string{"control.recorded"}, caisson.CodeNotExecuted},
		{[]string{"control.claimed", "control.claimed", "control.claimed"}, caisson.CodeRequestExpired},
		{[]string{"control.claimed", "control.recorded"}, caisson.CodeRequestExpired},
		{[]string{"control.claimed", "control.recorded", "channel.place.before"}, caisson.CodeRequestExpired},
		{[]string{"control.claimed", "control.published"}, caisson.CodeRequestExpired},
		{[]string{"control.recorded", "channel.place.before"}, caisson.CodeNotExecuted},
	} {
		t.Run(strings.Join(c.points, " "), func(t *testing.T) {
			w := newWorld(t)
			w.serve()
			p := w.spawn(c.points[0] + "=crash")
			ids := []caisson.RequestID{w.ask("count", `{}`)}
			for i, point := range c.points {
				if i > 0 {
					p = w.launch(point + "=crash")
				}
				if !p.died() {
					t.Fatalf("it goes by %s no more", point)
				}
				w.claimedAtMost(1)
			}
			w.takeOver()
			w.start()
			w.answeredOnce(ids, c.want)
		})
	}
}

// The same of what is no request, and of many at once.
func TestCase_K04_WindowsOfMany(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	w := newWorld(t)
	w.serve()
	w.spawn("").ended(false) // there is a channel, and nobody serves it
	good := w.request(newRequestID(), "count", `{}`)
	requests := filepath.Join(w.channel(), caisson.ControlRequests)
	odd := []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		func(path string) error { return os.MkdirAll(filepath.Join(path, "a", "b"), 0o700) },
		func(path string) error { return os.Symlink("/etc/passwd", path) },
	}
	var expired, invalid []caisson.RequestID
	for i := range 12 {
		for range 12 {
			good.ID = newRequestID()
			expired = append(expired, good.ID)
			w.put(good.ID, marshal(t, good))
		}
		id := newRequestID()
		if err := odd[i%len(odd)](filepath.Join(requests, string(id)+".json")); err != nil {
			t.Fatal(err)
		}
		invalid = append(invalid, id)
		// Those before it have recorded some of what they claimed together.
		p := w.launch([]string{"control.claimed=crash", "control.recorded=crash@5", "control.recorded=crash@9", "control.published=crash@3"}[i%4])
		if !p.died() {
			t.Fatalf("broker %d goes by its point no more", i)
		}
		w.claimedAtMost(32)
	}
	w.takeOver()
	w.start()
	w.answeredOnce(expired, caisson.CodeRequestExpired)
	w.answeredOnce(invalid, caisson.CodeRequestInvalid)
}

// claimedAtMost looks how much is there that nobody has forgotten yet.
func (w *world) claimedAtMost(most int) {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.channel(), caisson.ControlPrivate))
	if err != nil {
		w.t.Fatal(err)
	}
	claimed := 0
	for _, e := range entries {
		if id, _, _ := strings.Cut(e.Name(), "."); caisson.RequestID(id).Valid() {
			claimed++
		}
	}
	if claimed > most {
		w.t.Errorf("%d claimed requests are in private", claimed)
	}
}

// answeredOnce looks whether requests that never ran have one answer each, on
// record as for their clients, and that nothing else of them is left.
func (w *world) answeredOnce(ids []caisson.RequestID, want caisson.Code) {
	w.t.Helper()
	for _, id := range ids {
		if code := w.refused(id); code != want {
			w.t.Errorf("request %s is answered %s, want %s", id, code, want)
		}
		if n := w.done(id); n != 0 {
			w.t.Errorf("request %s was done %d times", id, n)
		}
		found, err := w.ledger.Requests(w.t.Context(), w.run, caisson.RequestFilter{IDs: []caisson.RequestID{id}})
		if err != nil || len(found) != 1 || found[0].Rejected == nil || found[0].Rejected.Code != want {
			w.t.Errorf("request %s is on record as %+v, %v", id, found, err)
		}
	}
	if again := w.events(caisson.EventRequestReplayed); len(again) > 0 {
		w.t.Errorf("taken twice: %v", again)
	}
	if a := w.answer(w.ask("recover", `{"id":"`+string(ids[0])+`"}`)); a.State != caisson.AnswerCompleted || a.Exit != 0 {
		w.t.Errorf("recover: %+v", a)
	}
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		w.t.Errorf("the next request: %+v", a)
	}
	w.await("that nothing is left of them", func() bool {
		entries, err := os.ReadDir(filepath.Join(w.channel(), caisson.ControlPrivate))
		return err == nil && len(entries) == 1 // in which life of the machine it was made
	})
}

// A broker that stands still between taking a request and recording it, while
// another takes over, has it answered by that one, and does not do it.
func TestTakenOverBeforeTheRecord(t *testing.T) {
	w := newWorld(t)
	l := &faulty{Ledger: w.ledger}
	w.through = l
	old := w.start()
	taking, going := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(going) })
	t.Cleanup(goOn) // before the broker is waited for, whatever becomes of the test
	l.taking.Store(new(func() { close(taking); <-going }))
	id := w.ask("count", `{}`)
	<-taking
	w.takeOver()
	w.through = w.ledger
	w.start()
	if code := w.refused(id); code != caisson.CodeRequestExpired {
		t.Errorf("the next broker says %s", code)
	}
	files := w.published()
	goOn()
	<-old.Done()
	if caisson.CodeOf(old.Err()) != caisson.CodeLeaseLost {
		t.Errorf("the old broker ended with %v", old.Err())
	}
	if now := w.published(); len(now) != len(files) {
		t.Errorf("there are the files %v, were %v", now, files)
	}
	w.answeredOnce([]caisson.RequestID{id}, caisson.CodeRequestExpired)
}

// A request that belongs to an older generation, in which it was recorded, is
// not answered in the next one: it may have been done.
func TestLeftOfAnOlderGeneration(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		w := newWorld(t)
		w.start()
		began := w.ask("count", `{}`)
		w.answer(began)
		old := w.request(newRequestID(), "count", `{}`)
		w.close()
		id := old.ID
		if recorded {
			id = began
		}
		old.ID = id
		claimed := filepath.Join(w.channel(), caisson.ControlPrivate, string(id)+".dead.1.json")
		if err := os.WriteFile(claimed, marshal(t, old), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(w.channel(), caisson.ControlResponses)); err != nil {
			t.Fatal(err)
		}
		w.takeOver()
		w.sandbox.Generation = 2
		w.start()
		if w.has(id, ".json") == recorded {
			t.Errorf("recorded %v: it is answered: %v", recorded, w.has(id, ".json"))
		}
		if !recorded && w.refused(id) != caisson.CodeGenerationStale {
			t.Error("it is not answered as what it is")
		}
		w.claimedAtMost(0)
	}
}

// What can neither be recorded nor answered is answered as soon as that goes,
// and nothing more is claimed meanwhile.
func TestUnrecordedAndUnanswered(t *testing.T) {
	w := newWorld(t)
	l := &faulty{Ledger: w.ledger}
	w.through = l
	b := w.start()
	w.await("that the status is told", func() bool { return w.status().State == caisson.BrokerHealthy })
	full := caisson.Errorf(caisson.CodeDiskFull, "the disk is full")
	taken := make(chan struct{})
	var room []func()
	l.taking.Store(new(func() {
		l.take.Store(full)
		for nth := range 100 { // whoever else writes, or tries again
			room = append(room, fault.Arm("channel.place.before", fault.ENOSPC, int64(nth+1)))
			w.t.Cleanup(room[nth])
		}
		close(taken)
	}))
	first := w.ask("count", `{}`)
	<-taken
	w.await("that it is claimed, and that it cannot be answered", func() bool {
		_, err := os.Lstat(filepath.Join(w.channel(), caisson.ControlRequests, string(first)+".json"))
		return err != nil && l.untaken.Load() > 0 && b.Left()
	})
	second := w.ask("count", `{}`)
	raw, err := json.Marshal(b.Status())
	if err != nil || w.has(first, ".json") {
		t.Fatalf("answered on a full disk; %s, %v", raw, err)
	}
	w.claimedAtMost(1)
	l.take.Store(nil)
	for _, disarm := range room {
		disarm()
	}
	w.tickNow()
	if code := w.refused(first); code != caisson.CodeNotExecuted || w.done(first) != 0 {
		t.Errorf("the first is answered %s, done %d times", code, w.done(first))
	}
	if a := w.answer(second); a.State != caisson.AnswerCompleted {
		t.Errorf("the second: %+v", a)
	}
	w.await("that nothing is claimed", func() bool {
		entries, err := os.ReadDir(filepath.Join(w.channel(), caisson.ControlPrivate))
		return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), string(first)) })
	})
}
