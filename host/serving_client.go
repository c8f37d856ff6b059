package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
)

// reachPause is how often a process that is just being started is looked for.
const reachPause = 10 * time.Millisecond

// dialServing reaches the process that serves; CodeNotFound where none does.
func (h *Host) dialServing(ctx context.Context) (*net.UnixConn, error) {
	note, err := lockfile.Note(h.servingLock())
	if err != nil || len(note) == 0 {
		return nil, caisson.Errorf(caisson.CodeNotFound, "no process serves sandboxes")
	}
	inst, err := h.Ledger.Instance(ctx, caisson.InstanceID(note))
	if err != nil {
		return nil, err
	}
	conn, err := localsocket.Dial(ctx, localsocket.Packets, servingSocket(inst))
	if err != nil {
		return nil, err
	}
	// In a copy of a state directory the note names who serves the original.
	held, err := lockfile.Held(h.servingLock())
	if err == nil && held {
		return conn, nil
	}
	_ = conn.Close() // nothing was sent
	if err == nil {
		err = caisson.Errorf(caisson.CodeNotFound, "no process serves the sandboxes of %s", h.Paths.State)
	}
	return nil, err
}

// reach reaches the process that serves, and starts one where none does. Of
// several that are started at once one stays.
func (h *Host) reach(ctx context.Context) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, takeUp)
	defer cancel()
	var started *caisson.ProcessIdentity
	starts := 0
	for {
		conn, err := h.dialServing(ctx)
		if err == nil || caisson.CodeOf(err) != caisson.CodeNotFound {
			return conn, err
		}
		held, err := lockfile.Held(h.servingLock())
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		switch {
		case held: // it is about to listen, or to go
		case started == nil:
			id, err := h.startServing()
			if err != nil {
				return nil, err
			}
			started = &id
			starts++
		case process.Alive(*started) == caisson.Dead && starts < maxStarts:
			started = nil // it may have been idle for too long before we came
		case process.Alive(*started) == caisson.Dead:
			return nil, caisson.Errorf(caisson.CodeInternal, "the process that should serve sandboxes ended at once").WithHint("See why: `caisson serve`.")
		}
		select {
		case <-ctx.Done():
			return nil, caisson.Errorf(caisson.CodeInternal, "the process that should serve sandboxes does not answer: %w", context.Cause(ctx))
		case <-time.After(reachPause):
		}
	}
}

// maxStarts is how often a serving process is started for one question.
const maxStarts = 3

func (h *Host) startServing() (caisson.ProcessIdentity, error) {
	self, err := os.Executable()
	if err != nil {
		return caisson.ProcessIdentity{}, caisson.Errorf(caisson.CodeInternal, "find own program: %w", err)
	}
	// It stays when the directory that the person stands in is to go.
	return process.Detach(process.Command{Path: self, Args: []string{"serve", "--until-idle"}, Env: os.Environ(), Dir: "/"})
}

// errServingLost says that the serving process went without an answer.
var errServingLost = errors.New("the process that serves sandboxes has ended")

// patience is how long the serving process may say nothing, not even that it
// lives, to who has asked it: once it has taken up what was asked much longer, as
// what a person does inside is at stake. A process that is stopped, frozen or
// stuck says nothing. quiet is how much later than its word is due the person is
// told, once, that one that is stopped is waited for, and three times that of any
// other, as on a busy machine a word may be late: not of a session that has begun,
// whose streams are its own.
type patience struct {
	before, begun, quiet time.Duration
	tell                 func(text string) // nil: nobody is told
}

func (h *Host) patience() patience {
	return patience{before: 4 * beatPause, begun: 20 * beatPause, quiet: 2 * time.Second, tell: h.notice}
}

// thawed is how long a client that was itself stopped meanwhile looks for what it
// was told.
const thawed = time.Second

