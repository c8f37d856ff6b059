//go:build linux

package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	// openBound is how long a set-up may take that needs a few milliseconds.
	openBound = 5 * time.Second
	// reportLimit bounds what a guest may answer.
	reportLimit = 256 << 10
)

// Open implements caisson.Engine.
func (e *Engine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	spec, err := sandbox.Check(spec)
	if err != nil {
		return nil, err
	}
	program, err := e.guest()
	if err != nil {
		return nil, err
	}
	grouped := make(chan *process.Group, 1)
	go func() { // takes as long as the plan
		groups, _ := e.cgroups() // nil: the report says that there is none
		grouped <- groups.Make(process.GroupSpec{ID: spec.ID, Limits: spec.Limits})
	}()
	l, u, err := e.lay(spec)
	b := &box{id: spec.ID, instance: e.opts.Instance, group: <-grouped, done: make(chan struct{}), closed: make(chan struct{})}
	if err != nil {
		return nil, errors.Join(layError(err), b.abandon())
	}
	defer l.close()
	if !b.group.Enforces(caisson.ControlPids) && u.outside != 0 {
		l.plan.Pids = spec.Limits.Pids
	}
	if !b.group.Enforces(caisson.ControlCPU) {
		l.plan.CPUs = spec.Limits.CPUs
	}
	err = b.begin(ctx, e, program, l, u)
	if b.process == nil {
		return nil, errors.Join(err, b.abandon())
	}
	if err == nil {
		err = b.prove(ctx, l, u, spec)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// layError gives a code to what the disk said meanwhile.
func layError(err error) error {
	if caisson.CodeOf(err) != caisson.CodeInternal {
		return err
	}
	return caisson.Errorf(caisson.CodePathInvalid, "a path cannot be lent to the sandbox: %w", err)
}

// begin starts the guest, held until it gets its plan, in its cgroups.
func (b *box) begin(ctx context.Context, e *Engine, program *os.File, l *layout, u user) error {
	stream, theirStream, err := pair("stream")
	if err != nil {
		return err
	}
	defer theirStream.Close()
	b.stream = stream
	control, theirControl, err := pair("control")
	if err != nil {
		return err
	}
	defer theirControl.Close()
	b.control = control
	attr := u.attributes()
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	err = b.group.Start(attr, func() error {
		child, err := e.start(program, append([]*os.File{theirStream, theirControl}, l.trees...), attr)
		if err != nil {
			return refusedStart(err)
		}
		b.process = child
		go b.watch() // ends with the guest
		return nil
	})
	if err != nil && caisson.CodeOf(err) == caisson.CodeInternal {
		return b.lost("limit the guest", err)
	}
	return err
}

func cancelled(ctx context.Context) error {
	return caisson.Errorf(caisson.CodeCancelled, "cancelled before the sandbox was open: %w", context.Cause(ctx))
}

// pair makes a connected pair; ours can be waited for with deadlines.
func pair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, nil, caisson.Errorf(caisson.CodeInternal, "make %s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// prove lets the set-up run, judges its report and greets the guest.
func (b *box) prove(ctx context.Context, l *layout, u user, spec caisson.SandboxSpec) error {
	var err error
	if b.root, err = process.Of(b.process.Pid); err != nil {
		return b.lost("read identity of the guest", err)
	}
	if dirs := b.group.Dirs(); len(dirs) > 0 {
		b.root.Cgroup = dirs[0]
	}
	greeted := b.greet(ctx, l, spec) // it is answered once the set-up has ended
	report, err := b.setUp(ctx, l.plan)
	if err != nil {
		_ = b.process.Kill() // it may have ended by itself
		if <-greeted == nil {
			return errors.Join(err, b.client.Close())
		}
		return err
	}
	if err := <-greeted; err != nil {
		return err
	}
	b.isolation = isolation(report, b.group, u)
	return sandbox.Enforce(b.isolation, spec.Require)
}

// greet says hello to the guest; the client is there when it returned nil.
func (b *box) greet(ctx context.Context, l *layout, spec caisson.SandboxSpec) <-chan error {
	opts := guest.Options{
		Workspace: l.plan.Workspace, Env: merge(environment(l.plan, spec)), Limits: spec.Limits, Root: b.root,
		Identify: process.Within(b.root), OOM: b.group.OOM(),
	}
	greeted := make(chan error, 1)
	go func() { // ends with the greeting, which is bounded
		var err error
		b.client, err = guest.Connect(ctx, b.stream, opts)
		greeted <- err
	}()
	return greeted
}

func (b *box) lost(what string, err error) error {
	return caisson.Errorf(caisson.CodeSandboxLost, "%s: %w", what, err)
}

// setUp sends the plan and reads the report.
func (b *box) setUp(ctx context.Context, p plan.Plan) (plan.Report, error) {
	defer b.control.Close()
	var report plan.Report
	stop := context.AfterFunc(ctx, func() { _ = b.control.SetDeadline(time.Now()) })
	defer stop()
	_ = b.control.SetDeadline(time.Now().Add(openBound)) // a socket has deadlines
	raw, err := json.Marshal(p)
	if err == nil {
		_, err = b.control.Write(raw)
	}
	if err == nil {
		err = shutdownWrite(b.control)
	}
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(b.control, reportLimit))
	}
	if err == nil {
		err = json.Unmarshal(raw, &report)
	}
	switch {
	case ctx.Err() != nil:
		return report, cancelled(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return report, caisson.Errorf(caisson.CodeIsolationUnavailable, "the sandbox was not set up within %v", openBound)
	case err != nil:
		return report, b.lost("set up the sandbox", err)
	case report.Failed != "":
		return report, refusedSetUp(report)
	}
	return report, nil
}

func shutdownWrite(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("end plan: %w", failed)
	}
	return nil
}
