package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
)

// HoldRequest says what a person wants to do alone in a workspace.
type HoldRequest struct {
	Ref    string
	Reason string
	For    time.Duration // after it the command is ended
	Argv   []string
	// Streams are those of the command, which has the person's rights.
	Streams Streams
}

// Held is what came of it.
type Held struct {
	Run    caisson.RunID `json:"run"`
	Branch string        `json:"branch"`
	Exit   int           `json:"exit"`   // of the command
	Before string        `json:"before"` // commit of the branch
	After  string        `json:"after"`
	// Over: its time was over, and it was ended.
	Over bool `json:"over,omitempty"`
	// Amiss is what is not as it should be of the sandbox, which is open again.
	Amiss []Finding `json:"amiss,omitempty"`
}

// maxHold bounds a hold: who needs a day stops the sandbox.
const maxHold = 24 * time.Hour

func (want HoldRequest) check() error {
	switch {
	case strings.TrimSpace(want.Reason) == "" || !utf8.ValidString(want.Reason) || len(want.Reason) > 500:
		return caisson.Errorf(caisson.CodeUsage, "a hold needs a reason (--reason TEXT), of at most 500 bytes: others read it")
	case want.For <= 0 || want.For > maxHold:
		return caisson.Errorf(caisson.CodeUsage, "a hold lasts between a moment and %s", maxHold)
	case len(want.Argv) == 0:
		return caisson.Errorf(caisson.CodeUsage, "a hold needs a command")
	}
	return nil
}

// HoldServed stops the sandbox around a workspace, runs a command of the
// person's there, and starts the sandbox again. It needs one that is open, and in
// which no request runs. When the command has ended, or ctx, or its time, the
// workspace is compared with what it is bound to, and what the person committed
// is brought inside. Where that cannot be done the hold stays, and the error says
// what is left to do.
func (h *Host) HoldServed(ctx context.Context, want HoldRequest) (Held, error) {
	if err := want.check(); err != nil {
		return Held{}, err
	}
	r, ws, err := h.holdable(ctx, want.Ref)
	if err != nil {
		return Held{}, err
	}
	program, err := h.programFor(ws, want.Argv[0])
	if err != nil {
		return Held{}, err
	}
	me, err := h.register(ctx)
	if err != nil {
		return Held{}, err
	}
	now := time.Now().UTC()
	hold := Hold{
		Workspace: ws.ID, Run: r.ID, Branch: ws.Branch, Instance: me, By: Person(), Reason: want.Reason,
		Since: now, Until: now.Add(want.For), Ends: process.SinceBoot() + want.For, Step: holdTaken,
	}
	if err := h.newHold(ctx, hold); err != nil {
		return Held{}, err
	}
	pass("host.hold.taken")
	use, stopped, err := h.yield(ctx, r, ws, hold)
	if err != nil {
		err = errors.Join(err, h.holds().drop(string(hold.Workspace)))
		if stopped {
			_, openErr := h.reopen(context.WithoutCancel(ctx), hold)
			err = errors.Join(err, openErr)
		}
		return Held{}, err
	}
	pass("host.hold.stopped")
	done, workErr := h.workAlone(ctx, ws, &hold, program, want)
	after := context.WithoutCancel(ctx)
	if err := errors.Join(h.restore(after, ws, &hold), use.Close()); err != nil {
		return done, errors.Join(err, workErr)
	}
	pass("host.hold.restored")
	done.After, err = h.workspaces.Tip(after, ws)
	amiss, openErr := h.reopen(after, hold)
	done.Amiss = amiss
	return done, errors.Join(workErr, err, openErr)
}

// holdable returns the sandbox that ref means and its workspace.
func (h *Host) holdable(ctx context.Context, ref string) (caisson.Run, caisson.Workspace, error) {
	r, err := h.FindServed(ctx, ref)
	if err != nil {
		return r, caisson.Workspace{}, err
	}
	if r.Spec.Workspace == "" {
		return r, caisson.Workspace{}, caisson.Errorf(caisson.CodeUsage, "the sandbox of run %s has no workspace", r.ID)
	}
	ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace)
	if err == nil {
		err = h.unheld(ctx, ws.ID)
	}
	if err == nil && r.State == caisson.RunPaused {
		err = caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is stopped: %s", r.ID, r.Text).
			WithHint("Nobody works in the workspace then: work in %s, or `caisson sandbox start %s` first.", ws.Path, r.ID)
	}
	return r, ws, err
}

