//go:build linux

package landlock

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// box implements caisson.Sandbox.
type box struct {
	id       caisson.SandboxID
	instance caisson.InstanceID
	dir      *dir
	group    *process.Group
	process  *os.Process
	stream   *os.File // the client's once it is connected
	control  *os.File
	client   *guest.Client

	root      caisson.ProcessIdentity
	isolation caisson.Isolation

	done   chan struct{} // the guest and all in its cgroups have ended, and nothing is left
	undone error         // why something is; set before done is closed

	closing sync.Once
	closed  chan struct{}
	failed  error
}

// Open implements caisson.Engine.
func (e *Engine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	spec, err := sandbox.Check(spec)
	if err != nil {
		return nil, err
	}
	if err := layout.Unsupported(Name, spec); err != nil {
		return nil, err
	}
	if what := layout.Unshowable(spec); what != "" {
		return nil, caisson.Errorf(caisson.CodeUnsupported, "the engine %s cannot show %s", Name, what).
			WithHint("It has no file tree of its own: lend it at its own path, or use another engine.")
	}
	if ctx.Err() != nil {
		return nil, cancelled(ctx)
	}
	own, err := e.makeDir(spec.ID)
	if err != nil {
		return nil, err
	}
	groups, _ := e.cgroups() // nil: the report says that there is none
	b := &box{
		id: spec.ID, instance: e.opts.Instance, dir: own, done: make(chan struct{}), closed: make(chan struct{}),
		group: groups.Make(process.GroupSpec{ID: spec.ID, Limits: spec.Limits, Kill: true}),
	}
	p := layout.Bare(spec, own.path)
	if !b.group.Enforces(caisson.ControlCPU) {
		p.CPUs = spec.Limits.CPUs
	}
	err = b.begin(e.program)
	if b.process == nil {
		return nil, errors.Join(err, b.abandon())
	}
	if err == nil {
		err = b.prove(ctx, p, spec)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func cancelled(ctx context.Context) error {
	return caisson.Errorf(caisson.CodeCancelled, "cancelled before the sandbox was open: %w", context.Cause(ctx))
}

// begin starts the guest, held until it gets its plan, in its cgroups.
func (b *box) begin(program *layout.Program) error {
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
	attr := &syscall.SysProcAttr{Setsid: true}
	err = b.group.Start(attr, func() error {
		child, err := program.StartAs(plan.BareArgument, []*os.File{theirStream, theirControl}, attr)
		if err != nil {
			return caisson.Errorf(caisson.CodeIsolationUnavailable, "the guest cannot be started: %w", err)
		}
		b.process = child
		go b.watch() // ends with the guest
		return nil
	})
	if err != nil && caisson.CodeOf(err) == caisson.CodeInternal {
		return caisson.Errorf(caisson.CodeSandboxLost, "limit the guest: %w", err)
	}
	return err
}

// prove lets the guest restrict itself, judges its report and greets it.
func (b *box) prove(ctx context.Context, p plan.Plan, spec caisson.SandboxSpec) error {
	var err error
	if b.root, err = process.Of(b.process.Pid); err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "read identity of the guest: %w", err)
	}
	if dirs := b.group.Dirs(); len(dirs) > 0 {
		b.root.Cgroup = dirs[0]
	}
	report, err := layout.Exchange(ctx, b.control, p)
	if err != nil {
		return err
	}
	b.client, err = guest.Connect(ctx, b.stream, guest.Options{
		Workspace: p.Workspace, Env: layout.BareEnvironment(p, spec, b.dir.path), Limits: spec.Limits, Root: b.root,
		Identify: process.Within(b.root), OOM: b.group.OOM(),
	})
	if err != nil {
		return err
	}
	b.isolation = isolation(report, b.group, spec)
	return sandbox.Enforce(b.isolation, spec.Require)
}

// ID implements caisson.Sandbox.
func (b *box) ID() caisson.SandboxID { return b.id }

// Isolation implements caisson.Sandbox.
func (b *box) Isolation() caisson.Isolation { return b.isolation }

// Record implements caisson.Sandbox.
func (b *box) Record() caisson.SandboxRecord {
	root := b.root
	state := caisson.SandboxRunning
	select {
	case <-b.done:
		state = caisson.SandboxStopped
	default:
	}
	return caisson.SandboxRecord{
		ID: b.id, Instance: b.instance, Engine: Name, State: state, Guest: &root,
		Leftovers: append(b.group.Dirs(), b.dir.path), Isolation: b.isolation, At: time.Now().UTC(),
	}
}

// Hold implements caisson.Sandbox.
func (b *box) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	return b.client.Hold(ctx, cmd)
}

// Files implements caisson.Sandbox.
func (b *box) Files() caisson.Files { return b.client.Files() }

// Done implements caisson.Sandbox.
func (b *box) Done() <-chan struct{} { return b.done }

// watch sees the guest's end, and ends what it has left.
func (b *box) watch() {
	defer close(b.done)
	_, err := b.process.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), layout.EndBound) // whoever opened it may be gone
	defer cancel()
	b.undone = errors.Join(err, b.group.Kill(ctx), b.group.Remove(), b.dir.remove())
}

// Close implements caisson.Sandbox.
func (b *box) Close() error {
	b.closing.Do(func() {
		defer close(b.closed)
		if b.client != nil {
			_ = b.client.Close() // always nil
		} else {
			_ = b.process.Kill() // it serves nobody, so that it has started nothing
			b.stream.Close()
			b.control.Close()
		}
		err := b.end()
		select {
		case <-b.done:
			b.failed = errors.Join(err, b.undone)
		case <-time.After(2 * layout.EndBound):
			b.failed = caisson.Errorf(caisson.CodeOrphanAlive, "process %d, the first of sandbox %s, does not end though it was killed", b.process.Pid, b.id)
		}
	})
	<-b.closed
	return b.failed
}

// end waits for the guest to end all that it has started, and itself. One that
// does not is stopped, so that nothing new is started, and ended with all of it.
func (b *box) end() error {
	select {
	case <-b.done:
		return nil
	case <-time.After(followBound):
	}
	ctx, cancel := context.WithTimeout(context.Background(), layout.EndBound) // that of Open may have ended
	defer cancel()
	tree := b.root
	tree.Cgroup = "" // watch ends what is in there
	if tree.PID == 0 {
		return nil
	}
	return process.EndTree(ctx, tree)
}

// followBound is how long a guest may take to end by itself.
const followBound = time.Second

// abandon removes what was made for a guest that did not start.
func (b *box) abandon() error {
	for _, f := range []*os.File{b.stream, b.control} {
		if f != nil {
			f.Close()
		}
	}
	return errors.Join(b.group.Remove(), b.dir.remove())
}
