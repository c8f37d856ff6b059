//go:build linux

package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

const (
	// publishBound is how long bwrap may take to say who its child is, which
	// takes it a few milliseconds.
	publishBound = 5 * time.Second
	// infoLimit bounds what it says, saidLimit what it complains.
	infoLimit, saidLimit = 64 << 10, 4 << 10
)

func (e *Engine) open(ctx context.Context, w *wrapper, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	spec, err := sandbox.Check(spec)
	if err != nil {
		return nil, err
	}
	if err := sandbox.Refuse(Name, spec, sandbox.Layers); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, layout.Cancelled(ctx)
	}
	program, err := e.program.Open()
	if err != nil {
		return nil, err
	}
	l, u, err := e.lender.Lay(spec)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	groups, _ := e.residue.Cgroups() // nil: the report says that there is none
	b := e.newBox(spec, groups.Make(process.GroupSpec{ID: spec.ID, Limits: spec.Limits}))
	if err := b.OpenOutlet(l); err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	l.Floor(b.Group, spec.Limits, u)
	err = b.begin(w, program, l, u)
	if b.Process == nil {
		return nil, errors.Join(err, b.abandon())
	}
	if err == nil {
		err = b.admit(ctx)
	}
	if err == nil {
		err = b.Prove(ctx, l.Plan, layout.Environment(l.Plan, spec), func(r plan.Report) caisson.Isolation { return isolation(r, b.Group, u) })
	}
	defer b.release()
	if err != nil {
		closeErr := b.Close() // then it has said all
		return nil, errors.Join(b.explain(err), closeErr)
	}
	return b, nil
}

// begin starts bwrap, held at its block descriptor, in the box's cgroups.
func (b *box) begin(w *wrapper, program *os.File, l *layout.Layout, u layout.User) error {
	a, err := arrange(l, u)
	if err != nil {
		return err
	}
	defer a.close()
	files, err := b.descriptors(w, program, l, a)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "start bwrap: %w", err)
	}
	if len(files)+len(a.files)+len(l.Trees) > process.FirstFreeFD-3 {
		return caisson.Errorf(caisson.CodePathInvalid, "too many paths are lent to the sandbox")
	}
	// Not ours to close here: a and l do.
	all := append(append(append([]*os.File{}, files...), a.files...), l.Trees...)
	started := make(chan error, 1)
	go b.watch(func() error { return b.Start(b.attributes(a), func() (*os.Process, error) { return b.start(all, a) }) }, started)
	return <-started
}

// wrapperArguments are what everybody may see.
func wrapperArguments() []string {
	return []string{"bwrap", "--args", fmt.Sprint(plan.ArgumentsFD), "--", fmt.Sprintf("/proc/self/fd/%d", plan.ProgramFD), plan.WrappedArgument}
}

// attributes: a session of its own for what bwrap is before it makes one.
func (b *box) attributes(a *arguments) *syscall.SysProcAttr {
	b.attr = &syscall.SysProcAttr{Setsid: true}
	if a.stage != nil {
		b.attr.Unshareflags = unix.CLONE_NEWNS // its mounts are private then
	}
	return b.attr
}

// start starts bwrap, or the stage that becomes it.
func (b *box) start(files []*os.File, a *arguments) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	program, argv := plan.WrapperFD, wrapperArguments()
	if a.stage != nil {
		program, argv = plan.ProgramFD, []string{"caisson-guest", plan.StageArgument}
	}
	child, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", program), argv, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: append([]*os.File{null, null, b.said}, files...), Sys: b.attr,
	})
	if err != nil {
		return nil, layout.RefusedStart(err)
	}
	if b.wrapper, err = process.Of(child.Pid); err != nil {
		err = caisson.Errorf(caisson.CodeIsolationUnavailable, "bwrap ended at once: %w", err)
	}
	return child, err
}

