package control

import (
	"context"
	"math"
	"sync"
	"time"
)

// What is done by time is done for all brokers together, in rounds. A process that
// has nothing else to do is woken as seldom as can be: that costs more than most of
// what is done then, and a processor that has rested does all of it slower.
const (
	// lookEvery is how often each thing is looked at while all is well: a round.
	lookEvery = 5 * time.Second
	// beatEvery is how often the service notes that it runs, at the beginning of
	// each round and within it: a stall of stallAfter is noticed for certain only if
	// that is clearly less.
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
	s.mu.Lock()
	if s.beat == 0 {
		s.beat = s.o.Boot()
	}
	s.mu.Unlock()
	stalls, now := s.pulse()
	beat := s.begun + ((now-s.begun)/beatEvery+1)*beatEvery
	if due, quiet := s.quiet(now, stalls); quiet {
		return min(beat, due) - now
	}
	round := s.round(now)
	open := s.open()
	next := s.begun + time.Duration(round+1)*lookEvery
	looks := make([]glance, 0, len(open))
	for _, b := range open {
		look, again := b.tick(now, round, stalls)
		if look.b != nil {
			looks = append(looks, look)
		}
		next = min(next, again)
	}
	s.lookAround(ctx, looks)
	next = min(next, s.lookAtEngines(ctx, now))
	s.mu.Lock()
	s.due, s.dueFor = next, stalls
	s.mu.Unlock()
	return min(beat, next) - now
}

// quiet tells whether nothing is due but a beat, and when anything else is.
func (s *Service) quiet(now time.Duration, stalls int64) (due time.Duration, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due, !s.fresh.Swap(false) && now < s.due && stalls == s.dueFor
}

// round is the number of the round in which now is.
func (s *Service) round(now time.Duration) int64 { return int64((now - s.begun) / lookEvery) }

// tick has the loop do what only time has it do, where there is any of it. It
// returns the look at the broker that is due, one without a broker if none is, and
// when one is again before the next round.
func (b *Broker) tick(now time.Duration, round, stalls int64) (look glance, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil {
		return look, never
	}
	fresh, first := round != b.round, b.round < 0
	b.round = round
	if (fresh || stalls != b.stalls) && b.dueLocked(stalls) {
		signal(b.ticks)
	}
	look = glance{b: b, files: fresh && (first || !b.guarded || round%surely == 0), bound: fresh && b.bound != nil}
	look.files, look.bound = look.files || b.late.files, look.bound || b.late.bound
	if b.late = (glance{}); b.looking {
		b.late = look
		return glance{}, never
	}
	next = never
	if b.boundFails > 0 {
		if look.bound = now >= b.boundDue; !look.bound {
			next = b.boundDue
		}
	}
	if b.looking = look.files || look.bound; !b.looking {
		return glance{}, next
	}
	return look, next
}

// dueLocked tells whether something is to be tried again, or to be done because it
// is time. Nothing is where nothing has happened.
func (b *Broker) dueLocked(stalls int64) bool {
	return stalls != b.stalls || b.untold || len(b.moves)+len(b.repair)+len(b.waiting) > 0 ||
		b.unseen.Load() || b.place.unsaid.Load() || b.files().Due(time.Now())
}

// glance is a look at what may be taken from a broker: its files, and the workspace
// of its sandbox.
type glance struct {
	b            *Broker
	files, bound bool // what is to be looked at

	displaced bool
	checked   bool
	lost      error
}

// look looks, but where a look before it hangs.
func (g *glance) look(ctx context.Context) {
	if g.files {
		displaced, asked, err := g.b.displaced.here(ctx)
		g.displaced, g.files = displaced && err == nil, !asked
	}
	if g.bound {
		_, g.checked, g.lost = g.b.bound.here(ctx)
		g.bound = !g.checked
	}
}

// tell has the broker know what was seen.
func (g *glance) tell() {
	if g.displaced {
		signal(g.b.ticks)
	}
	if g.checked && (g.lost != nil || g.b.unbound()) && g.b.ctx.Err() == nil {
		g.b.bind(g.lost)
	}
	if g.files || g.bound {
		g.alone()
		return
	}
	g.b.looked()
}

// alone looks at what takes long, or hangs.
func (g *glance) alone() {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if g.b.cause != nil {
		return
	}
	g.b.work.Go(func() {
		defer g.b.looked()
		if g.bound {
			_ = g.b.checkBinding(g.b.ctx) // it parks the broker
		}
		if !g.files {
			return
		}
		if displaced, err := g.b.displaced.within(g.b.ctx, lookFor); err == nil && displaced {
			signal(g.b.ticks)
		}
	})
}

// looked ends a look.
func (b *Broker) looked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looking = false
	if b.boundFails > 0 || b.late.files || b.late.bound {
		b.s.rouse()
	}
}

// lookMoment is more than looks at all brokers take together where all is well.
const lookMoment = 50 * time.Millisecond

// lookAround looks at brokers. One goroutine looks at one after the other, which
// takes microseconds each. Those that it is not through with in a moment are looked
// at each on its own: none waits for one that hangs.
func (s *Service) lookAround(ctx context.Context, looks []glance) {
	if len(looks) == 0 {
		return
	}
	var mu sync.Mutex
	through, over := 0, false
	s.looks.Add(1)
	moment := time.AfterFunc(lookMoment, func() {
		defer s.looks.Done()
		mu.Lock()
		over = true
		left := looks[through:]
		mu.Unlock()
		for _, g := range left {
			g.alone()
		}
	})
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	go func() { // it ends as one that asks a single thing does: see look
		defer cancel()
		for _, g := range looks {
			g.look(asking)
			mu.Lock()
			late := over
			through++
			mu.Unlock()
			if late {
				return
			}
			g.tell()
		}
		if moment.Stop() {
			s.looks.Done()
		}
	}()
}
