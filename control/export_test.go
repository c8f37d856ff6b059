package control

import (
	"context"
	"runtime"
)

// Tick does now what Run does when something may be due.
func (s *Service) Tick(ctx context.Context) {
	s.ticking.Lock() // Run may do it as well, and looks are not waited for while others begin
	defer s.ticking.Unlock()
	s.tickLocked(ctx)
	s.looks.Wait()
}

// Left tells whether something may lie in the channel.
func (b *Broker) Left() bool { return b.unseen.Load() || b.behind.Load() }

// Ticked returns when the loop is through with what it was told to look for, and has
// nothing more of that kind to do: something else is waited for after it.
func (b *Broker) Ticked() {
	for len(b.ticks) > 0 {
		runtime.Gosched()
	}
	for range 2 {
		b.urgent <- struct{}{}
	}
}