// programFor finds a program as a shell of the person's does that stands in the
// workspace, but for what the workspace itself puts in the way of a bare name.
func (h *Host) programFor(ws caisson.Workspace, name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if filepath.IsAbs(name) {
			return name, nil
		}
		return filepath.Join(ws.Path, name), nil
	}
	for _, dir := range filepath.SplitList(process.SafePath(h.env("PATH"), h.Paths.State)) {
		path := filepath.Join(dir, name)
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", caisson.Errorf(caisson.CodeNotFound, "there is no program %s", name).WithHint("It runs on your machine, and is looked for in your PATH, but for what lies in the workspace.")
}

// yield has the serving process stop the sandbox for the hold, and takes the
// workspace. It tells whether the sandbox was stopped also where it fails.
func (h *Host) yield(ctx context.Context, r caisson.Run, ws caisson.Workspace, hold Hold) (use *lockfile.Lock, stopped bool, err error) {
	conn, err := h.dialServing(ctx)
	if caisson.CodeOf(err) == caisson.CodeNotFound {
		return nil, false, caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is not open", r.ID).WithHint("`caisson sandbox start %s` opens it.", r.ID)
	}
	if err != nil {
		return nil, false, err
	}
	text := "it was stopped for a hold by " + hold.By + ": " + hold.Reason
	if _, _, err := h.patience().exchange(ctx, conn, servingRequest{Op: opYield, Run: r.ID, Text: text}, nil, nil); err != nil {
		return nil, false, servingError(err)
	}
	if use, err = h.occupy(ctx, ws, r.ID); err != nil {
		return nil, true, err
	}
	err = fault.Point("host.hold.yielded")
	if err == nil {
		err = h.noteHold(ctx, r.ID, text)
	}
	if err != nil {
		return nil, true, errors.Join(fmt.Errorf("note the hold: %w", err), use.Close())
	}
	return use, true, nil
}

// noteHold puts a hold into the record of its run, which nobody drives now.
func (h *Host) noteHold(ctx context.Context, id caisson.RunID, text string) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return err
	}
	drive, err := h.take(ctx, r, false)
	if err != nil {
		return err
	}
	err = h.Ledger.Append(ctx, drive, caisson.EventNote, map[string]any{"text": text})
	return errors.Join(err, h.Ledger.ReleaseLease(context.WithoutCancel(ctx), drive))
}

// held is how the command is started: it waits until its identity is on record,
// and is gone where this process ends before.
const heldScript = `read -r go <&3 && [ "$go" = go ] && exec 3<&- && exec "$@"; exit 125`

// workAlone runs the command.
func (h *Host) workAlone(ctx context.Context, ws caisson.Workspace, hold *Hold, program string, want HoldRequest) (Held, error) {
	done := Held{Run: hold.Run, Branch: ws.Branch}
	var err error
	if done.Before, err = h.workspaces.Tip(ctx, ws); err != nil {
		return done, err
	}
	ctx, cancel := untilSinceBoot(ctx, hold.Ends)
	defer cancel()
	gate, opener, err := os.Pipe()
	if err != nil {
		return done, err
	}
	defer opener.Close()
	terminal, given := foreground(want.Streams.In)
	command := process.Command{
		Path: "/bin/sh", Args: append([]string{"-c", heldScript, "sh", program}, want.Argv[1:]...), Env: process.Mark(os.Environ(), hold.Instance), Dir: ws.Path,
		Files: []*os.File{gate}, Attr: terminal,
	}
	if s := want.Streams; s.In != nil {
		command.Stdin = s.In
	}
	if s := want.Streams; s.Out != nil && s.Err != nil {
		command.Stdout, command.Stderr = s.Out, s.Err
	}
	defer given()
	running, err := command.Start(ctx)
	_ = gate.Close() // the command has its own
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		done.Over = true
		err = caisson.Errorf(caisson.CodeDeadline, "the hold's time of %s was over before its command began", want.For).WithHint("Give it more time with `--for`.")
	}
	if err != nil {
		return done, err
	}
	hold.Step, hold.Before, hold.Command = holdWorking, done.Before, &running.Identity
	if err = h.holds().write(*hold); err == nil {
		pass("host.hold.recorded")
		_, err = opener.WriteString("go\n")
	}
	if err != nil {
		_ = opener.Close() // then it ends
		_, waitErr := running.Wait()
		return done, errors.Join(err, waitErr)
	}
	awake := func() {}
	if terminal != nil {
		awake = keepAwake(running.Identity)
	}
	status, err := running.Wait()
	awake()
	pass("host.hold.worked")
	done.Exit = status.Code
	var leftErr error
	if err != nil { // it was ended, and what is cut off from it is too
		leftErr = endHeld(ctx, hold.Instance)
	}
	if caisson.CodeOf(err) == caisson.CodeDeadline {
		done.Over = true
		err = caisson.Errorf(caisson.CodeDeadline, "the hold's time of %s was over, and its command was ended", want.For).WithHint("Give it more time with `--for`. What it changed is in the workspace.")
	}
	return done, errors.Join(err, leftErr)
}

