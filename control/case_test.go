package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/ledger/ledgertest"
	osprocess "github.com/caisson-run/caisson/process"
)

// What is no regular file of one name is refused, unread, and keeps nobody
// waiting. From reading what others have: a broker that opens a fifo hangs, one
// that follows a link tells what it finds.
func TestCase_K01(t *testing.T) {
	w := newWorld(t)
	w.start()
	const secret = "a secret of the host"
	outside := filepath.Join(w.dir, "secret.json")
	if err := os.WriteFile(outside, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func(path string) error{
		"symbolic link": func(path string) error { return os.Symlink(outside, path) },
		"hard link":     func(path string) error { return os.Link(outside, path) },
		"fifo":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"socket":        func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"1 GiB": func(path string) error {
			// Made elsewhere: what has no name of a request's is removed at once.
			f, err := os.Create(filepath.Join(w.dir, filepath.Base(path)))
			if err != nil {
				return err
			}
			defer f.Close()
			if err := f.Truncate(1 << 30); err != nil {
				return err
			}
			return os.Rename(f.Name(), path)
		},
	}
	if os.Geteuid() == 0 {
		kinds["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }
	}
	for kind, place := range kinds {
		t.Run(kind, func(t *testing.T) {
			id := newRequestID()
			if err := place(filepath.Join(w.channel(), caisson.ControlRequests, string(id)+".json")); err != nil {
				t.Fatal(err)
			}
			if code := w.refused(id); code != caisson.CodeRequestInvalid {
				t.Errorf("answered %s", code)
			}
			raw, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+".json"))
			if err != nil || strings.Contains(string(raw), secret) || strings.Contains(string(raw), w.dir) {
				t.Errorf("the answer is %s, %v", raw, err)
			}
			if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
				t.Errorf("the next request: %+v", a)
			}
		})
	}
	if raw, err := os.ReadFile(outside); err != nil || string(raw) != secret {
		t.Errorf("the file outside is %q, %v", raw, err)
	}
}

// The same id again, while the first runs and after it ended, changes nothing
// about the first and has no effect. From reading what others have.
func TestCase_K02(t *testing.T) {
	w := newWorld(t)
	began, let := w.blocking("block")
	w.start()
	id := w.ask("block", `{"text":"first"}`)
	<-began
	w.accepted(id)
	again, err := json.Marshal(w.request(id, "count", `{"text":"second"}`))
	if err != nil {
		t.Fatal(err)
	}
	replays := func() int { return len(w.events(caisson.EventRequestReplayed)) }
	w.put(id, again)
	w.await("that the replay is seen", func() bool { return replays() == 1 })
	if w.has(id, ".json") {
		t.Error("the second request was answered in the first one's place")
	}
	close(let)
	first := w.answer(id)
	if first.Output != "let go" {
		t.Errorf("the first is answered %+v", first)
	}
	w.put(id, again)
	w.await("that the replay is seen", func() bool { return replays() == 2 })
	// The answer is gone: the replay gets what became of the first.
	if err := os.Remove(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+".json")); err != nil {
		t.Fatal(err)
	}
	w.put(id, again)
	if diff := cmp.Diff(first, w.answer(id)); diff != "" {
		t.Error(diff)
	}
	if n := w.done(id); n != 1 {
		t.Errorf("done %d times", n)
	}
}

// A broker that is stopped while another takes over writes nothing more when it
// goes on, and ends. Seen of an earlier program.
func TestCase_K03(t *testing.T) {
	for range times(t, 1) {
		if t.Run("", takeOverStopped); t.Failed() {
			return
		}
	}
}

