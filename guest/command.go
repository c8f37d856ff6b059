package guest

import (
	"context"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/wire"
)

const (
	defaultGrace = 3 * time.Second
	// tailBound is how long Wait lets output that was produced before a stop
	// reach a writer that is slow to take it.
	tailBound = 50 * time.Millisecond
	// endBound is how long after the grace a guest may take to end a tree. It
	// needs a few milliseconds; for one of hundreds of processes, with few
	// processors and on a host under heavy load, it needs seconds. One that takes
	// this long has lost control, and ending it as a whole is then the only way to
	// keep the promise.
	//
	// With the longest grace of what a sandbox is told when it ends it fits into the
	// time that there is for that.
	endBound = 3500 * time.Millisecond
	// endSteps are what it is waited for in: where the machine stands still, the
	// guest does too, and that is one of them.
	endSteps = 10
)

// command is one process at the host.
type command struct {
	c        *Client
	id       uint32
	grace    time.Duration
	deadline time.Duration
	stdin    io.Reader
	identity caisson.ProcessIdentity
	outs     []*output
	credit   *wire.Credit // of stdin
	oomAt    int64

	held   chan struct{} // answered: held or failed
	ended  chan struct{} // the tree has ended, or the guest is lost
	stop   chan struct{} // a cause was latched
	timer  *time.Timer
	backup *time.Timer

	mu                       sync.Mutex
	phase                    phase
	answered                 bool // held is closed
	closed                   bool // ended is closed
	seenHeld, seenEnded, oom bool
	where                    wire.Held
	status                   *wire.Ended
	cause                    caisson.Cause
	err                      error
	started                  time.Time
	finished                 time.Time
}

type phase int

const (
	phaseAsked phase = iota
	phaseHeld
	phaseReleased
	phaseEnded
	phaseDropped // by the host, before it was released
)

// Hold creates a process inside that is held before its program begins, as
// caisson.Sandbox.Hold says. Errors: CodeNotFound and CodePathInvalid for a
// program or directory that is not there, CodePathOutside, CodeSandboxLost,
// CodeHostFull.
func (c *Client) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	if (len(cmd.Argv) == 0) == (cmd.Line == "") {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "a command is either arguments or a shell line")
	}
	p := &command{
		c: c, grace: cmd.Grace, deadline: cmd.Deadline, stdin: cmd.Stdin,
		held: make(chan struct{}), ended: make(chan struct{}), stop: make(chan struct{}),
	}
	if p.grace == 0 {
		p.grace = defaultGrace
	}
	req := wire.Hold{
		Argv: wire.Bytes(cmd.Argv), Line: caisson.Bytes(cmd.Line), Dir: caisson.Bytes(cmd.Dir),
		Env: wire.Bytes(cmd.Env), Stdin: cmd.Stdin != nil, PTY: cmd.PTY,
		Stdout: cmd.Stdout != nil, Stderr: cmd.Stderr != nil && cmd.PTY == nil,
	}
	if req.Stdout && req.Stderr && sameWriter(cmd.Stdout, cmd.Stderr) {
		req.Merge, req.Stderr = true, false
	}
	if req.Stdout {
		p.outs = append(p.outs, newOutput(wire.TypeOut, cmd.Stdout))
	}
	if req.Stderr {
		p.outs = append(p.outs, newOutput(wire.TypeErr, cmd.Stderr))
	}
	if req.Stdin {
		p.credit = wire.NewCredit()
	}
	return p.begin(ctx, req)
}

