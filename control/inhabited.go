package control

import "time"

// A stall of this process is noticed for certain only by one that is woken often.
// What it matters for are requests that were written before or in it. So the process
// is woken for that only while something runs in a sandbox that could write one: an
// idle process is woken for its rounds alone.

// Inhabited says whether any command runs in the sandbox. It can be told of one that
// was opened as Empty.
func (b *Broker) Inhabited(is bool) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.empty != is || !b.s.brokers[b.near] {
		return // it is known, or the broker has ended
	}
	b.empty = !is
	b.s.countLocked(is)
}

// countLocked counts a sandbox in which something runs in, or out.
func (s *Service) countLocked(in bool) {
	if !in {
		s.inhabited--
		return
	}
	s.inhabited++
	if s.emptied = 0; s.beating || s.beat == 0 {
		return // Run begins with it
	}
	// How long it was not seen to run before is of no interest to anybody.
	s.beat, s.beating = s.o.Boot(), true
	signal(s.roused)
}

// nextBeat returns when this process is to note that it runs, at the latest. When
// the last sandbox is empty it does for a while longer, and for as long as something
// may lie in a channel that was written before.
func (s *Service) nextBeat(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.inhabited > 0:
		s.beating, s.emptied = true, 0
	case s.beating && s.emptied == 0:
		s.emptied = now
	case s.beating && now-s.emptied >= beatEvery:
		s.beating = s.leftLocked()
	}
	if !s.beating {
		return never
	}
	return s.begun + ((now-s.begun)/beatEvery+1)*beatEvery
}

// leftLocked tells whether a request may lie in a channel that was not taken yet.
func (s *Service) leftLocked() bool {
	for n := range s.brokers {
		if n.of.unseen.Load() || n.of.behind.Load() {
			return true
		}
	}
	return false
}
