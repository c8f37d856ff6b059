//go:build linux

package namespace

import (
	"context"
	"errors"
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// Open implements caisson.Engine.
func (e *Engine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	spec, err := sandbox.Check(spec)
	if err != nil {
		return nil, err
	}
	if _, err := e.program.Open(); err != nil { // missing: said before anything is made
		return nil, err
	}
	grouped := make(chan *process.Group, 1)
	go func() { // takes as long as the plan
		groups, _ := e.cgroups() // nil: the report says that there is none
		grouped <- groups.Make(process.GroupSpec{ID: spec.ID, Limits: spec.Limits})
	}()
	l, u, err := e.lender.Lay(spec)
	b := &box{id: spec.ID, instance: e.opts.Instance, group: <-grouped, done: make(chan struct{}), closed: make(chan struct{})}
	if err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	defer l.Close()
	if b.outlet, err = l.OpenOutlet(spec); err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	if !b.group.Enforces(caisson.ControlPids) && u.Outside != 0 {
		l.Plan.Pids = spec.Limits.Pids
	}
	if !b.group.Enforces(caisson.ControlCPU) {
		l.Plan.CPUs = spec.Limits.CPUs
	}
	err = b.begin(ctx, e.program, l, u)
	if b.process == nil {
		return nil, errors.Join(err, b.abandon())
	}
	if err == nil {
		err = b.prove(ctx, l, u, spec)
	}
	if err == nil {
		err = b.hide(ctx, spec)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// begin starts the guest, held until it gets its plan, in its cgroups.
func (b *box) begin(ctx context.Context, program *layout.Program, l *layout.Layout, u layout.User) error {
	stream, theirStream, err := layout.Pair("stream")
	if err != nil {
		return err
	}
	defer theirStream.Close()
	b.stream = stream
	control, theirControl, err := layout.Pair("control")
	if err != nil {
		return err
	}
	defer theirControl.Close()
	b.control = control
	attr := l.Attributes(u)
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	err = b.group.Start(attr, func() error {
		child, err := program.Start(append([]*os.File{theirStream, theirControl, l.Outlet}, l.Trees...), attr)
		if err != nil {
			return layout.RefusedStart(err)
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

// prove lets the set-up run, judges its report and greets the guest.
func (b *box) prove(ctx context.Context, l *layout.Layout, u layout.User, spec caisson.SandboxSpec) error {
	var err error
	if b.root, err = process.Of(b.process.Pid); err != nil {
		return b.lost("read identity of the guest", err)
	}
	if dirs := b.group.Dirs(); len(dirs) > 0 {
		b.root.Cgroup = dirs[0]
	}
	greeted := b.greet(ctx, l, spec) // it is answered once the set-up has ended
	report, err := layout.Exchange(ctx, b.control, l.Plan)
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
	go b.endCutOff() // ends with the client
	b.isolation = layout.Isolation(Name, report, b.group, u)
	if spec.Egress != nil {
		b.isolation = sandbox.WithEgress(b.isolation, b.client.Mode())
	}
	return sandbox.Enforce(b.isolation, spec.Require)
}

// greet says hello to the guest; the client is there when it returned nil.
func (b *box) greet(ctx context.Context, l *layout.Layout, spec caisson.SandboxSpec) <-chan error {
	opts := guest.Options{
		Workspace: l.Plan.Workspace, Env: layout.Environment(l.Plan, spec), Limits: spec.Limits, Root: b.root,
		Identify: process.Within(b.root), OOM: b.group.OOM(), Egress: spec.Egress, Outlet: b.outlet,
	}
	b.outlet = nil // the client's from here on
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
