//go:build linux

package namespace

import (
	"context"
	"errors"
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// box implements caisson.Sandbox. Its first process is the guest: when that has
// ended, the kernel has ended all others of its pid namespace.
type box struct{ *layout.Box }

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
		groups, _ := e.residue.Cgroups() // nil: the report says that there is none
		grouped <- groups.Make(process.GroupSpec{ID: spec.ID, Limits: spec.Limits})
	}()
	l, u, err := e.lender.Lay(spec)
	b := &box{}
	b.Box = layout.NewBox(layout.BoxOptions{
		Engine: Name, Instance: e.opts.Instance, Spec: spec, Group: <-grouped, End: b.end, CutOff: func() { _ = b.end() },
	})
	if err != nil {
		return nil, errors.Join(err, b.Abandon())
	}
	defer l.Close()
	if err = b.OpenOutlet(l); err == nil {
		l.Floor(b.Group, spec.Limits, u)
		err = b.begin(ctx, e.program, l, u)
	}
	if b.Process == nil {
		return nil, errors.Join(err, b.Abandon())
	}
	if err == nil {
		err = b.prove(ctx, l, u)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// begin starts the guest, held until it gets its plan, in its cgroups.
func (b *box) begin(ctx context.Context, program *layout.Program, l *layout.Layout, u layout.User) error {
	theirs, err := b.Pairs()
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return layout.Cancelled(ctx)
	}
	attr := l.Attributes(u)
	files := append(append(append([]*os.File{}, theirs...), l.Outlet), l.Trees...) // not ours to close here: l does
	err = b.Start(attr, func() (*os.Process, error) {
		child, err := program.Start(files, attr)
		if err != nil {
			return nil, layout.RefusedStart(err)
		}
		return child, nil
	})
	if b.Process != nil {
		go b.watch() // ends with the guest
	}
	return err
}

// prove lets the set-up run, judges its report and greets the guest.
func (b *box) prove(ctx context.Context, l *layout.Layout, u layout.User) error {
	root, err := process.Of(b.Process.Pid)
	if err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "read identity of the guest: %w", err)
	}
	b.Know(root)
	return b.Prove(ctx, l.Plan, layout.Environment(l.Plan, b.Spec), func(r plan.Report) caisson.Isolation {
		return layout.Isolation(Name, r, b.Group, u)
	})
}

func (b *box) watch() {
	_, err := b.Process.Wait()
	b.Ended(err)
}

func (b *box) end() error {
	_ = b.Process.Kill() // it may have ended by itself
	return nil
}
