package control

import (
	"context"
	"math"
	"runtime"
	"sync"
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
	open := s.open()
	next := s.begun + time.Duration(round+1)*lookEvery
	glances := make([]glance, 0, len(open))
	for _, b := range open {
		look, again := b.tick(now, round, stalls)
		if look.b != nil {
			glances = append(glances, look)
		}
		next = min(next, again)
	}
	looks := make([]looking, 0, len(glances)+1)
	for i := range glances {
		looks = append(looks, &glances[i])
	}
	listings, again := s.dueListings(now)
	for i := range listings {
		looks = append(looks, &listings[i])
	}
	next = min(next, again)
	s.lookAround(ctx, looks)
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
	look = glance{b: b, files: fresh && (first || !b.guarded || round%surely == 0), bound: fresh && b.bound.ask != nil}
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

	// What was seen, where a look before it did not hang.
	sawFiles, displaced bool
	sawBound            bool
	lost                error
}

func (g *glance) look(ctx context.Context) {
	if g.files {
		displaced, asked, err := g.b.displaced.here(ctx)
		g.displaced, g.sawFiles = displaced && err == nil, asked
	}
	if g.bound {
		_, g.sawBound, g.lost = g.b.bound.here(ctx)
	}
}

func (g *glance) tell(context.Context) {
	if g.displaced {
		signal(g.b.ticks)
	}
	if g.sawBound && (g.lost != nil || g.b.unbound()) && g.b.ctx.Err() == nil {
		g.b.bind(g.lost)
	}
	if files, bound := g.files && !g.sawFiles, g.bound && !g.sawBound; files || bound {
		g.b.lookAlone(files, bound)
		return
	}
	g.b.looked()
}

func (g *glance) alone(context.Context) { g.b.lookAlone(g.files, g.bound) }

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

// looked ends a look.
func (b *Broker) looked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looking = false
	if b.boundFails > 0 || b.late.files || b.late.bound {
		b.s.rouse()
	}
}

// looking is one thing that is looked at in a round.
type looking interface {
	look(ctx context.Context) // which ends it, if what it asks knows of contexts
	tell(ctx context.Context) // what was seen, to those whom it concerns
	// alone has it looked at beside all others, in place of both. A look at it may
	// be under way that hangs.
	alone(ctx context.Context)
}

// lookMoment is more than all looks take together where all is well.
const lookMoment = 50 * time.Millisecond

// walk is one goroutine that looks at one thing after the other, which takes
// microseconds each.
type walk struct {
	s     *Service
	looks []looking

	mu         sync.Mutex
	through    int
	done, over bool
	bound      *time.Timer
}

// lookAround looks at things. Those that the walk is not through with in a moment
// are looked at each on its own: none waits for one that hangs.
func (s *Service) lookAround(ctx context.Context, looks []looking) {
	if len(looks) == 0 {
		return
	}
	w := &walk{s: s, looks: looks}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.looks.Add(1)
	go func() { // it ends as one that asks a single thing does: see look
		defer cancel()
		w.walk(ctx, asking)
	}()
	// Mostly it is through by now. A timer that is set and stopped again wakes the
	// process all the same: whatever thread sleeps meanwhile has it as its end.
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.bound = time.AfterFunc(lookMoment, func() { w.disperse(ctx, cancel) })
	}
}

func (w *walk) walk(ctx, asking context.Context) {
	for _, l := range w.looks {
		l.look(asking)
		w.mu.Lock()
		late := w.over
		if !late {
			w.through++
			w.s.looks.Add(1) // while the walk is still counted
		}
		w.mu.Unlock()
		if late {
			return
		}
		l.tell(ctx)
		w.s.looks.Done()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.done = true
	w.s.looks.Done()
	if w.bound != nil {
		w.bound.Stop()
	}
}

// disperse has what is left looked at otherwise, and gives up what hangs in a while.
func (w *walk) disperse(ctx context.Context, giveUp func()) {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return
	}
	w.over = true
	left := w.looks[w.through:]
	w.mu.Unlock()
	defer w.s.looks.Done()
	time.AfterFunc(lookFor-lookMoment, giveUp)
	for _, l := range left {
		l.alone(ctx)
	}
}
