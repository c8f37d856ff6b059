//go:build linux

package layout

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// EndBound is how long a killed guest may take to be gone. The kernel ends its
// whole namespace first; a process in uninterruptible sleep can hold it.
const EndBound = 10 * time.Second

// BoxOptions are what an engine says of a box that it opens.
type BoxOptions struct {
	Engine   string
	Instance caisson.InstanceID
	Spec     caisson.SandboxSpec // checked
	Group    *process.Group
	// Dirs are what the box has on the host beside its cgroups, for its record.
	Dirs []string
	// End ends all that runs in the box, however far it has come since Start. It
	// need not wait for that: Close does.
	End func() error
	// CutOff ends a guest whose client has let go of it: one that lies does not
	// end by itself. Nil where its end would not be the end of all.
	CutOff func()
}

// Box is the life of a box whose guest was started by this process, the same in
// every engine of this kernel. The engine's own box embeds it: it starts the
// guest, calls Know and Prove, and Ended when all of it has ended. Then Box
// implements caisson.Sandbox.
type Box struct {
	BoxOptions
	// Process is what Start has started: the guest, or what wraps it.
	Process *os.Process
	// Root is the guest, once Know was told.
	Root caisson.ProcessIdentity

	stream  *os.File // the client's once it is connected
	control *os.File
	outlet  *os.File // the host's end of the way out, until the client has it
	client  *guest.Client
	mask    *mask.Mask  // nil where nothing is hidden
	inside  mask.Client // the client, which hides first where there is something to hide

	isolation caisson.Isolation

	gone   chan struct{} // nothing runs
	going  sync.Once
	done   chan struct{} // nothing runs, and the cgroups are removed
	undone error         // why that is not so; set before done is closed

	closing sync.Once
	closed  chan struct{}
	failed  error
}

// NewBox returns a box of which nothing was started. Abandon it, or Start and
// Close it.
func NewBox(opts BoxOptions) *Box {
	return &Box{BoxOptions: opts, gone: make(chan struct{}), done: make(chan struct{}), closed: make(chan struct{})}
}

// Pairs makes what the guest is talked to by, and returns its ends, in the order
// of its descriptors from plan.StreamFD on; the caller closes them once the
// guest has its own, also after an error.
func (b *Box) Pairs() ([]*os.File, error) {
	var theirs []*os.File
	for _, p := range []struct {
		name string
		ours **os.File
	}{{"stream", &b.stream}, {"control", &b.control}} {
		ours, inside, err := pair(p.name)
		if err != nil {
			return theirs, err
		}
		*p.ours, theirs = ours, append(theirs, inside)
	}
	return theirs, nil
}

// OpenOutlet makes the socket of the way out and plans it, if the spec has one;
// l.Outlet becomes the guest's plan.OutletFD.
func (b *Box) OpenOutlet(l *Layout) error {
	if b.Spec.Egress == nil {
		return nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "make the socket of the way out: %w", err)
	}
	b.outlet, l.Outlet = os.NewFile(uintptr(fds[0]), "outlet"), os.NewFile(uintptr(fds[1]), "outlet")
	l.Plan.Outlet = &outlet.Options{Ports: b.Spec.Egress.Ports()}
	return nil
}

// Start calls begin in the box's cgroups, where what it starts with attr is
// born. Process is nil where nothing was started.
func (b *Box) Start(attr *syscall.SysProcAttr, begin func() (*os.Process, error)) error {
	err := b.Group.Start(attr, func() (err error) {
		b.Process, err = begin()
		return err
	})
	if err != nil && caisson.CodeOf(err) == caisson.CodeInternal {
		return caisson.Errorf(caisson.CodeSandboxLost, "limit the guest: %w", err)
	}
	return err
}

// Know says which process the guest is, whose identity the caller has proved.
func (b *Box) Know(guest caisson.ProcessIdentity) {
	b.Root = guest
	if dirs := b.Group.Dirs(); len(dirs) > 0 {
		b.Root.Cgroup = dirs[0]
	}
}

// Prove sends the plan, greets the guest, which answers once the set-up has
// ended, has judge make a report of what the guest found, and hides what is to be
// hidden. CodeIsolationUnavailable where a required control is not enforced.
func (b *Box) Prove(ctx context.Context, p plan.Plan, env []string, judge func(plan.Report) caisson.Isolation) error {
	if oom := b.Group.OOM(); oom != nil {
		_, _ = oom() // opens the count while the guest begins; it is read anew for each command
	}
	greeting, cancel := context.WithCancel(ctx)
	defer cancel()
	greeted := b.greet(greeting, p, env)
	report, err := exchange(ctx, b.control, p)
	if err != nil {
		cancel()
		<-greeted //nolint:errcheck // what went wrong is known
		return err
	}
	if err := <-greeted; err != nil {
		return err
	}
	if b.CutOff != nil {
		go func() { // ends with the client
			<-b.client.Done()
			b.CutOff()
		}()
	}
	b.isolation = judge(report)
	if b.Spec.Egress != nil {
		b.isolation = sandbox.WithEgress(b.isolation, b.client.Mode())
	}
	if err := sandbox.Enforce(b.isolation, b.Spec.Require); err != nil {
		return err
	}
	return b.hide(ctx)
}

