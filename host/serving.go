package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/localsocket"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
)

// ServingOptions say what a process serves.
type ServingOptions struct {
	// UntilIdle ends it when no sandbox is open any more.
	UntilIdle bool
	// Again opens also those sandboxes that the shutdown of an earlier one stopped.
	Again bool
}

// Serving is the process that keeps sandboxes open: one for each ledger on a
// machine. It drives the served runs, and the sessions of people in them.
//
// What it promises: it finds what is to be open in the ledger alone, so that
// another takes over from one that was killed.
type Serving struct {
	host   *Host
	opts   ServingOptions
	path   string // of the socket
	listen *net.UnixListener
	lock   *lockfile.Lock
	nudge  chan struct{}

	life context.Context //nolint:containedctx // of all that it drives; ends with the cause of the end
	end  context.CancelCauseFunc

	mu       sync.Mutex
	open     map[caisson.RunID]*served
	retry    map[caisson.RunID]*backoff
	asking   int  // connections that are being served
	closed   bool // nothing more is taken up
	driving  sync.WaitGroup
	answered sync.WaitGroup // of connections
}

// NewServing returns the serving process of a host. It does nothing before Open.
func NewServing(h *Host, opts ServingOptions) *Serving {
	return &Serving{host: h, opts: opts, nudge: make(chan struct{}, 1), open: map[caisson.RunID]*served{}, retry: map[caisson.RunID]*backoff{}}
}

// servingDir holds the sockets of those that serve, in a directory that sockets
// of a process of ours are in.
func servingDir(runtime string) string { return filepath.Join(runtime, "serve") }

// servingLock is the lock of the one that serves this ledger, with the instance
// that holds it as its note. It lies beside the ledger: processes of a person may
// have different directories for sockets, and one lock has to be everybody's.
func (h *Host) servingLock() string { return filepath.Join(h.Paths.State, "serve.lock") }

// servingSocket is where one that serves listens, as its own record tells: the
// directory is that one's, not the asker's.
func servingSocket(inst caisson.Instance) string {
	return filepath.Join(servingDir(process.DirOf(inst)), string(inst.ID))
}