// exchange asks on an open connection. taken is called when the run's lease is
// taken; nil: nobody is told. errServingLost where no answer came; where the other
// end says nothing for too long, an error that names it.
func (p patience) exchange(ctx context.Context, conn *net.UnixConn, request servingRequest, files []*os.File, taken func()) (reply servingReply, begun bool, err error) {
	defer conn.Close() //nolint:errcheck // nothing is left to be sent
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	request.Version = servingVersion
	_ = conn.SetWriteDeadline(time.Now().Add(p.before)) // an open socket
	if err := sendPacket(conn, request); err != nil {
		if caisson.CodeOf(err) == caisson.CodeUsage {
			return reply, false, err
		}
		return reply, false, fmt.Errorf("%w: %w", errServingLost, err)
	}
	heard, told := false, p.tell == nil
	for {
		reply = servingReply{}
		quiet := p.quiet // it says at once that it has heard
		if heard {
			quiet += beatPause
		}
		if err := p.receive(conn, &reply, begun, quiet, func(again bool) {
			if text, stopped := waitedFor(conn); !told && !begun && (stopped || again) {
				told = true
				p.tell(text)
			}
		}); err != nil {
			switch {
			case ctx.Err() != nil:
				return reply, begun, context.Cause(ctx)
			case errors.Is(err, os.ErrDeadlineExceeded):
				err = silent(conn, request, begun, heard)
			case errors.Is(err, io.EOF), errors.As(err, new(*net.OpError)):
				err = errServingLost
			}
			return reply, begun, err
		}
		if reply.Beat && !heard {
			heard = true
			if len(files) > 0 {
				_ = conn.SetWriteDeadline(time.Now().Add(p.before)) // an open socket
				_ = sendPacket(conn, servingStreams{}, files...)    // where it cannot be sent, what is received says why
			}
		}
		if reply.Taken {
			begun = true
			if taken != nil {
				taken()
			}
		}
		if !reply.Done {
			continue
		}
		if reply.Error != nil {
			return reply, begun, reply.Error
		}
		return reply, begun, nil
	}
}

