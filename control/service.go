package control

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// Watcher tells of files that come into directories.
type Watcher interface {
	// Add has wake called when a request comes into dir, or may have, and stir when
	// something else does, until remove is called. Both must return at once.
	Add(dir string, wake, stir func()) (remove func(), err error)
	// Guard has changed called likewise when something directly in dir is moved or
	// removed. Not sure: it may not be.
	Guard(dir string, changed func()) (remove func(), sure bool)
	// Run watches until ctx ends.
	Run(ctx context.Context) error
}

// Listing is what an engine says is there.
type Listing struct {
	// Instance tells which installation of the engine says so; empty where the
	// engine is this program itself.
	Instance  string
	Sandboxes map[caisson.SandboxID]bool
}

// Options configure a [Service].
type Options struct {
	Ledger caisson.Ledger
	// Watcher is run by the service.
	Watcher Watcher
	// Present lists the sandboxes of an engine. It is asked each 5 s for each
	// engine that an open channel's sandbox is of, for all of them at once. Nil:
	// engines are never asked.
	Present func(ctx context.Context, engine string) (Listing, error)
	// Boot is the time since the machine began, also that during which it was
	// suspended; nil asks the kernel. No clock of a sandbox is ever looked at.
	Boot func() time.Duration
	// Redact takes the person's secrets out of the whole output of a verb, as the
	// airlock does out of its text: a program of the host may have had them. Nil:
	// it is given as it is.
	Redact func(string) string
}

// Service holds the brokers of one process. A broker costs no process, and no
// timer of its own while nothing is asked of it. Safe for concurrent use.
type Service struct {
	o      Options
	begun  time.Duration // by Boot; rounds are counted from then
	roused chan struct{} // see rouse
	fresh  atomic.Bool   // a broker has come, or something is due earlier than due

	mu       sync.Mutex
	brokers  map[*near]bool
	vacant   []near    // for those to come
	material *material // for the next round
	ends     int64     // of brokers
	engines  map[string]*engine
	beat     time.Duration // by Boot, when this process was last seen to run
	// inhabited sandboxes are those in which something runs. While beating, this
	// process is seen to run each beatEvery; emptied is when there were none any
	// more, by Boot, or 0.
	inhabited int
	beating   bool
	emptied   time.Duration
	stalls    int64         // times that it did not run for a while
	due       time.Duration // by Boot, when anything is but a beat
	dueFor    int64         // stalls of which the brokers know
	looks     sync.WaitGroup

	ticking sync.Mutex // one tick at a time
	walker  *walker    // of who ticks; nil: there is none yet

	debtors atomic.Int64 // see pace
}

// New returns a service. Brokers can be opened before it runs; what needs time -
// checks, and files that come - begins with Run.
func New(o Options) *Service {
	if o.Boot == nil {
		o.Boot = process.SinceBoot
	}
	return &Service{o: o, begun: o.Boot(), roused: make(chan struct{}, 1), brokers: map[*near]bool{}, engines: map[string]*engine{}}
}

// Run looks after the brokers until ctx ends, and then closes those that are
// left, as [Broker.Close] does.
func (s *Service) Run(ctx context.Context) error {
	watching, enough := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan error, 1)
	go func() { watched <- s.o.Watcher.Run(watching) }() // ends below
	var err error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case err = <-watched:
			ended = true
			watched <- err
		case <-timer.C:
			timer.Reset(s.tick(ctx))
		case <-s.roused:
			timer.Reset(s.tick(ctx))
		}
	}
	for open := s.open(); len(open) > 0; open = s.open() { // one may be opened meanwhile
		for _, b := range open {
			b.end(shutdown())
		}
		for _, b := range open {
			<-b.Done()
		}
	}
	enough()
	s.ticking.Lock()
	s.leave()
	s.ticking.Unlock()
	s.looks.Wait()
	return <-watched
}

// rouse has Run look what is due: something may be, earlier than it knows.
func (s *Service) rouse() {
	s.fresh.Store(true)
	signal(s.roused)
}

// pulse notes that this process runs now, and returns how often it did not for
// stallAfter: stopped by a signal, or with the whole machine.
func (s *Service) pulse() (stalls int64, now time.Duration) {
	now = s.o.Boot()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beat == 0 {
		return s.stalls, now // Run has not begun: there is no beat that could be late
	}
	if s.beating && now-s.beat >= stallAfter {
		s.stalls++
	}
	s.beat = max(s.beat, now) // another was quicker
	return s.stalls, now
}

func (s *Service) open() []*Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Broker, 0, len(s.brokers))
	for n := range s.brokers {
		out = append(out, n.of)
	}
	return out
}

func (s *Service) add(b *Broker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brokers[b.near] = true
	s.fresh.Store(true)
	if b.empty = b.o.Empty; !b.empty {
		s.countLocked(true)
	}
	if s.o.Present == nil {
		return
	}
	name := b.o.Record.Engine
	if s.engines[name] == nil {
		s.engines[name] = &engine{name: name, look: look[Listing]{ask: asking[Listing](func(ctx context.Context) (Listing, error) { return s.o.Present(ctx, name) })}}
	}
	b.engine = s.engines[name]
	b.engine.brokers++
}

// drop forgets a broker that has ended.
func (s *Service) drop(b *Broker) {
	defer b.vacate() // afterwards: it is not among the brokers then
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.brokers[b.near] {
		return
	}
	delete(s.brokers, b.near)
	s.material, s.ends = nil, s.ends+1
	if !b.empty {
		s.countLocked(false)
	}
	if b.engine != nil {
		b.engine.brokers--
	}
}
