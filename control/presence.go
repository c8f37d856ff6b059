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
	look  look[Listing]
	due   time.Duration // by Boot
	busy  bool
	fails int
}

// presence is what a listing says of one sandbox.
type presence int

const (
	present presence = iota
	absent
	unsure // with a reason
)

// presenceOf reads a listing for a sandbox. That it is gone is believed only
// from the installation of the engine that made it: another one, at the same
// address, has never heard of it.
func presenceOf(r caisson.SandboxRecord, l Listing, err error) (presence, error) {
	switch {
	case err != nil:
		return unsure, fmt.Errorf("engine %s does not answer: %w", r.Engine, err)
	case l.Instance != r.EngineInstance:
		return unsure, fmt.Errorf("another installation of engine %s answers than the one that made the sandbox", r.Engine)
	case l.Sandboxes[r.ID]:
		return present, nil
	default:
		return absent, nil
	}
}

// lookAtEngines begins the listings that are due; none waits for another.
func (s *Service) lookAtEngines(ctx context.Context, now time.Duration) {
	if s.o.Present == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Whoever is opened while an engine lists may not be in the listing.
	of := map[string][]*Broker{}
	for b := range s.brokers {
		of[b.o.Record.Engine] = append(of[b.o.Record.Engine], b)
	}
	for name, e := range s.engines {
		if len(of[name]) == 0 || e.busy || now < e.due {
			continue
		}
		e.busy = true
		s.looks.Go(func() { s.list(ctx, e, of[name]) })
	}
}

func (b *Broker) missingIn(l Listing) bool {
	what, _ := presenceOf(b.o.Record, l, nil)
	return what == absent
}

// list asks an engine what it has, and again before it is believed that one of
// the brokers' sandboxes is gone.
func (s *Service) list(ctx context.Context, e *engine, brokers []*Broker) {
	listing, err := e.look.within(ctx, lookFor)
	if err == nil && slices.ContainsFunc(brokers, func(b *Broker) bool { return b.missingIn(listing) }) {
		// Another installation may have come to the engine's address after this one
		// had said who it was, and before it listed.
		listing, err = e.look.within(ctx, lookFor)
	}
	if ctx.Err() != nil {
		return
	}
	sure := true
	for _, b := range brokers {
		sure = b.listed(ctx, listing, err) && sure
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.busy, e.fails = false, e.fails+1
	if sure {
		e.fails = 0
	}
	e.due = s.o.Boot() + pauseAfter(e.fails)
}

// pauseAfter is the time until the next look after some failures in a row.
func pauseAfter(fails int) time.Duration {
	if fails == 0 {
		return lookEvery
	}
	return backoff(fails)
}

// listed takes what the engine says, and tells whether that is sure.
func (b *Broker) listed(ctx context.Context, l Listing, err error) bool {
	what, why := presenceOf(b.o.Record, l, err)
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