func takeOverStopped(t *testing.T) {
	w := newWorld(t)
	w.serve() // watches
	old := w.spawn("")
	before := w.answer(w.ask("count", `{}`))
	waiting := w.ask("gated", `{}`)
	review := w.accepted(waiting).Review
	ledgertest.Halt(t, filepath.Join(w.dir, "ledger.db"), old.cmd.Process.Pid)
	late := w.ask("count", `{"text":"late"}`)
	w.takeOver()
	b := w.start()
	if code := w.refused(late); code != caisson.CodeRequestExpired {
		t.Errorf("what was written for the old broker: %s", code)
	}
	w.decide(review, caisson.Decision{Kind: caisson.Approve})
	answer := w.answer(waiting)
	w.await("that it is idle", func() bool { s := w.status(); return b.Status().Running+s.Running+len(s.Waiting) == 0 })
	at, files := w.status(), w.published()
	head, err := w.ledger.Run(t.Context(), w.run)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if last := old.ended(true); last != "ended "+string(caisson.CodeLeaseLost) {
		t.Errorf("the old broker says %q", last)
	}
	if diff := cmp.Diff(files, w.published()); diff != "" {
		t.Errorf("files changed: %s", diff)
	}
	if diff := cmp.Diff(at, w.status()); diff != "" {
		t.Errorf("the status changed: %s", diff)
	}
	if after, err := w.ledger.Run(t.Context(), w.run); err != nil || after.Head != head.Head {
		t.Errorf("the record has changed: %v", err)
	}
	if n := w.done(waiting); n != 1 || answer.State != caisson.AnswerCompleted || before.State != caisson.AnswerCompleted {
		t.Errorf("%+v, done %d times", answer, n)
	}
}

// published are the names and times of all answers.
func (w *world) published() map[string]time.Time {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.channel(), caisson.ControlResponses))
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			out[e.Name()] = info.ModTime()
		}
	}
	return out
}

// A broker that loses the sandbox while a request is between its start and its
// effect keeps the effect from happening; one that loses it during the effect
// publishes nothing.
func TestDisplacedAtTheGate(t *testing.T) {
	for _, during := range []bool{false, true} {
		t.Run(fmt.Sprintf("during=%v", during), func(t *testing.T) {
			w := newWorld(t)
			began, let := w.blocking("block")
			if !during {
				w.noticed = func(n airlock.Notice) {
					if n.Kind == airlock.NoticeStarted {
						w.takeOver()
					}
				}
			}
			b := w.start()
			id := w.ask("block", `{}`)
			if during {
				<-began
				w.takeOver()
				close(let)
			}
			<-b.Done()
			if caisson.CodeOf(b.Err()) != caisson.CodeLeaseLost {
				t.Errorf("it ended with %v", b.Err())
			}
			if w.has(id, ".json") || w.has(id, ".accepted.json") != during {
				t.Error("it published something that it may not")
			}
			if n := w.done(id); n != map[bool]int{true: 1, false: 0}[during] {
				t.Errorf("done %d times", n)
			}
			w.noticed = nil
			w.start()
			if code := w.refused(id); code != caisson.CodeResultUnknown {
				t.Errorf("the next broker says %s", code)
			}
		})
	}
}

// Wherever a broker is killed, the next one answers what is true: not executed
// where nothing began, unknown where nobody saw the end, and the result where it
// is on record. Seen of an earlier program.
func TestCase_K04(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	for _, c := range []struct {
		point string
		want  caisson.Code // empty: completed
		done  int
	}{
		{"control.taken", caisson.CodeNotExecuted, 0},
		{"airlock.prepared", caisson.CodeNotExecuted, 0},
		{"airlock.held", caisson.CodeNotExecuted, 0},
		{"airlock.started", caisson.CodeResultUnknown, 0},
		{"control.started", caisson.CodeResultUnknown, 0},
		{"control.accepted", caisson.CodeResultUnknown, 0},
		{"airlock.effected", caisson.CodeResultUnknown, 1},
		{"airlock.settled", "", 1},
		{"control.settled", "", 1},
		{"control.published", "", 1},
	} {
		t.Run(c.point, func(t *testing.T) {
			w := newWorld(t)
			w.serve()
			old := w.spawn(c.point + "=crash")
			id := w.ask("count", `{}`)
			if !old.died() {
				t.Fatal("it goes by this point no more")
			}
			accepted := w.has(id, ".accepted.json")
			w.takeOver()
			w.start()
			a := w.answer(id)
			if c.want == "" && a.State != caisson.AnswerCompleted || c.want != "" && (a.Error == nil || a.Error.Code != c.want) {
				t.Errorf("answered %+v", a)
			}
			if n := w.done(id); n != c.done {
				t.Errorf("done %d times", n)
			}
			if accepted && c.want == caisson.CodeNotExecuted {
				t.Error("what was accepted is said not to have begun")
			}
			if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
				t.Errorf("the next request: %+v", a)
			}
		})
	}
}

