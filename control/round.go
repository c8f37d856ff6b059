package control

import (
	"context"
	"math"
	"time"
)

// What is done by time is done for all brokers together, in rounds. A process that
// has nothing else to do is woken as seldom as can be: that costs more than most of
// what is done then, and a processor that has rested does all of it slower.
const (
	// lookEvery is how often each thing is looked at while all is well: a round.
	lookEvery = 5 * time.Second
	// beatEvery is how often the service notes that it runs while anybody could ask,
	// at the beginning of each round and within it: a stall of stallAfter is noticed
	// for certain only if that is clearly less. See Inhabited.
	beatEvery = lookEvery / 2
	// stallAfter is how long a process has not run when what clients know of its
	// channels is no longer to be relied on.
	stallAfter = 5 * time.Second
	// surely is in how many rounds that is looked at once of which events tell,
	// should one be lost.
	surely = 12
)

const never = time.Duration(math.MaxInt64)

// tick does what is due, and returns how long nothing is. Nothing that could hang
// is done in the caller's goroutine.
func (s *Service) tick(ctx context.Context) time.Duration {
	s.ticking.Lock()
	defer s.ticking.Unlock()
	return s.tickLocked(ctx)
}

func (s *Service) tickLocked(ctx context.Context) time.Duration {
	s.mu.Lock()
	if s.beat == 0 {
		s.beat = s.o.Boot()
	}
	s.mu.Unlock()
	stalls, now := s.pulse()
	beat := s.nextBeat(now)
	if due, quiet := s.quiet(now, stalls); quiet {
		return min(beat, due) - now
	}
	round := s.round(now)
	next := s.begun + time.Duration(round+1)*lookEvery
	m := s.take()
	for _, n := range m.near {
		look, again := n.tick(now, round, stalls)
		if look.near != nil {
			m.glances = append(m.glances, look)
		}
		next = min(next, again)
	}
	for i := range m.glances {
		m.looks = append(m.looks, &m.glances[i])
	}
	listings, again := s.dueListings(now)
	for i := range listings {
		m.looks = append(m.looks, &listings[i])
	}
	next = min(next, again)
	if s.lookAround(ctx, m.looks) {
		s.keep(m)
	}
	s.mu.Lock()
	s.due, s.dueFor = next, stalls
	s.mu.Unlock()
	return min(beat, next) - now
}

// material is what one round is made of. The next uses it again.
type material struct {
	near    []*near
	glances []glance
	looks   []looking
	ends    int64 // of brokers, before it was made
}

func (s *Service) take() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.material
	if s.material = nil; m == nil {
		m = &material{}
	}
	m.near, m.glances, m.looks, m.ends = m.near[:0], m.glances[:0], m.looks[:0], s.ends
	for n := range s.brokers {
		m.near = append(m.near, n)
	}
	return m
}

// keep keeps what nobody uses any more, for as long as no broker ends that it names.
func (s *Service) keep(m *material) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.ends == s.ends {
		s.material = m
	}
}

// quiet tells whether nothing is due but a beat, and when anything else is.
func (s *Service) quiet(now time.Duration, stalls int64) (due time.Duration, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due, !s.fresh.Swap(false) && now < s.due && stalls == s.dueFor
}

// round is the number of the round in which now is.
func (s *Service) round(now time.Duration) int64 { return int64((now - s.begun) / lookEvery) }

// glance is a look at what may be taken from a broker: its files, and the workspace
// of its sandbox.
type glance struct {
	near         *near
	of           *Broker
	files, bound bool // what is to be looked at

	// What was seen, where a look before it did not hang.
	sawFiles, displaced bool
	sawBound            bool
	lost                error
}

func (g *glance) look(ctx context.Context) {
	if g.files {
		displaced, asked, err := g.of.displaced.here(ctx)
		g.displaced, g.sawFiles = displaced && err == nil, asked
	}
	if g.bound {
		_, g.sawBound, g.lost = g.near.bound.here(ctx)
	}
}

func (g *glance) tell(context.Context) {
	n := g.near
	if g.displaced {
		signal(g.of.ticks)
	}
	if g.sawBound && (g.lost != nil || n.unbound()) && g.of.ctx.Err() == nil {
		g.of.bind(g.lost)
	}
	if files, bound := g.files && !g.sawFiles, g.bound && !g.sawBound; files || bound {
		g.of.lookAlone(files, bound)
		return
	}
	n.looked()
}

func (g *glance) alone(context.Context) { g.of.lookAlone(g.files, g.bound) }

// lookAlone looks at what takes long, or hangs.
func (b *Broker) lookAlone(files, bound bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil {
		return
	}
	b.work.Go(func() {
		defer b.looked()
		if bound {
			_ = b.checkBinding(b.ctx) // it parks the broker
		}
		if !files {
			return
		}
		if displaced, err := b.displaced.within(b.ctx, lookFor); err == nil && displaced {
			signal(b.ticks)
		}
	})
}
