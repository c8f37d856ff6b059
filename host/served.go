package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// quiescing bounds how long what runs in a served sandbox may take to end when
// it is asked to; then it is ended by force, with the sandbox.
const quiescing = 7 * time.Second

// served is a sandbox that is kept open in this process: the run that it
// belongs to, and the commands of people that are at work in it. Safe for
// concurrent use.
type served struct {
	run  caisson.RunID
	env  []string // KEY=value, of the person who had it opened; beside this process's own
	stop context.CancelCauseFunc

	ready chan struct{} // closed when it is open
	done  chan struct{} // closed when ended, err and next are what they are
	ended caisson.Run
	err   error
	next  *served // in the place of this one, where that is opened with its end

	// wanted is the run where it is to be opened as long as nobody has stopped it
	// since; nil: a person has said so. Protected by Serving's mu.
	wanted *caisson.Run

	// expect is the workspace's tree as the boundary before this one left it, and
	// tree how this one does; where one takes the place of the other.
	expect, tree string
	fresh        bool // its generation is a new one

	mu      sync.Mutex
	replace bool                     // it is to be opened anew
	nextEnv []string                 // env, then
	halted  bool                     // it was told to stop
	session *session                 // nil before it is open and after it was closed
	guests  map[caisson.RunID]*guest // sessions in it
	leaving sync.WaitGroup           // of guests
}

// guest is a session at work in a served sandbox.
type guest struct {
	door *airlock.Door // nil until it has one
}

func newServed(run caisson.RunID, env []string) *served {
	return &served{run: run, env: env, ready: make(chan struct{}), done: make(chan struct{}), guests: map[caisson.RunID]*guest{}}
}

// opened says that s is open, and lets others work in its box.
func (v *served) opened(s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.session = s
	close(v.ready)
}

// await waits until the sandbox is open; an error says why it is not.
func (v *served) await(ctx context.Context) error {
	select {
	case <-v.ready:
		return nil
	case <-v.done:
		return v.whyNot()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// over waits until the sandbox has ended; an error is why that went wrong.
func (v *served) over(ctx context.Context) error {
	select {
	case <-v.done:
		return v.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// whyNot says why a sandbox that has ended did so.
func (v *served) whyNot() error {
	switch {
	case v.err != nil:
		return v.err
	case v.ended.State.Terminal():
		return caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s has ended: %s", v.run, v.ended.State)
	default:
		return caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s was stopped: %s", v.run, cmp.Or(v.ended.Text, string(v.ended.Cause)))
	}
}

// halt has it stopped.
func (v *served) halt(why *caisson.CauseError) {
	v.mu.Lock()
	v.halted = true
	v.mu.Unlock()
	v.stop(why)
}

// leaves tells whether it is about to be stopped.
func (v *served) leaves() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.halted
}

// replaced tells whether another is to take its place, with which env.
func (v *served) replaced() (env []string, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nextEnv, v.replace
}

// enter lets a session work in the box; leave says that it has ended.
func (v *served) enter(run caisson.RunID) (s *session, leave func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.session == nil:
		return nil, nil, caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is being stopped", v.run)
	case v.guests[run] != nil:
		return nil, nil, caisson.Errorf(caisson.CodeLeaseHeld, "session %s is at work already", run)
	}
	v.guests[run] = &guest{}
	v.leaving.Add(1)
	return v.session, func() {
		v.mu.Lock()
		delete(v.guests, run)
		v.mu.Unlock()
		v.leaving.Done()
	}, nil
}

// borrow keeps the box open for a look at it, until back is called.
func (v *served) borrow() (s *session, back func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == nil {
		return nil, nil, caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is being stopped", v.run)
	}
	v.leaving.Add(1)
	return v.session, v.leaving.Done, nil
}

// know keeps the door of a session that has entered.
func (v *served) know(run caisson.RunID, door *airlock.Door) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if g := v.guests[run]; g != nil {
		g.door = door
	}
}

// doors are those of the sessions at work.
func (v *served) doors() []*airlock.Door {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []*airlock.Door
	for _, g := range v.guests {
		if g.door != nil {
			list = append(list, g.door)
		}
	}
	return list
}

// busy are the sessions at work.
func (v *served) busy() []caisson.RunID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var runs []caisson.RunID
	for run := range v.guests {
		runs = append(runs, run)
	}
	slices.Sort(runs)
	return runs
}