// No clock of the sandbox counts: with files an hour old and an hour ahead, and
// with the host's own wall clock jumping, requests are done. What does count is
// that the broker did not run for a while. From reading what others have.
func TestCase_K05(t *testing.T) {
	w := newWorld(t)
	w.start()
	for i, off := range []time.Duration{-time.Hour, time.Hour, -24 * time.Hour, 0} {
		w.later.Store(int64(off) / 2)
		id := newRequestID()
		body, err := json.Marshal(w.request(id, "count", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(w.channel(), caisson.ControlRequests)
		temporary := filepath.Join(dir, "."+string(id)+".tmp")
		at := time.Now().Add(off)
		if err := os.WriteFile(temporary, body, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(temporary, at, at); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(dir, string(id)+".json")); err != nil {
			t.Fatal(err)
		}
		if a := w.answer(id); a.State != caisson.AnswerCompleted {
			t.Errorf("clock %d: %+v", i, a)
		}
	}
}

// When the process did not run for 5 s, what clients know is of another time.
func TestStall(t *testing.T) {
	w := newWorld(t)
	b := w.start()
	w.service.Tick(t.Context())
	before := w.request(newRequestID(), "count", `{}`)
	w.boot.Store(int64(5 * time.Second))
	body, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	w.put(before.ID, body)
	if code := w.refused(before.ID); code != caisson.CodeRequestExpired {
		t.Errorf("of the time before: %s", code)
	}
	if s := b.Status(); s.Epoch != before.Epoch+1 {
		t.Errorf("status %+v", s)
	}
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("with the new epoch: %+v", a)
	}
}

// The process that a started call names has ended, and another program has its
// number: the call is unknown, and the other is left alone. Seen of go-plugin, issue 320.
func TestCase_K08(t *testing.T) {
	w := newWorld(t)
	other, err := osprocess.Of(os.Getpid()) // as innocent as can be: the test itself
	if err != nil {
		t.Fatal(err)
	}
	gone := other
	gone.Start--
	w.verbs = append(w.verbs, verb{name: "held", effects: w.effects(), process: &gone, open: func(ctx context.Context, _ caisson.Call) (caisson.Result, error) {
		<-ctx.Done()
		return caisson.Result{}, context.Cause(ctx)
	}})
	b := w.start()
	id := w.ask("held", `{}`)
	w.accepted(id)
	w.takeOver() // as if the first process had died: it writes nothing more
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.has(id, ".json") {
		t.Fatal("the displaced broker has answered")
	}
	w.start()
	if code := w.refused(id); code != caisson.CodeResultUnknown {
		t.Errorf("answered %s", code)
	}
}

// A process that cannot be ended keeps the channel closed, and is named.
func TestOrphanKeepsItClosed(t *testing.T) {
	w := newWorld(t)
	elsewhere, err := osprocess.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.PIDNS++ // another pid namespace: nothing can be told of it
	w.verbs = append(w.verbs, verb{name: "held", effects: w.effects(), process: &elsewhere, open: func(ctx context.Context, _ caisson.Call) (caisson.Result, error) {
		<-ctx.Done()
		return caisson.Result{}, context.Cause(ctx)
	}})
	b := w.start()
	id := w.ask("held", `{}`)
	w.accepted(id)
	w.takeOver()
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.open(); caisson.CodeOf(err) != caisson.CodeHolderUnknown || !contains(err, string(id)) {
		t.Errorf("got %v", err)
	}
}
