package control

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A process whose sandboxes are all empty is woken for its rounds alone, and more
// often as soon as something runs in one of them.
func TestWokenSeldomWhileEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRounds(t)
		boot := r.s.o.Boot
		var mu sync.Mutex
		var woken []time.Duration
		r.s.o.Boot = func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if at := time.Since(r.at); len(woken) == 0 || woken[len(woken)-1] != at {
				woken = append(woken, at)
			}
			return boot()
		}
		b := r.broker("w", func(context.Context) error { return nil })
		b.Inhabited(false)
		for at, is := range map[time.Duration]bool{21 * time.Second: true, 31 * time.Second: false, 51 * time.Second: false} {
			time.AfterFunc(at, func() { b.Inhabited(is) })
		}
		r.run(54 * time.Second)
		var want []time.Duration
		for _, at := range []float64{0, 5, 10, 15, 20, 21, 22.5, 25, 27.5, 30, 32.5, 35, 40, 45, 50} {
			want = append(want, time.Duration(at*float64(time.Second)))
		}
		if !slices.Equal(woken, want) {
			t.Errorf("woken at %v", woken)
		}
	})
}

// A stall counts while something runs in a sandbox, and for as long after as what
// it wrote may be there; what was before that, and a time in which nobody was
// inside, is none.
func TestStallsCountWhileInhabited(t *testing.T) {
	now := time.Hour
	s := New(Options{Ledger: unasked{}, Watcher: silent{}, Boot: func() time.Duration { return now }})
	b := &Broker{s: s, o: Sandbox{Empty: true}}
	s.add(b)
	s.beat = now // Run has begun
	after := func(d time.Duration) (stalls int64) {
		t.Helper()
		now += d
		was := s.stalls
		s.pulse()
		s.nextBeat(now)
		return s.stalls - was
	}
	if after(time.Hour) != 0 {
		t.Error("nobody was inside, and it counts as a stall")
	}
	now += time.Hour
	b.Inhabited(true)
	b.Inhabited(true)
	if after(time.Second) != 0 {
		t.Error("what was before somebody came counts as a stall")
	}
	if after(stallAfter) != 1 || after(beatEvery) != 0 {
		t.Error("a stall with somebody inside does not count, or more does")
	}
	b.Inhabited(false)
	after(0)
	now += beatEvery - 1
	b.Inhabited(true) // for a moment
	b.Inhabited(false)
	after(1)
	if after(stallAfter) != 1 {
		t.Error("a stall just after the last one has gone does not count")
	}
	b.Inhabited(true)
	b.Inhabited(false)
	b.unseen.Store(true)
	for range 3 {
		after(beatEvery)
	}
	if after(stallAfter) != 1 {
		t.Error("a stall does not count though something may lie in the channel")
	}
	b.unseen.Store(false)
	after(beatEvery)
	if after(stallAfter) != 0 || s.inhabited != 0 {
		t.Errorf("a stall of the empty counts; %d are inhabited", s.inhabited)
	}
	b.Inhabited(true)
	s.drop(b)
	s.drop(b)
	b.Inhabited(true)
	if s.inhabited != 0 {
		t.Errorf("%d are inhabited, and none is there", s.inhabited)
	}
}
