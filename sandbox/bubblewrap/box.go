//go:build linux

package bubblewrap

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// box implements caisson.Sandbox. Its Process is bwrap, which waits for the
// guest, its child.
type box struct {
	*layout.Box
	attr    *syscall.SysProcAttr
	wrapper caisson.ProcessIdentity // bwrap too
	info    *os.File                // bwrap says here who its child is
	gate    *os.File                // and holds it until something comes from here
	said    *os.File                // what bwrap complains
	pidfd   int                     // of the guest, -1 before it is known
}

func (e *Engine) newBox(spec caisson.SandboxSpec, group *process.Group) *box {
	b := &box{pidfd: -1}
	b.Box = layout.NewBox(layout.BoxOptions{
		Engine: Name, Instance: e.opts.Instance, Spec: spec, Group: group, End: b.end,
		CutOff: func() { _ = process.Signal(b.Root, unix.SIGKILL) }, // it may have ended by itself
	})
	return b
}

// know remembers a guest that was proved.
func (b *box) know(guest caisson.ProcessIdentity) error {
	fd, err := unix.PidfdOpen(guest.PID, 0)
	if err == nil {
		var now caisson.ProcessIdentity
		if now, err = process.First(b.Process.Pid, guest.PID); err == nil && now != guest {
			err = unix.ESRCH
		}
	}
	if err != nil {
		if fd > 0 {
			unix.Close(fd)
		}
		return caisson.Errorf(caisson.CodeSandboxLost, "the guest ended before it began: %w", err)
	}
	b.pidfd = fd
	b.Know(guest)
	return nil
}

// ended follows bwrap's end, which waits for the guest's; where somebody ended
// bwrap, the kernel ends the guest for it.
func (b *box) ended(err error) {
	if b.pidfd >= 0 {
		err = errors.Join(err, b.awaitGuest())
	}
	b.Ended(err)
}

func (b *box) awaitGuest() error {
	defer unix.Close(b.pidfd)
	for end := time.Now().Add(layout.EndBound); ; {
		set := []unix.PollFd{{Fd: int32(b.pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		n, err := unix.Poll(set, int(max(time.Until(end), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return caisson.Errorf(caisson.CodeOrphanAlive, "process %d, the first of sandbox %s, does not end", b.Root.PID, b.Spec.ID)
		default:
			return nil
		}
	}
}

// end ends the guest, which is the end of all in the box, and then of bwrap. A
// bwrap that never said whom it started is ended with all that it started.
func (b *box) end() error {
	if b.Root.PID == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), layout.EndBound) // the caller's may have ended
		defer cancel()
		var err error
		if b.wrapper.PID != 0 { // else it ended before it could be looked at
			err = process.EndTree(ctx, b.wrapper)
		}
		return errors.Join(err, b.Group.Kill(ctx))
	}
	proctree.Process{PID: b.Root.PID, Start: b.Root.Start}.Signal(unix.SIGKILL) // it may have ended by itself
	select {
	case <-b.Done():
	case <-time.After(followBound):
		_ = b.Process.Kill() // it may have ended in this moment
	}
	return nil
}

// followBound is how long bwrap may take to follow its child.
const followBound = time.Second

// release closes what bwrap was talked to by, once the box is open or has ended:
// bwrap goes on when the gate is closed.
func (b *box) release() {
	for _, f := range []*os.File{b.info, b.gate, b.said} {
		if f != nil {
			f.Close()
		}
	}
}

// abandon removes what was made for a bwrap that did not start.
func (b *box) abandon() error {
	b.release()
	return b.Abandon()
}