// greet says hello to the guest; the client is there when it returned nil.
func (b *Box) greet(ctx context.Context, p plan.Plan, env []string) <-chan error {
	opts := guest.Options{
		Workspace: p.Workspace, Env: env, Limits: b.Spec.Limits, Root: b.Root,
		Identify: process.Within(b.Root), OOM: b.Group.OOM(), Egress: b.Spec.Egress, Outlet: b.outlet,
	}
	b.outlet = nil // the client's from here on
	greeted := make(chan error, 1)
	go func() { // ends with the greeting, which is bounded
		client, err := guest.Connect(ctx, b.stream, opts)
		if err == nil {
			b.client, b.inside = client, client
		}
		greeted <- err
	}()
	return greeted
}

// masks are at the top of every box that hides something: an empty file and an
// empty directory that nobody may read.
var masks = plan.Mask{File: "/.hidden-file", Dir: "/.hidden-dir"}

// hide masks what the spec hides, before anything runs.
func (b *Box) hide(ctx context.Context) (err error) {
	if len(b.Spec.Hide) == 0 || b.Spec.Workspace == "" {
		return nil
	}
	b.mask, err = mask.Open(mask.Options{Workspace: b.Spec.Workspace, Patterns: b.Spec.Hide, Guest: b.Root.PID, File: masks.File, Dir: masks.Dir})
	if err == nil {
		b.inside, err = mask.Guard(ctx, b.mask, b.client, b.Spec.GitDir != "")
	}
	return err
}

// ID implements caisson.Sandbox.
func (b *Box) ID() caisson.SandboxID { return b.Spec.ID }

// Isolation implements caisson.Sandbox.
func (b *Box) Isolation() caisson.Isolation { return b.isolation }

// Record implements caisson.Sandbox.
func (b *Box) Record() caisson.SandboxRecord {
	root := b.Root
	state := caisson.SandboxRunning
	select {
	case <-b.done:
		state = caisson.SandboxStopped
	default:
	}
	return caisson.SandboxRecord{
		ID: b.Spec.ID, Instance: b.Instance, Engine: b.Engine, State: state, Guest: &root,
		Leftovers: append(b.Group.Dirs(), b.Dirs...), Isolation: b.isolation, At: time.Now().UTC(),
	}
}

// Hold implements caisson.Sandbox.
func (b *Box) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	return b.inside.Hold(ctx, cmd)
}

// Files implements caisson.Sandbox.
func (b *Box) Files() caisson.Files { return b.inside.Files() }

// Done implements caisson.Sandbox.
func (b *Box) Done() <-chan struct{} { return b.done }

// Gone says that nothing of the box runs any more. What it has on the host may
// still be being removed, which takes as long as it takes: Ended says when that
// is over. It may be left out.
func (b *Box) Gone() { b.going.Do(func() { close(b.gone) }) }

// Ended says that nothing of the box runs any more, with what went wrong on the
// way. It is called once.
func (b *Box) Ended(err error) {
	b.undone = errors.Join(err, b.Group.Remove())
	b.Gone()
	close(b.done)
}

// Close implements caisson.Sandbox. It returns when nothing of the box is left,
// or with CodeOrphanAlive when its processes take too long to end.
func (b *Box) Close() error {
	b.closing.Do(func() {
		defer close(b.closed)
		b.mask.Close()
		err := b.End()
		b.LetGo()
		select {
		case <-b.gone:
			<-b.done
			b.failed = errors.Join(err, b.undone)
		case <-time.After(2 * EndBound): // End and Ended have a bound each
			b.failed = caisson.Errorf(caisson.CodeOrphanAlive, "process %d, the first of sandbox %s, does not end though it was killed", b.Process.Pid, b.Spec.ID)
		}
	})
	<-b.closed
	return b.failed
}

// LetGo closes what the guest is talked to by; an honest one ends by that, with
// all that it has started. It may be called twice.
func (b *Box) LetGo() {
	if b.client != nil {
		_ = b.client.Close() // always nil
		return
	}
	for _, f := range []*os.File{b.stream, b.control, b.outlet} {
		if f != nil {
			f.Close()
		}
	}
}

// Serves tells whether the guest was greeted: it may have started something.
func (b *Box) Serves() bool { return b.client != nil }

// Abandon removes what was made for a box in which nothing was started.
func (b *Box) Abandon() error {
	b.LetGo()
	return b.Group.Remove()
}

// Cancelled is the error of a box that was not open yet when ctx ended.
func Cancelled(ctx context.Context) error {
	return caisson.Errorf(caisson.CodeCancelled, "cancelled before the sandbox was open: %w", context.Cause(ctx))
}
