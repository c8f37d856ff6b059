package control

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// Sandbox is what a broker needs to know and to ask of the sandbox that it is for.
type Sandbox struct {
	Dir    string        // where its channel is
	Drive  caisson.Drive // the right under which all is written
	Record caisson.SandboxRecord
	// Generation of the channel to be opened; 0 is the present one.
	Generation int64
	// Door is that of the run, from an airlock that never waits for people
	// (ParkAfter below 0) and does not ask about calls whose end nobody saw
	// (OnUnknownTell): their clients are told. The airlock's notices of calls of
	// requests go to [Broker.Observe].
	Door *airlock.Door
	// Verbs are what may be asked for, in the order in which they are shown. It
	// is asked anew for each request, and must be quick.
	Verbs func() []caisson.Tool
	// Bound looks whether the workspace is still what it is bound to, without
	// starting a process. Nil where there is no workspace.
	Bound func(context.Context) error
	// Owned looks whether this process still holds the sandbox: CodeLeaseLost
	// where it does not. Nil asks the ledger for the lease.
	Owned func(context.Context) error
	// Empty: nothing runs in the sandbox yet that could ask, and whoever opens it
	// tells with [Broker.Inhabited] when something does.
	Empty bool
	// Lost is called when the engine that made the sandbox says that it is not
	// there; it clears away what is left. With nil the broker ends; with an error
	// it is parked, and Lost is called again after the next listing.
	Lost func(context.Context) error
	// Aborted is called when a person, asked about a request, aborts the run.
	Aborted func()

	Workspace string // path inside, for the identity
	Branch    string
	Guide     string // what an agent should know, in words; may be empty
}

// request is one that was taken and is not over.
type request struct {
	record caisson.RequestRecord
	input  json.RawMessage
	seen   time.Duration // by Boot, at first sight
	// resumed: it was taken before, by this broker or an earlier one, and goes on.
	resumed bool

	// The rest is under the broker's lock.
	wait     time.Duration // how long it may stay unaccepted; 0: it is accepted
	asked    bool          // holds one of the places for reviews
	review   caisson.ReviewID
	expires  time.Time // of the review
	stop     context.CancelCauseFunc
	executor *caisson.ProcessIdentity // while it runs
}

// Broker is the host side of one channel. Safe for concurrent use.
type Broker struct {
	*near
	s     *Service
	o     Sandbox
	place place

	ctx    context.Context //nolint:containedctx // it is the broker's life, which its requests share
	stop   context.CancelCauseFunc
	remove func()        // ends the watch
	wake   chan struct{} // something has come into the channel
	urgent chan struct{} // state, reason or epoch has changed
	counts chan struct{} // only a count has
	ticks  chan struct{}
	work   sync.WaitGroup // requests, the watch of reviews, checks
	done   chan struct{}

	mending sync.Mutex // one mends at a time

	displaced look[bool] // whether another has taken the files

	// Under the lock, beside what is near.
	reasons    map[caisson.Code]parked
	told       caisson.Code // the reason that the present state was recorded with
	since      time.Time
	moves      []move // not yet in the record
	channel    caisson.Channel
	quiet      bool
	collecting bool
	watching   bool // a goroutine waits for decisions

	running map[caisson.RequestID]*request
	queue   []*request
	waiting map[caisson.RequestID]*request
	asking  int // places for reviews in use
	repair  map[caisson.RequestID]bool
	changed chan struct{} // closed and replaced when a request has ended

	published int // answers since the last trim
	replays   int
	unsaid    []*request                // not recorded and not answered, of the loop alone
	pace      pace                      // likewise
	shown     caisson.ControlStatusFile // told last
	untold    bool                      // the status file is not what it should be

	// unseen: something may be in the channel that no look has dealt with. The next
	// tick looks.
	unseen atomic.Bool
	behind atomic.Bool  // the last look has not taken all, and another is to come
	agains atomic.Int64 // calls of Again
}

// Done is closed when the broker has ended: nothing of it runs any more.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Err says why the broker ended: CodeLeaseLost, CodeSandboxLost, the cause given
// to End, or nil after Close and for as long as it lives.
func (b *Broker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, pause := b.cause.(*airlock.PauseError); pause { //nolint:errorlint // it is given bare
		return nil
	}
	return b.cause
}

// Close ends the broker as the end of its process does: requests that run are
// stopped and answered with what they produced, those that have not begun are
// answered as not executed, and those that wait for a person stay open for the
// next Open. It returns when all is done, or with ctx.
func (b *Broker) Close(ctx context.Context) error {
	b.end(shutdown())
	return b.ended(ctx)
}

