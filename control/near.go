package control

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson"
)

// near is what a round reads of a broker. Those of some brokers lie side by side: a
// process that has rested pays for each page of memory that it touches, and what
// belongs to one broker is on many.
type near struct {
	mu stateLock // of what changes of the broker
	of *Broker   // nil when it has ended: who reads it then has the lock

	// Of the sandbox, and of the engine that made it.
	id       caisson.SandboxID
	instance string
	engine   *engine // nil where none is asked

	state   caisson.BrokerState
	cause   error                       // of its end
	stalls  int64                       // of the service, that the epoch accounts for
	empty   bool                        // under the service's lock: see Inhabited
	guarded bool                        // it is told when its files are taken
	looking bool                        // at it, by time
	late    glance                      // what was due while it was looked at, and is as soon as that is over
	round   int64                       // of the last tick; below 0: there was none
	bound   look[struct{}]              // asks nothing where there is no workspace
	first   asked[struct{}]             // its first answer
	isBound func(context.Context) error // what it asks; nil when the broker has ended
	// Of the next look at the workspace, where the last went wrong.
	boundDue   time.Duration
	boundFails int
}

// stateLock is the lock of a broker's state. Whoever takes it may change whether the
// broker has anything to do by time.
type stateLock struct {
	sync.Mutex
	stirred atomic.Bool
}

func (l *stateLock) Lock() {
	l.Mutex.Lock()
	l.stirred.Store(true)
}

// nearTogether lie side by side. They are there until the last of them is not used
// any more; their brokers are not, see vacate.
const nearTogether = 8

func (s *Service) near() *near {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.vacant) == 0 {
		s.vacant = make([]near, nearTogether)
	}
	n := &s.vacant[0]
	s.vacant = s.vacant[1:]
	n.round, n.bound.spare = -1, &n.first
	return n
}

// vacate lets go of the broker, and of whatever else is large: it has ended, and what
// lies beside it is used for longer.
func (n *near) vacate() {
	n.mu.Mutex.Lock()
	defer n.mu.Mutex.Unlock()
	n.of, n.isBound, n.late = nil, nil, glance{}
}

// broker is nil when it has ended.
func (n *near) broker() *Broker {
	n.mu.Mutex.Lock()
	defer n.mu.Mutex.Unlock()
	return n.of
}

// binding is what a look at the workspace asks. A function that knew of the broker
// would lie elsewhere.
type binding near

func (b *binding) answer(ctx context.Context) (struct{}, error) {
	b.mu.Mutex.Lock()
	ask := b.isBound
	b.mu.Mutex.Unlock()
	if ask == nil {
		return struct{}{}, context.Canceled // nobody wants to know
	}
	return struct{}{}, ask(ctx)
}

// tick has the loop do what only time has it do, where there is any of it. It
// returns the look at the broker that is due, one without a broker if none is, and
// when one is again before the next round.
func (n *near) tick(now time.Duration, round, stalls int64) (look glance, next time.Duration) {
	n.mu.Mutex.Lock() // what is due stays what it is
	defer n.mu.Mutex.Unlock()
	if n.cause != nil {
		return look, never
	}
	fresh, first := round != n.round, n.round < 0
	n.round = round
	surely := first || round%surely == 0
	if stalls != n.stalls || fresh && (surely || n.mu.stirred.Load()) {
		n.dueLocked(stalls)
	}
	look = glance{near: n, of: n.of, files: fresh && (surely || !n.guarded), bound: fresh && n.bound.ask != nil}
	look.files, look.bound = look.files || n.late.files, look.bound || n.late.bound
	if n.late = (glance{}); n.looking {
		n.late = look
		return glance{}, never
	}
	next = never
	if n.boundFails > 0 {
		if look.bound = now >= n.boundDue; !look.bound {
			next = n.boundDue
		}
	}
	if n.looking = look.files || look.bound; !n.looking {
		return glance{}, next
	}
	return look, next
}

// dueLocked has the loop do what is to be tried again, or to be done because it is
// time. It is not asked again before anybody has done something with the broker, or
// surely.
func (n *near) dueLocked(stalls int64) {
	n.mu.stirred.Store(false) // before it looks: what comes meanwhile is for the next round
	if n.of.dueLocked(stalls) {
		n.mu.stirred.Store(true)
		signal(n.of.ticks)
	}
}

// dueLocked tells whether there is any of that. Nothing is where nothing has happened.
func (b *Broker) dueLocked(stalls int64) bool {
	return stalls != b.stalls || b.untold || len(b.moves)+len(b.repair)+len(b.waiting) > 0 ||
		b.unseen.Load() || b.place.unsaid.Load() || b.files().Due(time.Now())
}

// stir notes that something may be in the channel that no look has dealt with.
func (b *Broker) stir() {
	b.unseen.Store(true)
	b.mu.stirred.Store(true)
}

// unbound tells whether a look at the workspace went wrong, and none well since.
func (n *near) unbound() bool {
	n.mu.Mutex.Lock()
	defer n.mu.Mutex.Unlock()
	if n.boundFails > 0 || n.state == caisson.BrokerHealthy || n.of == nil {
		return n.boundFails > 0
	}
	_, parked := n.of.reasons[caisson.CodeWorkspaceBindingLost]
	return parked
}

// healthy tells whether nothing parks the broker.
func (n *near) healthy() bool {
	n.mu.Mutex.Lock()
	defer n.mu.Mutex.Unlock()
	return n.state == caisson.BrokerHealthy
}

// looked ends a look.
func (n *near) looked() {
	n.mu.Mutex.Lock()
	defer n.mu.Mutex.Unlock()
	n.looking = false
	if n.of != nil && (n.boundFails > 0 || n.late.files || n.late.bound) {
		n.of.s.rouse()
	}
}
