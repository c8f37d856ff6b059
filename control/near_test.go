package control

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

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
			for range 20 {
				runtime.GC()
				if gone.Load() == want {
					break
				}
				time.Sleep(10 * time.Millisecond)
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
