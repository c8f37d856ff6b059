package control

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

// Files that could not be taken back, as nobody could tell whose they are to be, are
// taken back with the next round: of those that took them no event comes again.
func TestWhatCouldNotBeTakenBackStirs(t *testing.T) {
	s := New(Options{Ledger: unasked{}, Watcher: silent{}})
	b, dir := still(t, s, Sandbox{Owned: func(context.Context) error { return errors.New("no answer") }})
	b.tick(s.begun, 0, 0)
	b.tick(s.begun+lookEvery, 1, 0)
	if len(b.ticks) > 0 {
		t.Fatal("something is to be done at first")
	}
	other, err := channel.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b.keep(t.Context())
	if b.tick(s.begun+2*lookEvery, 2, 0); len(b.ticks) == 0 {
		t.Error("the loop is not told")
	}
}

// A broker that has ended is not kept, whoever else is open.
func TestEndedBrokersAreNotKept(t *testing.T) {
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound %t", bound), func(t *testing.T) {
			var now atomic.Int64
			s := New(Options{Ledger: unasked{}, Boot: func() time.Duration { return time.Hour + time.Duration(now.Load()) }, Present: func(context.Context, string) (Listing, error) {
				return Listing{Sandboxes: map[caisson.SandboxID]bool{"s": true}}, nil
			}})
			var gone atomic.Int64
			open := func() *Broker {
				o := Sandbox{Record: caisson.SandboxRecord{ID: "s", Engine: "e"}}
				if bound {
					o.Bound = func(context.Context) error { return nil }
				}
				b := s.broker(t.Context(), o)
				b.untold = false
				b.state = caisson.BrokerHealthy
				if err := b.place.make(t.TempDir()); err != nil {
					t.Fatal(err)
				}
				s.add(b)
				runtime.AddCleanup(b, func(int) { gone.Add(1) }, 0)
				return b
			}
			end := func(b *Broker) {
				b.end(shutdown())
				b.place.close()
				s.drop(b)
			}
			round := func() {
				now.Add(int64(lookEvery))
				s.tick(t.Context())
				s.looks.Wait()
			}
			stays := open()
			for range 9 {
				b := open()
				round()
				end(b)
			}
			round()
			if bound { // and where nobody is left, no look follows that would forget them
				end(stays)
				stays = nil
			}
			want := int64(9)
			if stays == nil {
				want++
			}
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if runtime.GC(); gone.Load() == want { // what is told of it is, in a while
					break
				}
			}
			if n := gone.Load(); n != want {
				t.Errorf("of %d that have ended %d are gone", want, n)
			}
			s.leave()
			runtime.KeepAlive(stays)
			runtime.KeepAlive(s)
		})
	}
}
