package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

const (
	// defaultGrace is between SIGTERM and SIGKILL for a program of the host.
	defaultGrace = 3 * time.Second
	// defaultDrain is how long output is waited for after the program has ended,
	// when something that it left holds the pipe.
	defaultDrain = 200 * time.Millisecond
	// endBound is how long a killed tree may take to be gone.
	endBound = 2 * time.Second
)

// Command is a program of the host. It is started without a shell, in a session
// of its own, with exactly the environment given.
type Command struct {
	Path   string   // absolute
	Args   []string // after the program's name
	Env    []string
	Dir    string
	Stdin  io.Reader  // nil: /dev/null
	Stdout io.Writer  // nil: discarded
	Stderr io.Writer  // nil: discarded; the same value as Stdout keeps the order
	Files  []*os.File // become descriptors 3, 4, …
	Grace  time.Duration
	Drain  time.Duration        // how long what it wrote is waited for after its end; 0: 200 ms. See Status.Cut
	Memory int64                // bytes that each of its processes may have of its own, files mapped to read not counted; 0: as many as the caller
	Attr   *syscall.SysProcAttr // changed: Setsid is set unless Setpgid is
}

// Status is how a program ended.
type Status struct {
	Code   int // 128+n for a signal
	Signal int
	CPU    time.Duration
	MaxRSS int64 // bytes
	Wall   time.Duration
	// Cut: its output was not delivered to the end in time, as something that it
	// left holds the pipe, or as this process was kept from reading.
	Cut bool
}

// Running is a program that was started.
type Running struct {
	// Identity names it for later processes.
	Identity caisson.ProcessIdentity
	cmd      *exec.Cmd
	ctx      context.Context //nolint:containedctx // of Start, as in os/exec
	grace    time.Duration
	started  time.Time
}

// Run starts the program and waits for it; see Start and Wait.
func (c Command) Run(ctx context.Context) (Status, error) {
	r, err := c.Start(ctx)
	if err != nil {
		return Status{}, err
	}
	return r.Wait()
}

// Start starts the program. CodeNotFound where there is none. When ctx ends, the
// program and its descendants get SIGTERM and, after the grace, SIGKILL. The
// caller must call Wait.
func (c Command) Start(ctx context.Context) (*Running, error) {
	if err := ctx.Err(); err != nil {
		return nil, caisson.Errorf(caisson.CodeCancelled, "%s was cancelled before it began: %w", c.Path, context.Cause(ctx))
	}
	grace := c.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	attr := syscall.SysProcAttr{}
	if c.Attr != nil {
		attr = *c.Attr
	}
	attr.Setsid = !attr.Setpgid
	cmd := &exec.Cmd{
		Path: c.Path, Args: append([]string{c.Path}, c.Args...), Env: append([]string{}, c.Env...), Dir: c.Dir,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: c.Files, SysProcAttr: &attr,
	}
	if cmd.WaitDelay = c.Drain; c.Drain == 0 {
		cmd.WaitDelay = defaultDrain
	}
	r := &Running{cmd: cmd, ctx: ctx, grace: grace, started: time.Now()}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, caisson.Errorf(caisson.CodeNotFound, "the program %s is not there: %w", c.Path, err)
		}
		return nil, caisson.Errorf(caisson.CodeInternal, "start %s: %w", c.Path, err)
	}
	id, err := here()
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if c.Memory > 0 { // it runs already, and cannot have taken much
		most := &unix.Rlimit{Cur: uint64(c.Memory), Max: uint64(c.Memory)}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, most, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("limit %s: %w", c.Path, err), cmd.Process.Kill(), cmd.Wait())
		}
	}
	// It cannot be gone: it is ours to reap. It may have ended.
	p, _ := proctree.Of(cmd.Process.Pid)
	id.PID, id.Start = cmd.Process.Pid, p.Start
	r.Identity = id
	return r, nil
}

// Wait returns when the program has ended and its output was delivered. Where
// ctx ended first, it returns with CodeCancelled (CodeDeadline for a deadline)
// when the program and all its descendants are gone, within the grace and a
// moment. A program that says it did not succeed is no error.
func (r *Running) Wait() (Status, error) {
	ended, stopped := make(chan struct{}), make(chan error, 1)
	unhook := context.AfterFunc(r.ctx, func() { stopped <- r.stop(ended) })
	err := r.cmd.Wait()
	close(ended)
	status := r.status()
	status.Cut = errors.Is(err, exec.ErrWaitDelay)
	if !unhook() {
		stopErr := <-stopped // bounded by the grace and endBound
		code := caisson.CodeCancelled
		if errors.Is(r.ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(r.ctx), context.DeadlineExceeded) {
			code = caisson.CodeDeadline
		}
		return status, caisson.Errorf(code, "%s was stopped: %w", r.cmd.Path, errors.Join(context.Cause(r.ctx), stopErr))
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && !status.Cut {
		return status, caisson.Errorf(caisson.CodeInternal, "run %s: %w", r.cmd.Path, err)
	}
	return status, nil
}

// stop ends the program and what it started: all that is there when it begins,
// and all that comes from those.
func (r *Running) stop(ended <-chan struct{}) error {
	tree := []proctree.Process{{PID: r.Identity.PID, Start: r.Identity.Start}}
	if all, err := proctree.All(); err == nil {
		tree = append(tree, proctree.Below(all, r.Identity.PID, nil)...)
	}
	for _, p := range tree {
		p.Signal(unix.SIGTERM)
	}
	timer := time.NewTimer(r.grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endBound)
	defer cancel()
	var failed error
	for _, p := range tree {
		id := r.Identity
		id.PID, id.Start = p.PID, p.Start
		failed = errors.Join(failed, EndTree(ctx, id))
	}
	return failed
}

func (r *Running) status() Status {
	st := Status{Wall: time.Since(r.started)}
	state := r.cmd.ProcessState
	if state == nil {
		return st
	}
	st.Code, st.CPU = state.ExitCode(), state.UserTime()+state.SystemTime()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		st.Signal = int(ws.Signal())
		st.Code = 128 + st.Signal
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		st.MaxRSS = usage.Maxrss << 10
	}
	return st
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