// endHeld ends what the command of a hold has left, in the time of restoring.
func endHeld(ctx context.Context, by caisson.InstanceID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoring)
	defer cancel()
	return process.EndMarked(ctx, by)
}

// awakePause is how soon a command goes on that was stopped at its terminal.
const awakePause = 200 * time.Millisecond

// keepAwake has a command go on that was stopped, as with Ctrl-Z: it has the
// terminal, and nobody at that could do it. end ends the watch.
func keepAwake(command caisson.ProcessIdentity) (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with end
		defer close(ended)
		ticker := time.NewTicker(awakePause)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			if process.Alive(command) == caisson.Alive && process.Stopped(command.PID) {
				_ = unix.Kill(-command.PID, unix.SIGCONT) // its group, which this process has not waited for yet
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// untilSinceBoot returns a context whose deadline is a time since boot. The timers
// of a context stand still while the machine sleeps.
func untilSinceBoot(ctx context.Context, ends time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, ends-process.SinceBoot())
	ctx, over := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for process.SinceBoot() < ends {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		over(context.DeadlineExceeded)
	}()
	return ctx, func() {
		over(nil)
		cancel()
		<-watched
	}
}

// foreground gives a command the person's terminal, where there is one: Ctrl-C is
// the command's then. back takes it again.
func foreground(in *os.File) (attr *unix.SysProcAttr, back func()) {
	if in == nil {
		return nil, func() {}
	}
	fd := int(in.Fd()) //nolint:gosec // a descriptor
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return nil, func() {} // no terminal, or not ours now
	}
	return &unix.SysProcAttr{Setpgid: true, Foreground: true, Ctty: fd}, func() { takeTerminal(fd, group) }
}

// reopen starts the sandbox again, and ends the hold. An error says that it is not
// open, or that its channel is not healthy; what else is amiss is no fault of the
// hold's, and may have been so before.
func (h *Host) reopen(ctx context.Context, hold Hold) (amiss []Finding, err error) {
	started, err := h.StartServed(ctx, hold.Run, StartOptions{})
	if endErr := h.holds().drop(string(hold.Workspace)); endErr != nil {
		return nil, errors.Join(err, endErr)
	}
	if err != nil {
		e := caisson.AsError(err)
		return nil, caisson.Errorf(e.Code, "the workspace is free again, but its sandbox was not started: %w", err).
			WithHint("%s", cmp.Or(e.HintText(), seeWhy(hold.Run)))
	}
	for _, f := range started.Findings {
		switch {
		case f.OK:
		case f.What == channelFinding:
			err = caisson.Errorf(caisson.CodeStateInvalid, "the workspace is free again, and its sandbox is open, but its channel is not healthy: %s", f.Says).
				WithHint("%s", cmp.Or(f.Fix, seeWhy(hold.Run)))
		default:
			amiss = append(amiss, f)
		}
	}
	return amiss, err
}

func seeWhy(run caisson.RunID) string {
	return fmt.Sprintf("See why: `caisson sandbox start %s`.", run)
}
