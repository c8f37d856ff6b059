package control

import (
	"time"

	"github.com/caisson-run/caisson"
)

// await takes a request out of what runs until a person has decided.
func (b *Broker) await(r *request, review caisson.ReviewID) {
	b.mu.Lock()
	r.review, r.wait = review, 0
	b.waitLocked(r)
	b.endedLocked(r)
	b.mu.Unlock()
	b.decided() // it may have been decided before anybody looked
}

// waitLocked notes that a request waits for a person.
func (b *Broker) waitLocked(r *request) {
	if !r.asked { // its question is older than the bound, or no call's
		r.asked = true
		b.asking++
	}
	b.waiting[r.record.ID] = r
	signal(b.counts)
	if !b.watching {
		b.watching = true
		b.work.Go(b.watchReviews)
	}
}

// watchReviews waits for decisions, which any process may write, for as long as
// a request waits for one.
func (b *Broker) watchReviews() {
	seen := int64(0)
	for b.ctx.Err() == nil {
		n, err := b.s.o.Ledger.Wait(b.ctx, b.o.Drive.Run, seen)
		if err != nil {
			if !b.pause(time.Second) {
				return
			}
			continue
		}
		seen = n
		b.decided()
		b.mu.Lock()
		b.watching = len(b.waiting) > 0
		enough := !b.watching
		b.mu.Unlock()
		if enough {
			return
		}
	}
}

// pause waits, and tells whether the broker still lives.
func (b *Broker) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-b.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// decided has every request go on whose review is not open any more, or whose
// time for deciding is over.
func (b *Broker) decided() {
	open, err := b.s.o.Ledger.Reviews(b.ctx, caisson.ReviewFilter{Run: b.o.Drive.Run, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil {
		return // with the next event, or the next tick
	}
	now := b.s.o.Ledger.Now()
	undecided := map[caisson.ReviewID]bool{}
	for _, r := range open {
		undecided[r.ID] = !now.After(r.Expires)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, r := range b.waiting {
		if undecided[r.review] {
			continue
		}
		delete(b.waiting, id)
		r.resumed = true
		b.queue = append(b.queue, r)
	}
	b.startLocked()
}

// anyLapsed tells whether the time for deciding something is over.
func (b *Broker) anyLapsed() bool {
	b.mu.Lock()
	idle := len(b.waiting) == 0
	b.mu.Unlock()
	if idle {
		return false
	}
	now := b.s.o.Ledger.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.waiting {
		if now.After(r.expires) {
			return true
		}
	}
	return false
}
