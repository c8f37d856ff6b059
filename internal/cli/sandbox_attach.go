package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/terminal"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// attachOptions say how a person looks at a session.
type attachOptions struct {
	keys     []byte
	readOnly bool
}

func (a *app) sandboxAttach() *cobra.Command {
	var opts attachOptions
	var keys string
	cmd := &cobra.Command{
		Use: "attach [REF]", Short: "Come back to a session, or join it",
		Long: `Come back to a session, or join it: REF is its run, or the workspace that it works
in. Without REF it is the only one that is open. What it showed last is shown
again. Without a terminal its output is printed, and nothing can be typed.

Any number may be attached. All may type; the size is that of the one who typed
last. One who reads too slowly is shown the latest and not everything, and one
who has stopped is let go; the program never waits for either.`,
		Example: `  caisson sandbox attach
  caisson sandbox attach caisson/r7k2 --read-only`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(sessionNames),
	}
	cmd.Flags().BoolVar(&opts.readOnly, "read-only", false, "only look: what is typed goes nowhere; Ctrl-C leaves")
	detachKeys(cmd, &keys)
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) (err error) {
		if opts.keys, err = terminal.ParseKeys(keys); err != nil {
			return err
		}
		ref := ""
		if len(args) > 0 {
			ref = args[0]
		}
		r, err := h.FindSession(ctx, ref)
		if err != nil {
			return err
		}
		return a.reattach(ctx, h, r, opts)
	})
	return cmd
}

// reattach looks at a session that exists, and goes on with one that waited.
func (a *app) reattach(ctx context.Context, h *host.Host, r caisson.Run, opts attachOptions) error {
	switch {
	case r.Spec.Session != caisson.SessionTerminal:
		return caisson.Errorf(caisson.CodeStateInvalid, "session %s has the streams of the process that drives it, and no terminal", r.ID)
	case r.State.Terminal():
		return caisson.Errorf(caisson.CodeStateInvalid, "session %s has ended: %s", r.ID, r.State).
			WithHint("What it printed: `caisson runs show %s`.", r.ID)
	}
	if err := h.Hold(ctx, r.ID, host.ServeOptions{Size: sizeOf(a.io.Out), Expect: true}); err != nil {
		return err
	}
	return a.attach(ctx, h, r.ID, opts)
}

// attach looks at a session until it ends or the person leaves it.
func (a *app) attach(ctx context.Context, h *host.Host, id caisson.RunID, opts attachOptions) error {
	eye := a.newEye(opts)
	// Above all: what follows must not leave the person with a raw terminal,
	// whichever way it goes.
	defer eye.close()
	looking, leave := context.WithCancel(ctx)
	defer leave()
	eye.leaveOnSignal(leave)
	went, r, err := h.Attach(looking, id, eye.view)
	eye.close()
	if err != nil && looking.Err() == nil {
		return err
	}
	if sig := eye.signalled(); sig != nil || looking.Err() != nil {
		a.sayLeft(id, false)
		return status(caisson.ExitInterrupted)
	}
	err = a.afterLook(ctx, h, went, r)
	if !eye.seen && r.State.Terminal() && !a.json {
		fmt.Fprintf(a.err, "  it ended before it could be looked at; what it printed: caisson runs show %s\n", r.ID)
	}
	return err
}

func (a *app) sayLeft(id caisson.RunID, newline bool) {
	if a.json {
		return
	}
	text := fmt.Sprintf("  left to itself; come back: caisson sandbox attach %s\n", id)
	if newline {
		text = "\n" + text
	}
	_, _ = io.WriteString(a.err, text) // the terminal may be gone
}