// quiesce lets no more sessions in and ends those that are at work, within the
// time of ctx: softly, by force, and at last by ending their box. When it returns
// none is left.
func (v *served) quiesce(ctx context.Context, cause caisson.Cause) error {
	v.mu.Lock()
	s := v.session
	v.session, v.halted = nil, true
	v.mu.Unlock()
	if s == nil {
		return nil
	}
	var errs []error
	for _, run := range v.busy() {
		if _, err := s.host.Ledger.AskCancel(ctx, run, cause, "caisson"); err != nil && caisson.CodeOf(err) != caisson.CodeStateInvalid {
			errs = append(errs, err)
		}
	}
	pass("host.quiesce.asked")
	left := make(chan struct{})
	go func() { // ends with the sessions, which end with their box
		v.leaving.Wait()
		close(left)
	}()
	if v.ends(ctx, s.host, left) {
		return errors.Join(errs...)
	}
	errs = append(errs, s.box.Close())
	<-left
	return errors.Join(errs...)
}

// keepOpen is the work of a served run: it lets sessions work in its box until
// it is stopped or cancelled, or the box has ended.
func (s *session) keepOpen(ctx context.Context) error {
	if err := s.running(ctx); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	life := s.live(ctx)
	s.served.opened(s)
	select {
	case <-life.ctx.Done():
	case <-s.box.Done():
	}
	why := life.end()
	move := servedMove(why)
	cause := move.Cause
	if why == nil { // the box has ended by itself
		cause = caisson.CauseUnknown
	}
	err := s.quiesceAll(ctx, cause)
	if err == nil {
		err = s.keepTree(context.WithoutCancel(ctx))
	}
	r, readErr := s.host.Ledger.Run(context.WithoutCancel(ctx), s.run.ID)
	if readErr == nil && r.CancelAsked == "" { // else drive ends it
		s.rest = &move
	}
	return errors.Join(err, readErr)
}

// servedMove says how a served run rests: it can be taken up again, however it
// was stopped.
func servedMove(why error) caisson.RunMove {
	move := caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Text: "the sandbox has ended, and nobody here asked for that"}
	var pause *airlock.PauseError
	switch {
	case errors.As(why, &pause):
		move.Cause, move.Text = pause.Cause, pause.Text
	case why != nil:
		move.Text = why.Error()
	}
	return move
}

// cutShort tells whether all that went wrong is that what was under way was told
// to end, by whoever ended ctx.
func cutShort(ctx context.Context, err error) bool {
	var named *caisson.CauseError
	if err == nil || !errors.As(context.Cause(ctx), &named) {
		return false
	}
	for _, part := range leaves(err) {
		if !errors.Is(part, context.Canceled) && !errors.As(part, new(*caisson.CauseError)) && caisson.CodeOf(part) != caisson.CodeCancelled {
			return false
		}
	}
	return true
}

// openWithin opens a session in the box of a served run: its workspace, its
// network and its boundary are that one's.
func (s *session) openWithin(ctx context.Context) error {
	host := s.within
	s.ws, s.box, s.record = host.ws, host.box, host.record
	if s.ws != nil {
		if err := s.host.workspaces.Check(ctx, *s.ws); err != nil {
			return err
		}
	}
	if err := s.loadSettings(ctx); err != nil {
		return err
	}
	s.door = s.airlock().Enter(s.drive, s.subject, s.binding(), s.box.ID())
	host.served.know(s.run.ID, s.door)
	return nil
}
