package control

import (
	"context"
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