// sameWriter tells whether a and b are one value, also of a type that cannot
// be compared (then they are not).
func sameWriter(a, b io.Writer) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// isHeld waits until the guest has answered; false: it has not in time. When
// that is over it is looked once more: the host's own process may have been
// stopped meanwhile, and what the guest has said waits to be read.
func (p *command) isHeld(ctx context.Context) bool {
	for _, bound := range [...]time.Duration{readyBound, thawed} {
		timer := time.NewTimer(bound)
		defer timer.Stop()
		select {
		case <-p.held:
			return true
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
	}
	return false
}

// begin asks the guest and proves its answer.
func (p *command) begin(ctx context.Context, req wire.Hold) (caisson.Process, error) {
	var err error
	p.mu.Lock() // frames for p wait until it knows its number
	p.id, err = p.c.open(p, wire.TypeHold, &req)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !p.isHeld(ctx) {
		p.Drop()
		if ctx.Err() != nil {
			return nil, caisson.Errorf(caisson.CodeCancelled, "cancelled before it began: %w", context.Cause(ctx))
		}
		if err := p.c.stopped(); err != nil {
			return nil, err // nothing has begun, and what runs goes on with the guest
		}
		err := breach("it did not hold a process within %v", readyBound)
		p.c.cut(err)
		return nil, err
	}
	p.mu.Lock()
	refused, where := p.err, p.where
	p.mu.Unlock()
	if refused != nil {
		return nil, refused
	}
	p.identity = p.c.opts.Root
	if p.c.opts.Identify != nil {
		if p.identity, err = p.c.opts.Identify(where.Holder, where.PID); err != nil {
			err = breach("the process that it names is not proved: %w", err)
			p.c.cut(err)
			return nil, err
		}
	}
	for _, o := range p.outs {
		go o.deliver(p.c.out, p.id) // ends with the channel, or when it is broken
	}
	return p, nil
}

// Identity implements caisson.Process.
func (p *command) Identity() caisson.ProcessIdentity { return p.identity }

// Release implements caisson.Process.
func (p *command) Release() error {
	if p.c.opts.OOM != nil {
		p.oomAt, _ = p.c.opts.OOM() // unknown counts as none: OOM is then only told when the count can be read later
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return p.err
	case p.phase == phaseEnded:
		return caisson.Errorf(caisson.CodeNotExecuted, "the held process was ended from inside before it began")
	case p.phase != phaseHeld:
		return caisson.Errorf(caisson.CodeStateInvalid, "the command is not held any more")
	}
	if err := p.c.out.Control(wire.TypeRelease, p.id, nil); err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "the guest has ended: %w", err)
	}
	p.phase = phaseReleased
	p.started = time.Now()
	if p.deadline > 0 {
		p.timer = time.AfterFunc(p.deadline, func() { p.Stop(caisson.CauseDeadline) })
	}
	if p.stdin != nil {
		go p.feed() // ends when stdin ends or the command does; a Read under way is let go
	}
	return nil
}

// feed sends stdin. A Read that does not return keeps this goroutine, as
// nothing can end it but its owner; it holds nothing else.
func (p *command) feed() {
	buf := make([]byte, wire.HeaderSize+64<<10)
	body := buf[wire.HeaderSize:]
	for {
		n, err := p.stdin.Read(body)
		for n > 0 {
			k := p.credit.Take(n)
			if k == 0 || p.c.out.Data(wire.TypeIn, p.id, buf[:wire.HeaderSize+k]) != nil {
				return
			}
			n = copy(body, body[k:n])
		}
		if err != nil {
			_ = p.c.out.End(wire.TypeIn, p.id) // a lost guest is told by lost
			return
		}
	}
}

// Stop implements caisson.Process. It bounds the delivery of output whatever
// the phase, so that nobody waits for a writer that takes nothing.
func (p *command) Stop(cause caisson.Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stop:
		return
	default:
		close(p.stop)
	}
	switch p.phase {
	case phaseAsked, phaseHeld:
		p.dropLocked()
	case phaseReleased:
		p.cause = cause
		_ = p.c.out.Control(wire.TypeStop, p.id, &wire.Stop{Grace: p.grace}) // a lost guest is told by lost
		p.awaitEndLocked(p.grace, endSteps)
	case phaseEnded, phaseDropped: // nothing is left to stop but the delivery of its output
	}
}

// awaitEndLocked cuts the guest off that does not end the command in so many steps
// after a time.
func (p *command) awaitEndLocked(after time.Duration, steps int) {
	p.backup = time.AfterFunc(after+endBound/endSteps, func() {
		p.mu.Lock()
		going := p.phase == phaseReleased
		if going && steps > 1 {
			p.awaitEndLocked(0, steps-1)
		}
		p.mu.Unlock()
		if going && steps == 1 {
			p.c.cut(p.c.late(breach("it did not end a command within %v of its grace", endBound)))
		}
	})
}

// Drop implements caisson.Process: a stop without a cause of its own.
func (p *command) Drop() { p.Stop(caisson.CauseUnknown) }

// dropLocked ends a process that was not released.
func (p *command) dropLocked() {
	p.phase = phaseDropped
	_ = p.c.out.Control(wire.TypeDrop, p.id, nil) // a lost guest is told by lost
	p.endLocked(nil, caisson.Errorf(caisson.CodeNotExecuted, "the command was dropped before it began"))
}

// Resize implements caisson.Process.
func (p *command) Resize(size caisson.Winsize) error {
	return p.ask(wire.TypeResize, &wire.Resize{Size: size})
}

// Signal implements caisson.Process.
func (p *command) Signal(sig int) error { return p.ask(wire.TypeSignal, &wire.Signal{Signal: sig}) }

func (p *command) ask(t wire.Type, body pack.Value) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if p.phase != phaseReleased {
		return caisson.Errorf(caisson.CodeStateInvalid, "the command is not running")
	}
	if err := p.c.out.Control(t, p.id, body); err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "the guest has ended: %w", err)
	}
	return nil
}
