package control

import "context"

// Tick does now what Run does when something may be due.
func (s *Service) Tick(ctx context.Context) {
	s.ticking.Lock() // Run may do it as well, and looks are not waited for while others begin
	defer s.ticking.Unlock()
	s.tickLocked(ctx)
	s.looks.Wait()
}

// Left tells whether something may lie in the channel.
func (b *Broker) Left() bool { return b.unseen.Load() || b.behind.Load() }
