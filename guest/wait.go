package guest

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
)

// Wait implements caisson.Process.
func (p *command) Wait(ctx context.Context) (caisson.Exit, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Stop(causeOf(ctx))
		<-p.ended // bounded by the grace and endBound
	}
	p.delivered(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.err != nil {
		return caisson.Exit{Cause: p.cause}, p.err
	}
	return p.exitLocked(), nil
}

// causeOf is the cause that ctx carries; it is never guessed.
func causeOf(ctx context.Context) caisson.Cause {
	var cause *caisson.CauseError
	if errors.As(context.Cause(ctx), &cause) {
		return cause.Cause
	}
	return caisson.CauseUnknown
}

// delivered waits for the output to reach its writers: without a bound for a
// command that ended by itself, and for tailBound once there is a reason to stop.
func (p *command) delivered(ctx context.Context) {
	var tail <-chan time.Time
	stopped, over := p.stop, ctx.Done()
	for _, o := range p.outs {
		for waiting := true; waiting; {
			select {
			case <-o.done:
				waiting = false
			case <-tail:
				p.abandon()
				return
			case <-stopped:
				stopped, tail = nil, time.After(tailBound)
			case <-over:
				over = nil
				if tail == nil {
					tail = time.After(tailBound)
				}
			}
		}
	}
}

// abandon gives up what was not delivered. A writer that is in the middle of a
// Write keeps its goroutine until it returns.
func (p *command) abandon() {
	for _, o := range p.outs {
		o.ring.Break()
	}
	_ = p.c.out.Control(wire.TypeDrop, p.id, nil) // a lost guest is told by lost
}

func (p *command) exitLocked() caisson.Exit {
	st := p.status
	exit := caisson.Exit{
		Code: st.Code, Signal: st.Signal, Cause: p.cause, Wall: p.finished.Sub(p.started),
		CPU: st.CPU, MaxRSS: st.MaxRSS, Ended: st.Left, OOM: p.oom,
	}
	if p.cause == caisson.CauseDeadline {
		exit.Code = caisson.ExitDeadline
	}
	return exit
}

// lost implements stream.
func (p *command) lost(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == phaseReleased && caisson.CodeOf(err) == caisson.CodeSandboxLost && p.oomRose() {
		err = caisson.Errorf(caisson.CodeSandboxLost, "the sandbox's memory was used up, and its guest was ended: %w", err).
			WithHint("Give it more with `limits.memory`, or have the command use less at a time.")
	}
	p.endLocked(nil, err)
	p.noMoreOutput()
}

// endLocked latches the end: a status, or an error where it was not seen.
func (p *command) endLocked(status *wire.Ended, err error) {
	if !p.answered {
		p.answered = true
		close(p.held)
	}
	if p.closed {
		return
	}
	p.closed = true
	p.status, p.err, p.finished = status, err, time.Now()
	if p.phase != phaseDropped {
		p.phase = phaseEnded
	}
	if p.backup != nil {
		p.backup.Stop()
	}
	if p.credit != nil {
		p.credit.Break()
	}
	close(p.ended)
}

// frame implements stream.
func (p *command) frame(h wire.Header, in *wire.Reader) (last bool, err error) {
	if h.Type == wire.TypeOut || h.Type == wire.TypeErr {
		for _, o := range p.outs {
			if o.channel == h.Type {
				return false, o.take(h, in)
			}
		}
		return false, breach("output on a channel that was not asked for")
	}
	body, err := in.Control(h)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch h.Type {
	case wire.TypeHeld:
		return false, p.heldLocked(body)
	case wire.TypeFailed:
		return true, p.failedLocked(body)
	case wire.TypeEnded:
		return p.endedLocked(body)
	case wire.TypeCredit:
		return false, takeCredit(body, wire.TypeIn, p.credit)
	case wire.TypeClosed:
		if !p.seenEnded {
			return true, breach("a command was closed before it ended")
		}
		p.noMoreOutput()
		return true, nil
	default:
		return false, breach("a frame of type %d for a command", h.Type)
	}
}

func (p *command) heldLocked(body []byte) error {
	if p.seenHeld {
		return breach("a process was held twice")
	}
	p.seenHeld = true
	if err := wire.Decode(body, &p.where); err != nil {
		return breach("held cannot be read: %w", err)
	}
	if p.phase == phaseAsked {
		p.phase = phaseHeld
	}
	if !p.answered {
		p.answered = true
		close(p.held)
	}
	return nil
}

func (p *command) failedLocked(body []byte) error {
	if p.seenHeld {
		return breach("a command was refused after it was held")
	}
	refused, err := parseFailed(body)
	if err != nil {
		return err
	}
	p.endLocked(nil, refused)
	return nil
}

func (p *command) noMoreOutput() {
	for _, o := range p.outs {
		o.ring.End()
	}
}

func (p *command) endedLocked(body []byte) (last bool, err error) {
	if !p.seenHeld || p.seenEnded {
		return false, breach("a command ended that was not running")
	}
	p.seenEnded = true
	st := &wire.Ended{}
	if err := wire.Decode(body, st); err != nil {
		return false, breach("ended cannot be read: %w", err)
	}
	if st.Code < 0 || st.Code > 255 || st.Signal < 0 || st.Signal > 64 || st.CPU < 0 || st.MaxRSS < 0 || st.Left < 0 {
		return false, breach("ended has values that cannot be")
	}
	p.oom = p.cause == "" && st.Code == 128+9 && p.oomRose()
	p.endLocked(st, nil)
	if st.Closed {
		p.noMoreOutput()
	}
	return st.Closed, nil
}

func (p *command) oomRose() bool {
	if p.c.opts.OOM == nil {
		return false
	}
	n, err := p.c.opts.OOM()
	return err == nil && n > p.oomAt
}

// takeCredit gives what a credit frame says to credit.
func takeCredit(body []byte, want wire.Type, credit *wire.Credit) error {
	channel, n, err := wire.ParseCredit(body)
	if err != nil {
		return breach("%w", err)
	}
	if channel != want || credit == nil || !credit.Give(n) {
		return breach("credit for what was not sent")
	}
	return nil
}

// output is one channel of output at the host.
type output struct {
	channel wire.Type
	w       io.Writer
	ring    *wire.Ring
	done    chan struct{} // all of it was delivered, or given up
}

func newOutput(channel wire.Type, w io.Writer) *output {
	return &output{channel: channel, w: w, ring: wire.NewRing(), done: make(chan struct{})}
}

// take queues a frame's body.
func (o *output) take(h wire.Header, in *wire.Reader) error {
	if h.Length == 0 {
		return breach("an empty frame of output")
	}
	fits, err := o.ring.Fill(h.Length, in.Body)
	if err == nil && !fits {
		return breach("more output than was allowed")
	}
	return err
}

// deliver writes what is queued until the channel ends. A writer that fails
// gets no more; the command is not held up by it.
func (o *output) deliver(out *wire.Writer, id uint32) {
	defer close(o.done)
	failed, owed := false, 0
	for {
		n, err := o.ring.Take(func(chunk []byte) error {
			if !failed {
				_, err := o.w.Write(chunk)
				failed = err != nil
			}
			return nil
		})
		if err != nil {
			return
		}
		if owed += n; owed >= wire.Window/2 {
			if out.Credit(id, o.channel, owed) != nil {
				return
			}
			owed = 0
		}
	}
}
