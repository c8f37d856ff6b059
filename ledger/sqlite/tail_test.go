package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// tailed returns a ledger of three runs, and one who waits for each, and for any.
func tailed(t *testing.T) (l *Ledger, runs []caisson.Drive, rung map[caisson.RunID]chan struct{}) {
	t.Helper()
	l, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.PutInstance(t.Context(), caisson.Instance{ID: "i"}); err != nil {
		t.Fatal(err)
	}
	rung = map[caisson.RunID]chan struct{}{"": l.tail.join("")}
	for i := range 3 {
		id := caisson.RunID(fmt.Sprintf("r%d", i))
		if _, err := l.CreateRun(t.Context(), id, caisson.RunSpec{Root: id, Engine: "none", Preset: "sandboxed", OnUnknown: "tell"}); err != nil {
			t.Fatal(err)
		}
		lease, err := l.TakeLease(t.Context(), id, "i", 0)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, caisson.Drive{Run: id, Fence: lease.Fence})
		rung[id] = l.tail.join(id)
	}
	return l, runs, rung
}

// Who waits for a run is not woken by what others do, and who waits for any is by
// all of it.
func TestTailRingsForWhomItConcerns(t *testing.T) {
	l, runs, rung := tailed(t)
	rang := func() (who []caisson.RunID) {
		for _, id := range []caisson.RunID{"", "r0", "r1", "r2"} {
			select {
			case <-rung[id]:
				who = append(who, id)
			default:
			}
		}
		return who
	}
	seen := l.news(-1)
	if who := rang(); len(who) != 4 {
		t.Errorf("at first only %q are rung for", who)
	}
	if seen = l.news(seen); len(rang()) > 0 {
		t.Error("rung for nothing")
	}
	for i, want := range [][]int{{1}, {0, 2}} {
		for _, of := range want {
			for range 3 {
				if err := l.Append(t.Context(), runs[of], caisson.EventNote, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		seen = l.news(seen)
		who := rang()
		if len(who) != len(want)+1 || who[0] != "" || who[1] != runs[want[0]].Run || who[len(want)] != runs[want[len(want)-1]].Run {
			t.Errorf("%d: %q are rung for", i, who)
		}
	}
	// What cannot be told is no reason to be silent.
	if l.news(seen + 100); len(rang()) != 4 {
		t.Error("not all are rung for when the events are fewer than there were")
	}
}

// A commit that woke nobody is seen, also by one who comes when nobody has waited for
// longer than the tail looks by itself.
func TestTailLooksByItself(t *testing.T) {
	l, runs, rung := tailed(t)
	for id, c := range rung {
		l.tail.leave(id, c)
	}
	f := &Ledger{opts: l.opts, file: l.file, readers: l.readers, tail: newTail(), closing: make(chan struct{})}
	done := make(chan struct{})
	go func() { f.follow(nil, nil); close(done) }()
	defer func() { close(f.closing); <-done }()
	for range 2 {
		c := f.tail.join(runs[0].Run)
		for len(c) > 0 { // the first look rings for all
			<-c
		}
		if err := l.Append(t.Context(), runs[0], caisson.EventNote, 1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c:
		case <-time.After(30 * time.Second):
			t.Fatal("it is not seen")
		}
		f.tail.leave(runs[0].Run, c)
		time.Sleep(lookEvery + lookEvery/2) // nobody waits: it looks once more, and has no timer then
	}
}

// A look by the clock is left out only while the log has not been written for long,
// as this process has seen it, and not for ever.
func TestTailRestsWithTheLog(t *testing.T) {
	l, runs, _ := tailed(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(l.opts.Path, link); err != nil {
		t.Fatal(err)
	}
	log := rested{path: logOf(link)}
	now := time.Now()
	still := func(after time.Duration) bool {
		now = now.Add(after)
		return log.still(now)
	}
	for i, c := range []struct {
		after time.Duration
		still bool
	}{{time.Hour, false}, {restedFor / 2, false}, {restedFor/2 + 1, true}, {time.Second, true}, {time.Hour, true}} {
		if got := still(c.after); got != c.still {
			t.Errorf("%d: %t", i, got)
		}
	}
	left := 0
	for range 2 * restedAtMost {
		if still(time.Second) {
			left++
		}
	}
	if left >= 2*restedAtMost || left < restedAtMost {
		t.Errorf("%d looks are left out", left)
	}
	written := func() time.Time {
		t.Helper()
		info, err := os.Stat(l.opts.Path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	for at := written(); written().Equal(at); {
		if err := l.Append(t.Context(), runs[0], caisson.EventNote, 1); err != nil {
			t.Fatal(err)
		}
	}
	if still(time.Hour) || still(restedFor) {
		t.Error("a commit is passed over")
	}
	if !still(1) {
		t.Error("it looks again though nothing was written")
	}
}

// Only who has the file open is named as the one who has its lock.
func TestHolderHasTheFileOpen(t *testing.T) {
	l, _, _ := tailed(t)
	if f := l.turn.writer; !hasOpen(os.Getpid(), f) || hasOpen(os.Getppid(), f) {
		t.Errorf("this process: %t, its parent: %t", hasOpen(os.Getpid(), f), hasOpen(os.Getppid(), f))
	}
}