// receive receives the next message. late is called where it does not come within
// quiet, and again after twice that.
func (p patience) receive(conn *net.UnixConn, reply *servingReply, begun bool, quiet time.Duration, late func(again bool)) error {
	bound := p.before
	if begun {
		bound = p.begun
	}
	quiet = min(quiet, bound/3)
	var err error
	for i, bound := range []time.Duration{quiet, 2 * quiet, bound - 3*quiet, thawed} {
		_ = conn.SetReadDeadline(time.Now().Add(bound)) // an open socket
		if _, err = receivePacket(conn, reply, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if i < 2 {
			late(i == 1)
		}
	}
	return err
}

// waitedFor says which process is waited for, how it stands, and whether it is
// stopped.
func waitedFor(conn *net.UnixConn) (text string, stopped bool) {
	pid, err := localsocket.Peer(conn)
	if err != nil {
		return "the process that serves sandboxes does not answer; it is waited for", false
	}
	how, _ := standing(pid)
	return fmt.Sprintf("process %d, which serves sandboxes, %s; it is waited for", pid, how), process.Stopped(pid)
}

// silent says which process does not answer, and what to do about it. heard: it
// had said that it is at work on what was asked.
func silent(conn *net.UnixConn, request servingRequest, begun, heard bool) error {
	pid, err := localsocket.Peer(conn)
	if err != nil {
		return err
	}
	how, hint := standing(pid)
	if begun {
		return caisson.Errorf(caisson.CodeOutcomeUnknown, "process %d, which serves the sandbox, %s; how far session %s came is not known", pid, how, request.Run).
			WithHint("When it goes on, it ends the session. %s", hint)
	}
	done := "nothing was done"
	if heard && request.Op != opExec && request.Op != opHold { // a session that was not begun is cancelled
		done = "it had taken up what was asked, and may do it when it goes on"
	}
	return caisson.Errorf(caisson.CodeHolderUnknown, "process %d, which serves sandboxes, %s; %s", pid, how, done).WithHint("%s", hint)
}

// ask asks the process that serves, and starts it where none does. It asks
// again where that one went before it had taken anything up.
func (h *Host) ask(ctx context.Context, request servingRequest, files []*os.File, taken func()) (servingReply, bool, error) {
	for tries := 0; ; tries++ {
		conn, err := h.reach(ctx)
		if err != nil {
			return servingReply{}, false, err
		}
		reply, begun, err := h.patience().exchange(ctx, conn, request, files, taken)
		if !begun && tries < 3 && (reply.Again || errors.Is(err, errServingLost)) {
			if r, readErr := h.Ledger.Run(ctx, request.Run); readErr == nil && (isServed(r) || r.Lease.Fence == 0) {
				continue
			}
		}
		return reply, begun, err
	}
}

// servedEnv are the variables that a run names, as the person has them here.
func (h *Host) servedEnv(spec caisson.RunSpec) []string {
	var env []string
	for _, name := range spec.Env {
		if value := h.env(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func servingError(err error) error {
	if errors.Is(err, errServingLost) {
		return caisson.Errorf(caisson.CodeInterrupted, "%w", err).WithHint("Try again: another is started, and goes on from the record.")
	}
	return err
}

// StopServed stops a served run's sandbox, and returns when it is stopped. It
// can be started again.
func (h *Host) StopServed(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	var missed time.Time // since when it could not be asked
	for {
		r, err := h.Ledger.Run(ctx, id)
		if err != nil {
			return r, err
		}
		if err := servedOnly(r); err != nil {
			return r, err
		}
		_, driven, err := h.Driven(ctx, r)
		if err != nil {
			return r, err
		}
		if !driven {
			r, err = h.restServed(ctx, r)
			if caisson.CodeOf(err) == caisson.CodeLeaseHeld {
				continue // it was taken up just now
			}
			return r, err
		}
		conn, err := h.dialServing(ctx)
		if caisson.CodeOf(err) == caisson.CodeNotFound {
			if missed.IsZero() {
				missed = time.Now()
			}
			if time.Since(missed) < settleBound { // one that was killed still lives for a moment after its socket
				select {
				case <-ctx.Done():
					return r, context.Cause(ctx)
				case <-time.After(settlePause):
				}
				continue
			}
			return r, caisson.Errorf(caisson.CodeHolderUnknown, "whoever has the sandbox of run %s cannot be asked", id).
				WithHint("Try again. If %s is a copy of another directory, ask where that is.", h.Paths.State)
		}
		if err != nil {
			return r, err
		}
		missed = time.Time{}
		reply, _, err := h.patience().exchange(ctx, conn, servingRequest{Op: opStop, Run: id}, nil, nil)
		if errors.Is(err, errServingLost) {
			continue
		}
		if err != nil {
			return r, err
		}
		return *reply.Run, nil
	}
}

// restServed stops what nobody drives: all that a killed process left of it is
// ended, and it no longer wants to be open.
func (h *Host) restServed(ctx context.Context, r caisson.Run) (caisson.Run, error) {
	if r.State == caisson.RunPaused {
		return r, nil
	}
	drive, err := h.take(ctx, r, false)
	if err != nil {
		return r, err
	}
	err = h.sweep(ctx, r)
	for _, move := range []caisson.RunMove{{To: caisson.RunRunning}, {To: caisson.RunPaused, Stop: caisson.StopPaused, Cause: caisson.CauseUser, Text: "a person stopped it"}} {
		if err == nil && r.State != move.To {
			r, err = h.Ledger.MoveRun(ctx, drive, move)
		}
	}
	return r, errors.Join(err, h.Ledger.ReleaseLease(context.WithoutCancel(ctx), drive))
}

// Streams are those of a command in a served sandbox; nil is none.
type Streams struct{ In, Out, Err *os.File }

// InServed tells whether a run is a session in a served sandbox: DriveServed
// drives it then, and no other.
func (h *Host) InServed(ctx context.Context, r caisson.Run) (bool, error) {
	_, guest, err := h.isGuest(ctx, r)
	return guest, err
}

// DriveServed has a session driven in the served sandbox that it is in, on these
// streams, and returns the run as it is then. Where the process that served it
// was killed, that is what the record says; CodeOutcomeUnknown where it says nothing.
// A session whose output cannot be written is ended, and the error wraps why.
func (h *Host) DriveServed(ctx context.Context, id caisson.RunID, given Streams) (caisson.Run, error) {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil || r.State.Terminal() {
		return r, err
	}
	files := []*os.File{given.In, given.Out, given.Err}
	if slices.Contains(files, nil) {
		none, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return r, err
		}
		defer none.Close()
		for i := range files {
			if files[i] == nil {
				files[i] = none
			}
		}
	}
	reply, begun, err := h.ask(ctx, servingRequest{Op: opExec, Run: id, Env: h.guestEnv(r.Spec, false)}, files, nil)
	switch {
	case err == nil && reply.Lost != 0:
		return *reply.Run, lostOutput(reply.Lost)
	case err == nil:
		return *reply.Run, nil
	case errors.Is(err, errServingLost):
		return h.afterLoss(ctx, r)
	case !begun:
		err = errors.Join(err, h.dropPending(ctx, id))
	}
	return r, err
}

// lostOutput says that a session was ended as its output could not be written.
func lostOutput(why unix.Errno) error {
	code := caisson.CodeWriteFailed
	if why == unix.ENOSPC || why == unix.EDQUOT {
		code = caisson.CodeDiskFull
	}
	return caisson.Errorf(code, "what the command prints could not be written, and is not whole: %w", why).
		WithHint("The command was ended, if it was not over. Let it print to where there is room.")
}

// dropPending ends a session that was never taken up.
func (h *Host) dropPending(ctx context.Context, id caisson.RunID) error {
	ctx = context.WithoutCancel(ctx)
	r, err := h.Ledger.Run(ctx, id)
	if err == nil && r.State == caisson.RunPending {
		_, err = h.Ledger.AskCancel(ctx, id, caisson.CauseUnknown, "caisson")
	}
	return err
}

// afterLoss returns what the record says of a session whose driver was killed.
func (h *Host) afterLoss(ctx context.Context, r caisson.Run) (caisson.Run, error) {
	r, err := h.Await(ctx, r.ID)
	if err == nil && (!r.State.Terminal() || Lost(r)) {
		err = caisson.Errorf(caisson.CodeOutcomeUnknown, "the process that served the sandbox was killed, and all that ran in it has ended with it; how far session %s came is not known", r.ID)
	}
	return r, err
}

// guestEnv is what a session in a served sandbox sees of the person's: what it
// names, and on a terminal its kind.
func (h *Host) guestEnv(spec caisson.RunSpec, pty bool) []string {
	env := h.servedEnv(spec)
	if term := h.env("TERM"); pty && term != "" {
		env = append(env, "TERM="+term)
	}
	return env
}

// holdServed has a session with a terminal driven in its served sandbox, and
// returns when its terminal can be attached to.
func (h *Host) holdServed(ctx context.Context, r caisson.Run, opts ServeOptions) error {
	waiting, enough := context.WithCancel(ctx)
	defer enough()
	held := false
	request := servingRequest{Op: opHold, Run: r.ID, Size: opts.Size, Expect: opts.Expect, Env: h.guestEnv(r.Spec, true)}
	_, begun, err := h.ask(waiting, request, nil, func() { held = true; enough() })
	switch {
	case held:
		return nil // it goes on without us
	case errors.Is(err, errServingLost):
		_, err = h.afterLoss(ctx, r)
	case err != nil && !begun:
		err = errors.Join(err, h.dropPending(ctx, r.ID))
	}
	return err
}
