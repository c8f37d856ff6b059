//go:build linux

package landlock

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// box implements caisson.Sandbox. Its guest's end is not the end of all that it
// has started.
type box struct {
	*layout.Box
	dir *dir
}

// Open implements caisson.Engine.
func (e *Engine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	spec, err := sandbox.Check(spec)
	if err != nil {
		return nil, err
	}
	if err := sandbox.Refuse(Name, spec, sandbox.Hide, sandbox.Layers, sandbox.Egress); err != nil {
		return nil, err
	}
	if what := layout.Unshowable(spec); what != "" {
		return nil, caisson.Errorf(caisson.CodeUnsupported, "the engine %s cannot show %s", Name, what).
			WithHint("It has no file tree of its own: lend it at its own path, or use another engine.")
	}
	if ctx.Err() != nil {
		return nil, layout.Cancelled(ctx)
	}
	p := layout.Bare(spec, e.dirOf(spec.ID))
	own, err := e.makeDir(spec.ID, p.Private)
	if err != nil {
		return nil, err
	}
	groups, _ := e.residue.Cgroups() // nil: the report says that there is none
	b := &box{dir: own}
	b.Box = layout.NewBox(layout.BoxOptions{
		Engine: Name, Instance: e.opts.Instance, Spec: spec, Dirs: []string{own.path}, End: b.end,
		Group: groups.Make(process.GroupSpec{ID: spec.ID, Limits: spec.Limits, Kill: true}),
	})
	if !b.Group.Enforces(caisson.ControlCPU) {
		p.CPUs = spec.Limits.CPUs
	}
	err = b.begin(e.program)
	if b.Process == nil {
		return nil, errors.Join(err, b.Abandon(), own.remove())
	}
	if err == nil {
		err = b.prove(ctx, p)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// begin starts the guest, held until it gets its plan, in its cgroups.
func (b *box) begin(program *layout.Program) error {
	theirs, err := b.Pairs()
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	err = b.Start(attr, func() (*os.Process, error) {
		child, err := program.StartAs(plan.BareArgument, theirs, attr)
		if err != nil {
			return nil, caisson.Errorf(caisson.CodeIsolationUnavailable, "the guest cannot be started: %w", err)
		}
		return child, nil
	})
	if b.Process != nil {
		go b.watch() // ends with the guest
	}
	return err
}

// prove lets the guest restrict itself, judges its report and greets it.
func (b *box) prove(ctx context.Context, p plan.Plan) error {
	root, err := process.Of(b.Process.Pid)
	if err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "read identity of the guest: %w", err)
	}
	b.Know(root)
	return b.Prove(ctx, p, layout.BareEnvironment(p, b.Spec, b.dir.path), func(r plan.Report) caisson.Isolation {
		return isolation(r, b.Group, b.Spec)
	})
}

// watch sees the guest's end, and ends what it has left.
func (b *box) watch() {
	_, err := b.Process.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), layout.EndBound) // whoever opened it may be gone
	defer cancel()
	err = errors.Join(err, b.Group.Kill(ctx))
	b.Gone()
	b.Ended(errors.Join(err, b.dir.remove())) // programs may have made a million files
}

// end has the guest end all that it has started, and itself. One that does not
// is stopped, so that nothing new is started, and ended with all of it.
func (b *box) end() error {
	if b.Serves() {
		b.LetGo()
	} else {
		_ = b.Process.Kill() // it has started nothing, and may have ended by itself
	}
	select {
	case <-b.Done():
		return nil
	case <-time.After(followBound):
	}
	if b.Root.PID == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), layout.EndBound) // that of Open may have ended
	defer cancel()
	tree := b.Root
	tree.Cgroup = "" // watch ends what is in there
	return process.EndTree(ctx, tree)
}

// followBound is how long a guest may take to end by itself.
const followBound = time.Second