// descriptors returns what goes on from plan.StreamFD on, up to the files of a:
// all of it to be closed once bwrap has its own. The box keeps the other ends.
func (b *box) descriptors(w *wrapper, program *os.File, l *layout.Layout, a *arguments) ([]*os.File, error) {
	theirs, err := b.Pairs()
	if err != nil {
		return theirs, err
	}
	keep := func(ours **os.File, f *os.File, t *os.File, err error) error {
		if err == nil {
			*ours, theirs = f, append(theirs, t)
		}
		return err
	}
	if l.Outlet == nil { // what comes after it keeps its place
		if l.Outlet, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return theirs, err
		}
	}
	theirs, l.Outlet = append(theirs, l.Outlet), nil // closed with theirs
	args, err := memory("arguments", a.bytes())
	if err != nil {
		return theirs, err
	}
	theirs = append(theirs, args)
	if b.said, err = memory("said", nil); err != nil {
		return theirs, err
	}
	read, write, err := os.Pipe()
	if err := keep(&b.info, read, write, err); err != nil {
		return theirs, err
	}
	read, write, err = os.Pipe()
	if err := keep(&b.gate, write, read, err); err != nil {
		return theirs, err
	}
	for _, fd := range []int{int(w.file.Fd()), -1} {
		var f *os.File
		if fd < 0 {
			// Opened again: a lock on ours is not to be handed on.
			f, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", program.Fd()))
		} else if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			f = os.NewFile(uintptr(fd), w.path)
		}
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, f)
	}
	var stage []byte // nothing, where there is none
	if s := a.staged(); s != nil {
		stage = pack.Bytes(s)
	}
	f, err := memory("stage", stage)
	if err != nil {
		return theirs, err
	}
	return append(theirs, f), nil
}

func (a *arguments) staged() *plan.Stage {
	if a.stage != nil {
		a.stage.Arguments = wrapperArguments()
	}
	return a.stage
}

// admit waits until bwrap has said who its child is, proves that, and lets the
// child go on. Until then it is held; a bwrap that says nothing is ended.
func (b *box) admit(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = b.info.SetReadDeadline(time.Now()) })
	defer stop()
	said := layout.Within(ctx, b.info, publishBound)
	var info struct {
		Child int `json:"child-pid"`
	}
	err := json.NewDecoder(io.LimitReader(said, infoLimit)).Decode(&info)
	switch {
	case ctx.Err() != nil:
		return layout.Cancelled(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return caisson.Errorf(caisson.CodeIsolationUnavailable, "bwrap did not say within %v what it had started, and was ended", publishBound).
			WithHint("Is it bubblewrap? Reinstall it, or use another engine.")
	case err != nil:
		return caisson.Errorf(caisson.CodeIsolationUnavailable, "bwrap could not make the sandbox")
	}
	guest, err := process.First(b.Process.Pid, info.Child)
	if err != nil {
		return caisson.Errorf(caisson.CodeIsolationUnavailable, "what bwrap says that it has started could not be proved: %w", err).
			WithHint("Is it bubblewrap? Reinstall it, or use another engine.")
	}
	if err := b.know(guest); err != nil {
		return err
	}
	if _, err := b.gate.Write([]byte{1}); err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "let the guest begin: %w", err)
	}
	return nil
}

// explain adds what bwrap said to an error that it may be the reason for.
func (b *box) explain(err error) error {
	var e *caisson.Error
	if !errors.As(err, &e) || e.Code != caisson.CodeIsolationUnavailable && e.Code != caisson.CodeSandboxLost {
		return err
	}
	raw := make([]byte, saidLimit)
	n, _ := b.said.ReadAt(raw, 0) // what there is
	said := strings.TrimSpace(strings.ToValidUTF8(string(raw[:n]), "?"))
	if said == "" {
		return err
	}
	explained := layout.RefusedStart(fmt.Errorf("%w: %s", err, said))
	if e.Hint != "" {
		explained.Hint = e.Hint
	}
	if explained.Hint == "" {
		explained = explained.WithHint("Run it by hand to see why: `bwrap --unshare-all --ro-bind / / true`; or use another engine.")
	}
	return explained
}

// watch starts bwrap and sees its end, all in one thread: with
// --die-with-parent the kernel ends it with the thread that has started it.
func (b *box) watch(start func() error, started chan<- error) {
	runtime.LockOSThread()
	err := start()
	if err != nil && b.Process == nil {
		runtime.UnlockOSThread()
		started <- err
		return
	}
	started <- err
	_, waitErr := b.Process.Wait()
	runtime.UnlockOSThread()
	b.ended(waitErr)
}