// Open makes this process the one that serves; CodeLeaseHeld where another does.
func (s *Serving) Open(ctx context.Context) (err error) {
	me, err := s.host.register(ctx)
	if err != nil {
		return err
	}
	// The socket is there before the lock says so: who sees the lock finds it.
	s.path = servingSocket(s.host.instance.Instance)
	if s.listen, err = localsocket.Listen(localsocket.Packets, s.path); err != nil {
		return err
	}
	lock, held, err := lockfile.Try(s.host.servingLock(), []byte(me))
	if held {
		err = caisson.Errorf(caisson.CodeLeaseHeld, "another process serves the sandboxes of %s", s.host.Paths.State)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.lock = lock
	return nil
}

// Close lets another serve. To be called after Run, or without it.
func (s *Serving) Close() error {
	var errs []error
	if s.listen != nil {
		if err := s.listen.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
		errs = append(errs, atomicfile.RemoveIfThere(s.path))
		s.listen = nil
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends, or, where that was asked for, nothing is left to
// serve. What is open then is stopped, so that it can be started again.
func (s *Serving) Run(ctx context.Context) error {
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.end(nil)
	unhook := context.AfterFunc(ctx, func() { s.end(shutdownCause(ctx)) })
	defer unhook()
	s.host.followTasks()
	var waking sync.WaitGroup
	waking.Go(s.accept)
	waking.Go(s.watch)
	err := s.loop()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(shutdownCause(ctx))
	_ = s.listen.Close() // nobody is taken up any more
	s.driving.Wait()
	s.answered.Wait()
	waking.Wait()
	return err
}

func shutdownCause(ctx context.Context) error {
	var named *caisson.CauseError
	if errors.As(context.Cause(ctx), &named) {
		return named
	}
	return &caisson.CauseError{Cause: caisson.CauseShutdown, Text: "the process that served it was ended"}
}

// loop takes up what wants to be open, until the end.
func (s *Serving) loop() error {
	again, since := s.opts.Again, time.Now()
	for s.life.Err() == nil {
		idle, err := s.look(again)
		if err != nil && s.life.Err() == nil {
			return err // without the record nothing may go on
		}
		again = false
		var over <-chan time.Time
		switch {
		case !idle:
			since = time.Now()
		case s.opts.UntilIdle && time.Since(since) >= idleFor:
			return nil
		case s.opts.UntilIdle:
			over = time.After(idleFor - time.Since(since))
		}
		select {
		case <-s.life.Done():
		case <-s.nudge:
		case <-over:
		}
	}
	return nil
}

// idleFor is how long one that ends when it has nothing to do waits for it: who
// has started it is about to ask.
const idleFor = 3 * time.Second

func (s *Serving) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// lookPause is the shortest time between looks that no person waits for.
const lookPause = time.Second

// watch wakes the loop when something has happened in the ledger.
func (s *Serving) watch() {
	for seen := int64(0); s.life.Err() == nil; {
		n, err := s.host.Ledger.Wait(s.life, "", seen)
		s.wake() // an error too: it meets it
		if seen = n; err != nil && s.life.Err() == nil {
			seen = 0
		}
		select {
		case <-s.life.Done():
		case <-time.After(lookPause):
		}
	}
}

// look starts what wants to be open and is not; again also what a shutdown
// stopped. idle says that nothing is open, asked or wanted.
func (s *Serving) look(again bool) (idle bool, err error) {
	runs, err := s.host.servedOpen(s.life)
	if err != nil {
		return false, err
	}
	wanted := 0
	for _, r := range runs {
		if r.State == caisson.RunPaused && !(again && r.Cause == caisson.CauseShutdown) {
			continue
		}
		wanted++
		if s.due(r.ID) {
			s.takeWanted(r)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return wanted+len(s.open)+s.asking == 0, nil
}

// backoff is when to try again what could not be taken up and is still wanted.
type backoff struct {
	after time.Time
	pause time.Duration
}

const maxBackoff = 30 * time.Second

func (s *Serving) due(run caisson.RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.retry[run]
	return b == nil || !time.Now().Before(b.after)
}

// take returns the open sandbox of a run, and opens it if it is not: a person
// wants it. env are variables of that person; nil keeps those that are known.
func (s *Serving) take(run caisson.RunID, env []string) *served {
	return s.takeAfter(run, env, nil)
}

// takeAfter is take where the new boundary comes in the place of another's.
func (s *Serving) takeAfter(run caisson.RunID, env []string, last *served) *served {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.open[run]; v != nil {
		v.wanted = nil
		return v
	}
	return s.openLocked(newServed(run, env), last)
}

// takeWanted returns the open sandbox of a run, and opens it if it is not and
// still wants to be, as it did when r was read. A person may have stopped it
// since.
func (s *Serving) takeWanted(r caisson.Run) *served {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.open[r.ID]; v != nil {
		return v
	}
	v := newServed(r.ID, nil)
	v.wanted = &r
	return s.openLocked(v, nil)
}

func (s *Serving) openLocked(v, last *served) *served {
	life, stop := context.WithCancelCause(s.life)
	v.stop = stop
	if last != nil && v.env == nil {
		v.env = last.env
	}
	if s.closed {
		stop(nil)
		v.err = errEnding
		close(v.done)
		return v
	}
	s.open[v.run] = v
	s.driving.Go(func() { s.drive(life, v) })
	return v
}

var errEnding = caisson.Errorf(caisson.CodeInterrupted, "the process that serves sandboxes is ending").WithHint("Try again.")

// drive drives a served run through one life.
func (s *Serving) drive(ctx context.Context, v *served) {
	defer s.wake()
	defer close(v.done)
	defer v.stop(nil)
	if s.unwanted(ctx, v) {
		return
	}
	v.ended, v.err = s.host.Drive(ctx, v.run, DriveOptions{served: v})
	if cutShort(ctx, v.err) { // before it was open; where it rests, that is what was asked for
		if now, err := s.host.Ledger.Run(context.WithoutCancel(ctx), v.run); err == nil && now.State == caisson.RunPaused {
			v.ended, v.err = now, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, v.run)
	s.backOffLocked(v)
	if env, replaced := v.replaced(); replaced && v.err == nil { // before anybody else opens it
		v.next = s.openLocked(newServed(v.run, env), v)
	}
}

// unwanted gives up a run that was stopped before this process had it: whoever
// stops it from now on ends v.
func (s *Serving) unwanted(ctx context.Context, v *served) bool {
	now, err := s.host.Ledger.Run(ctx, v.run)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || v.wanted == nil || now.State != caisson.RunPaused {
		return false
	}
	if v.wanted.State == caisson.RunPaused && v.wanted.Lease.Fence == now.Lease.Fence {
		return false // it is the same rest
	}
	delete(s.open, v.run)
	v.ended, v.err = now, stoppedError(v.run)
	return true
}

func stoppedError(run caisson.RunID) error {
	return caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is stopped", run).WithHint("`caisson sandbox start %s` starts it again.", run)
}

// backOffLocked puts off another try of what failed and still wants to be open.
func (s *Serving) backOffLocked(v *served) {
	if v.err == nil {
		delete(s.retry, v.run)
		return
	}
	b := s.retry[v.run]
	if b == nil {
		b = &backoff{pause: lookPause / 2}
		s.retry[v.run] = b
	}
	b.pause = min(2*b.pause, maxBackoff)
	b.after = time.Now().Add(b.pause)
	time.AfterFunc(b.pause, s.wake)
}

// servingRemains lists the sockets of processes that serve.
func (h *Host) servingRemains(ctx context.Context) ([]remain, error) {
	return h.socketRemains(ctx, servingDir(h.Paths.Runtime), func(name string) (caisson.InstanceID, string) {
		return caisson.InstanceID(name), "a process that served sandboxes"
	}, localsocket.Packets)
}

// ServedBy returns the process that serves sandboxes, if one does.
func (h *Host) ServedBy(ctx context.Context) (inst caisson.Instance, serves bool, err error) {
	held, err := lockfile.Held(h.servingLock())
	if errors.Is(err, os.ErrNotExist) || err == nil && !held {
		return inst, false, nil
	}
	if err != nil {
		return inst, false, err
	}
	note, err := lockfile.Note(h.servingLock())
	if err != nil {
		return inst, false, fmt.Errorf("read who serves: %w", err)
	}
	inst, err = h.Ledger.Instance(ctx, caisson.InstanceID(note))
	return inst, err == nil, err
}