// End ends the broker because the run ends. Nothing stays open: reviews are
// withdrawn, and every request has its answer, with that cause.
func (b *Broker) End(ctx context.Context, cause caisson.Cause, text string) error {
	b.end(&caisson.CauseError{Cause: cause, Text: text})
	return b.ended(ctx)
}

func (b *Broker) ended(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return caisson.Errorf(caisson.CodeDeadline, "the broker of sandbox %s has not ended: %w", b.o.Record.ID, context.Cause(ctx)).With("running", b.Status().Running)
	}
}

func shutdown() error {
	return &airlock.PauseError{Cause: caisson.CauseShutdown, Text: "the process that served the channel ends"}
}

// end begins the end, once: the first cause counts.
func (b *Broker) end(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil {
		return
	}
	b.cause = why
	cause := why
	switch caisson.CodeOf(why) {
	case caisson.CodeLeaseLost:
		cause = &caisson.CauseError{Cause: caisson.CauseLeaseLost, Text: why.Error()}
	case caisson.CodeSandboxLost:
		cause = &airlock.PauseError{Cause: caisson.CauseUnknown, Text: why.Error()}
	default:
	}
	b.stop(cause)
}

// lost ends the broker where err says that another has the sandbox, and tells
// whether it does.
func (b *Broker) lost(err error) bool {
	if caisson.CodeOf(err) != caisson.CodeLeaseLost {
		return false
	}
	b.end(err)
	return true
}

// owned proves that this process still holds the sandbox.
func (b *Broker) owned(ctx context.Context) error {
	err := b.o.Owned(ctx)
	b.lost(err)
	return err
}

// leaseHeld asks the ledger whether the broker's fence is still the lease's. It
// is asked at every request, and takes less time than a context that can end.
func (b *Broker) leaseHeld(ctx context.Context) error {
	lease, err := b.s.o.Ledger.Lease(context.WithoutCancel(ctx), b.o.Drive.Run)
	if err != nil {
		return err
	}
	if lease.Fence != b.o.Drive.Fence || lease.Instance == "" {
		return caisson.Errorf(caisson.CodeLeaseLost, "another process holds run %s: its fence is %d, not %d", lease.Run, lease.Fence, b.o.Drive.Fence)
	}
	return nil
}

// live runs the broker until its context ends, and then what has to be done last.
func (b *Broker) live() {
	defer close(b.done)
	b.loop()
	b.remove()
	b.work.Wait()
	b.leave()
	b.place.close()
	b.s.drop(b)
}

// loop takes requests and tells the state. What takes long is done by others.
func (b *Broker) loop() {
	late := time.NewTimer(0)  // until the next request has waited too long
	tell := time.NewTimer(0)  // until counts are told
	paced := time.NewTimer(0) // until there may be another look
	defer late.Stop()
	defer tell.Stop()
	defer paced.Stop()
	defer b.pace.end()
	for telling := false; ; {
		select {
		case <-b.ctx.Done():
			return
		case <-b.wake:
			b.look(paced)
		case <-paced.C:
			b.look(paced)
		case <-b.ticks:
			if b.stalled() {
				b.current()
			}
			b.keep(b.ctx)
			b.mend()
			b.look(paced)
		case <-b.urgent:
			b.recordMoves()
			b.tell()
		case <-b.counts:
			if !telling {
				tell.Reset(tellAfter)
				telling = true
			}
		case <-tell.C:
			if telling {
				telling = false
				b.tell()
			}
		case <-late.C:
		}
		b.expireQueued()
		late.Stop()
		if next, any := b.nextLate(); any {
			late.Reset(next)
		}
	}
}

// tellAfter is how long a count may be told too late: requests come faster than
// anybody reads.
const tellAfter = 50 * time.Millisecond

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is under way
	}
}

// checkBinding looks at the workspace, and parks or goes on accordingly.
func (b *Broker) checkBinding(ctx context.Context) error {
	if b.bound.ask == nil {
		return nil
	}
	_, err := b.bound.within(ctx, lookFor)
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	b.bind(err)
	return err
}

// bind takes what a look at the workspace says.
func (b *Broker) bind(err error) {
	b.mu.Lock()
	if b.boundFails++; err == nil {
		b.boundFails = 0
	}
	if b.boundFails > 0 {
		b.boundDue = b.s.o.Boot() + backoff(b.boundFails)
		b.s.rouse()
	}
	b.mu.Unlock()
	if err != nil {
		b.parkFor(caisson.CodeWorkspaceBindingLost, err)
		return
	}
	b.Unpark(caisson.CodeWorkspaceBindingLost)
}
