package control

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hangs is something to be looked at that hangs for a while.
type hangs struct {
	until         chan struct{}
	looks, alones atomic.Int64
}

func (h *hangs) look(context.Context) {
	h.looks.Add(1)
	<-h.until
}
func (h *hangs) tell(context.Context)  {}
func (h *hangs) alone(context.Context) { h.alones.Add(1) }

// A timer that was late for one walk leaves the next alone: it has its own.
func TestLateForTheWalkBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Ledger: unasked{}})
		first, second := &hangs{until: make(chan struct{})}, &hangs{until: make(chan struct{})}
		s.lookAround(t.Context(), []looking{first})
		synctest.Wait()
		late := s.walker.bound
		close(first.until)
		synctest.Wait()
		s.lookAround(t.Context(), []looking{second})
		late.Reset(0) // as if it had gone off just when the first walk ended
		time.Sleep(lookMoment / 2)
		if n := second.alones.Load(); n != 0 {
			t.Errorf("the second is looked at alone %d times before its moment is over", n)
		}
		time.Sleep(lookMoment)
		if n := second.alones.Load(); n != 1 {
			t.Errorf("it is looked at alone %d times, want once", n)
		}
		close(second.until)
		s.leave()
		s.looks.Wait()
	})
}

// Rounds are one after the other, whoever begins them: none takes the walker of
// another, and no broker is left as one that is being looked at.
func TestOneRoundAtATime(t *testing.T) {
	var now atomic.Int64
	s := New(Options{Ledger: unasked{}, Boot: func() time.Duration { return time.Hour + time.Duration(now.Load()) }})
	var all []*Broker
	for range 4 {
		b, _ := still(t, s, Sandbox{Bound: func(context.Context) error { return nil }})
		s.add(b)
		all = append(all, b)
	}
	var ticking sync.WaitGroup
	for range 4 {
		ticking.Go(func() {
			for range 500 {
				now.Add(int64(lookEvery))
				s.Tick(t.Context())
			}
		})
	}
	ticking.Wait()
	s.leave()
	for i, b := range all {
		if b.looking {
			t.Errorf("broker %d is not looked at any more", i)
		}
	}
}
