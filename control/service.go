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
	// Add has wake called, which must return at once, when something comes into
	// dir, until remove is called.
	Add(dir string, wake func()) (remove func(), err error)
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
	o Options

	mu      sync.Mutex
	brokers map[*Broker]bool
	engines map[string]*engine
	beat    time.Duration // by Boot, when this process was last seen to run
	stalls  int64         // times that it did not run for a while
	looks   sync.WaitGroup

	debtors atomic.Int64 // see pace
}

// New returns a service. Brokers can be opened before it runs; what needs time -
// checks, and files that come - begins with Run.
func New(o Options) *Service {
	if o.Boot == nil {
		o.Boot = process.SinceBoot
	}
	return &Service{o: o, brokers: map[*Broker]bool{}, engines: map[string]*engine{}}
}

const (
	// beatEvery is how often the service looks whether something is due. One
	// timer for all brokers; a stall of stallAfter is noticed for certain only if
	// it is clearly less than that.
	beatEvery = time.Second
	// stallAfter is how long a process has not run when what clients know of its
	// channels is no longer to be relied on.
	stallAfter = 5 * time.Second
)

// Run looks after the brokers until ctx ends, and then closes those that are
// left, as [Broker.Close] does.
func (s *Service) Run(ctx context.Context) error {
	watching, enough := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan error, 1)
	go func() { watched <- s.o.Watcher.Run(watching) }() // ends below
	var err error
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case err = <-watched:
			ended = true
			watched <- err
		case <-ticker.C:
			s.tick(ctx)
		}
	}
	for _, b := range s.open() {
		b.end(shutdown())
	}
	for _, b := range s.open() {
		<-b.Done()
	}
	enough()
	s.looks.Wait()
	return <-watched
}

func (s *Service) tick(ctx context.Context) {
	s.mu.Lock()
	if s.beat == 0 {
		s.beat = s.o.Boot()
	}
	s.mu.Unlock()
	s.pulse()
	now := s.o.Boot()
	for _, b := range s.open() {
		b.tick(now)
	}
	s.lookAtEngines(ctx, now)
}

// pulse notes that this process runs, and returns how often it did not for
// stallAfter: stopped by a signal, or with the whole machine.
func (s *Service) pulse() int64 {
	now := s.o.Boot()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beat == 0 {
		return s.stalls // Run has not begun: there is no beat that could be late
	}
	if now-s.beat >= stallAfter {
		s.stalls++
	}
	s.beat = now
	return s.stalls
}

func (s *Service) open() []*Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Broker, 0, len(s.brokers))
	for b := range s.brokers {
		out = append(out, b)
	}
	return out
}

func (s *Service) add(b *Broker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brokers[b] = true
	if e := s.engines[b.o.Record.Engine]; e == nil && s.o.Present != nil {
		name := b.o.Record.Engine
		s.engines[name] = &engine{look: look[Listing]{ask: func(ctx context.Context) (Listing, error) { return s.o.Present(ctx, name) }}}
	}
}

func (s *Service) drop(b *Broker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.brokers, b)
}
