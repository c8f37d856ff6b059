package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
)

// engine is one engine that sandboxes are of.
type engine struct {
	name    string
	look    look[Listing]
	brokers int           // whose sandboxes are of it
	of      []*near       // those that are in the present listing, or were in the last one
	due     time.Duration // by Boot
	busy    bool
	fails   int
}

// presence is what a listing says of one sandbox.
type presence int

const (
	present presence = iota
	absent
	unsure // with a reason
)

// presence reads a listing for the sandbox. That it is gone is believed only
// from the installation of the engine that made it: another one, at the same
// address, has never heard of it.
func (n *near) presence(l Listing, err error) (presence, error) {
	switch {
	case err != nil:
		return unsure, fmt.Errorf("engine %s does not answer: %w", n.engine.name, err)
	case l.Instance != n.instance:
		return unsure, fmt.Errorf("another installation of engine %s answers than the one that made the sandbox", n.engine.name)
	case l.Sandboxes[n.id]:
		return present, nil
	default:
		return absent, nil
	}
}

// listing is a look at an engine: what it has of the sandboxes of some brokers.
type listing struct {
	s       *Service
	e       *engine
	brokers []*near

	found Listing
	asked bool
	err   error
}

// dueListings returns the listings that are due, and when another is.
func (s *Service) dueListings(now time.Duration) (due []listing, next time.Duration) {
	next = never
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.engines {
		if e.brokers == 0 || e.busy {
			continue
		}
		if now < e.due {
			next = min(next, e.due)
			continue
		}
		e.busy = true
		// Whoever is opened while an engine lists may not be in the listing.
		clear(e.of)
		e.of = e.of[:0]
		for n := range s.brokers {
			if n.engine == e {
				e.of = append(e.of, n)
			}
		}
		due = append(due, listing{s: s, e: e, brokers: e.of})
	}
	return due, next
}

func (l *listing) look(ctx context.Context) { l.found, l.asked, l.err = l.e.look.here(ctx) }

func (l *listing) tell(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if !l.asked || l.err == nil && l.misses() {
		l.alone(ctx)
		return
	}
	l.conclude(ctx)
}

func (l *listing) alone(ctx context.Context) {
	own := &listing{s: l.s, e: l.e, brokers: l.brokers}
	l.s.looks.Go(func() { own.ask(ctx) })
}

// misses tells whether one of the sandboxes is not in the listing.
func (l *listing) misses() bool {
	return slices.ContainsFunc(l.brokers, func(n *near) bool { return n.missingIn(l.found) })
}

func (n *near) missingIn(l Listing) bool {
	what, _ := n.presence(l, nil)
	return what == absent
}

// ask asks an engine what it has, and again before it is believed that one of the
// sandboxes is gone.
func (l *listing) ask(ctx context.Context) {
	if l.found, l.err = l.e.look.within(ctx, lookFor); l.err == nil && l.misses() {
		// Another installation may have come to the engine's address after this one
		// had said who it was, and before it listed.
		l.found, l.err = l.e.look.within(ctx, lookFor)
	}
	l.conclude(ctx)
}

// conclude has the brokers know what the engine says.
func (l *listing) conclude(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	sure := true
	for _, n := range l.brokers {
		sure = n.listed(ctx, l.found, l.err) && sure
	}
	s, e := l.s, l.e
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Boot()
	e.busy, e.fails = false, e.fails+1
	if sure {
		e.fails, e.due = 0, s.begun+time.Duration(s.round(now)+1)*lookEvery
		return
	}
	e.due = now + backoff(e.fails)
	s.rouse()
}

// listed takes what the engine says, and tells whether that is sure.
func (n *near) listed(ctx context.Context, l Listing, err error) bool {
	what, why := n.presence(l, err)
	if what == present && n.healthy() {
		return true
	}
	b := n.broker()
	if b == nil {
		return true // it has ended, and nothing is asked for it
	}
	switch what {
	case present:
		b.Unpark(caisson.CodeEngineUnknown)
		b.Unpark(caisson.CodeEngineAbsentGCFailed)
	case unsure:
		b.parkFor(caisson.CodeEngineUnknown, why)
		return false
	case absent:
		b.Unpark(caisson.CodeEngineUnknown)
		b.gone(ctx)
	}
	return true
}

// gone takes that the sandbox is not there any more. While somebody has the
// broker quiet, or the workspace for himself, it is not there on purpose.
func (b *Broker) gone(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, held := b.reasons[caisson.CodeHandoffActive]
	if b.quiet || held || b.cause != nil || b.collecting {
		return
	}
	b.collecting = true
	b.s.looks.Go(func() { b.collect(ctx) }) // other sandboxes of the engine do not wait for it
}

func (b *Broker) collect(ctx context.Context) {
	var err error
	if b.o.Lost != nil {
		err = b.o.Lost(ctx)
	}
	b.mu.Lock()
	b.collecting = false
	b.mu.Unlock()
	if err != nil {
		b.parkFor(caisson.CodeEngineAbsentGCFailed, err)
		return
	}
	b.end(caisson.Errorf(caisson.CodeSandboxLost, "engine %s says that sandbox %s is not there any more", b.o.Record.Engine, b.o.Record.ID))
}