// afterLook says how a session stands when the person looks away.
func (a *app) afterLook(ctx context.Context, h *host.Host, went terminal.Went, r caisson.Run) error {
	if went == terminal.WentLeft {
		a.sayLeft(r.ID, true)
		return nil
	}
	if went == terminal.WentLost {
		now, driven, err := h.Driven(ctx, r)
		if err != nil {
			return err
		}
		r = now
		if driven { // perhaps it is about to end
			waiting, done := context.WithTimeout(ctx, lostBound)
			again, err := h.Await(waiting, r.ID)
			done()
			if err != nil {
				return caisson.Errorf(caisson.CodeInterrupted, "you were let go, as what session %s shows was not read", r.ID).
					WithHint("It goes on. Come back: `caisson sandbox attach %s`.", r.ID)
			}
			r = again
		}
	}
	if !r.State.Terminal() && r.Lease.Instance != "" || host.Lost(r) {
		return caisson.Errorf(caisson.CodeOutcomeUnknown, "the process that held session %s was killed, or its sandbox has ended, and all that ran in it has ended with it; how far it came is not known", r.ID)
	}
	calls, err := h.Ledger.Calls(ctx, r.ID)
	if err != nil {
		return err
	}
	why := unbegun(r, calls)
	own := r.State.Terminal() && r.Cause == "" && r.Stop != caisson.StopModelError && (r.Exit != 0 || r.State == caisson.RunSucceeded)
	switch {
	case a.json:
		if err := encode(a.err, r); err != nil {
			return err
		}
	case why != nil:
	case own:
		fmt.Fprintf(a.err, "  session %s ended with status %d\n", r.ID, r.Exit)
	default:
		a.summary(ctx, h, a.err, r)
	}
	return cmp.Or(why, status(exitOf(r)))
}

// lostBound is how long a session whose terminal is gone may take to have ended.
const lostBound = 3 * time.Second

// eye is the person's terminal while it shows a session's.
type eye struct {
	view    terminal.View
	file    *os.File
	state   *term.State
	out     io.Writer
	seen    bool // it was let in
	titled  bool
	closed  bool
	resized chan os.Signal
	stop    chan os.Signal
	done    chan struct{}
	got     chan os.Signal
}

// Titles of windows are kept on a stack by terminals that have one.
// Source: XTerm Control Sequences, window manipulation.
const (
	saveTitle    = "\x1b[22;0t"
	restoreTitle = "\x1b[23;0t"
)

func (a *app) newEye(opts attachOptions) *eye {
	out := &output{file: a.io.Out, unread: a.out.unread} // that a terminal is gone is no loss of what this command prints
	e := &eye{out: out, done: make(chan struct{}), got: make(chan os.Signal, 1)}
	e.view = terminal.View{
		Attached: func() { e.seen = true },
		Out:      out, ReadOnly: opts.readOnly, Keys: opts.keys,
		Note: func(text string) { fmt.Fprintf(a.err, "\r\n  caisson: %s\r\n", printable(text)) },
	}
	if !a.terminal() {
		e.view.ReadOnly = true
		return e
	}
	e.view.In, e.view.Size, e.file = a.io.In, sizeOf(a.io.Out), a.io.In
	sizes := make(chan caisson.Winsize)
	e.view.Sizes, e.resized = sizes, make(chan os.Signal, 1)
	signal.Notify(e.resized, syscall.SIGWINCH)
	go func() { // ends with close
		for {
			select {
			case <-e.done:
				return
			case <-e.resized:
				select {
				case sizes <- sizeOf(a.io.Out):
				case <-e.done:
					return
				}
			}
		}
	}()
	e.view.Attached = func() {
		e.seen = true
		if state, err := term.MakeRaw(int(e.file.Fd())); err == nil { // else keys come by the line
			e.state = state
		}
		e.titled = true
		_, _ = io.WriteString(e.out, saveTitle) // the terminal may be gone
	}
	return e
}

// leaveOnSignal calls leave when this process shall end, or its terminal is gone.
func (e *eye) leaveOnSignal(leave func()) {
	e.stop = make(chan os.Signal, 4)
	signal.Notify(e.stop, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() { // ends with close
		select {
		case <-e.done:
		case sig := <-e.stop:
			e.got <- sig
			leave()
		}
	}()
}

func (e *eye) signalled() os.Signal {
	select {
	case sig := <-e.got:
		return sig
	default:
		return nil
	}
}

// close gives the terminal back as it was. It may be called twice.
func (e *eye) close() {
	if e.closed {
		return
	}
	e.closed = true
	close(e.done)
	for _, signals := range []chan os.Signal{e.resized, e.stop} {
		if signals != nil {
			signal.Stop(signals)
		}
	}
	if e.titled {
		_, _ = io.WriteString(e.out, restoreTitle) // the terminal may be gone
	}
	if e.state != nil {
		// What the inside asked the terminal for is not to be typed outside.
		_ = unix.IoctlSetInt(int(e.file.Fd()), unix.TCFLSH, unix.TCIFLUSH)
		_ = term.Restore(int(e.file.Fd()), e.state) // the terminal may be gone
	}
}
