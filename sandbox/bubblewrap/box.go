//go:build linux

package bubblewrap

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
	"github.com/caisson-run/caisson/internal/proctree"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// box implements caisson.Sandbox.
type box struct {
	id       caisson.SandboxID
	instance caisson.InstanceID
	group    *process.Group
	attr     *syscall.SysProcAttr
	process  *os.Process             // bwrap, which waits for its child
	wrapper  caisson.ProcessIdentity // bwrap too
	stream   *os.File                // the client's once it is connected
	control  *os.File
	outlet   *os.File // the host's end of the way out, until the client has it
	info     *os.File // bwrap says here who its child is
	gate     *os.File // and holds it until something comes from here
	said     *os.File // what bwrap complains
	client   *guest.Client

	root      caisson.ProcessIdentity // the guest
	pidfd     int                     // of the guest, -1 before it is known
	isolation caisson.Isolation

	done   chan struct{} // bwrap and the guest have ended and their cgroups are removed
	undone error         // why they are not; set before done is closed

	closing sync.Once
	closed  chan struct{}
	failed  error
}

func newBox(id caisson.SandboxID, instance caisson.InstanceID, group *process.Group) *box {
	return &box{id: id, instance: instance, group: group, pidfd: -1, done: make(chan struct{}), closed: make(chan struct{})}
}

// know remembers a guest that was proved.
func (b *box) know(guest caisson.ProcessIdentity) error {
	fd, err := unix.PidfdOpen(guest.PID, 0)
	if err == nil {
		var now caisson.ProcessIdentity
		if now, err = process.First(b.process.Pid, guest.PID); err == nil && now != guest {
			err = unix.ESRCH
		}
	}
	if err != nil {
		if fd > 0 {
			unix.Close(fd)
		}
		return caisson.Errorf(caisson.CodeSandboxLost, "the guest ended before it began: %w", err)
	}
	b.pidfd, b.root = fd, guest
	if dirs := b.group.Dirs(); len(dirs) > 0 {
		b.root.Cgroup = dirs[0]
	}
	return nil
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
		Leftovers: b.group.Dirs(), Isolation: b.isolation, At: time.Now().UTC(),
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

// ended follows bwrap's end, which waits for the guest's; where somebody ended
// bwrap, the kernel ends the guest for it.
func (b *box) ended(err error) {
	defer close(b.done)
	if b.pidfd >= 0 {
		err = errors.Join(err, b.awaitGuest())
	}
	b.undone = errors.Join(err, b.group.Remove())
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
			return caisson.Errorf(caisson.CodeOrphanAlive, "process %d, the first of sandbox %s, does not end", b.root.PID, b.id)
		default:
			return nil
		}
	}
}

// endCutOff ends a guest that was cut off: one that lies does not end by itself.
func (b *box) endCutOff() {
	<-b.client.Done()
	_ = process.Signal(b.root, unix.SIGKILL) // it may have ended by itself
}

// Close implements caisson.Sandbox.
func (b *box) Close() error {
	b.closing.Do(func() {
		defer close(b.closed)
		err := b.kill()
		if b.client != nil {
			_ = b.client.Close() // always nil
		} else {
			b.release()
		}
		select {
		case <-b.done:
			b.failed = errors.Join(err, b.undone)
		case <-time.After(2 * layout.EndBound):
			b.failed = caisson.Errorf(caisson.CodeOrphanAlive, "bwrap, process %d of sandbox %s, does not end though it was killed", b.process.Pid, b.id)
		}
	})
	<-b.closed
	return b.failed
}

// kill ends the guest, which is the end of all in the box, and then of bwrap. A
// bwrap that never said whom it started is ended with all that it started.
func (b *box) kill() error {
	if b.root.PID == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), layout.EndBound) // the caller's may have ended
		defer cancel()
		var err error
		if b.wrapper.PID != 0 { // else it ended before it could be looked at
			err = process.EndTree(ctx, b.wrapper)
		}
		return errors.Join(err, b.group.Kill(ctx))
	}
	proctree.Process{PID: b.root.PID, Start: b.root.Start}.Signal(unix.SIGKILL) // it may have ended by itself
	select {
	case <-b.done:
	case <-time.After(followBound):
		_ = b.process.Kill() // it may have ended in this moment
	}
	return nil
}

// followBound is how long bwrap may take to follow its child.
const followBound = time.Second

// release closes what the box and bwrap were talked to with.
func (b *box) release() {
	for _, f := range []*os.File{b.stream, b.control, b.outlet, b.info, b.gate} {
		if f != nil {
			f.Close() // a second time is no harm
		}
	}
}

// abandon removes what was made for a bwrap that did not start.
func (b *box) abandon() error {
	b.release()
	if b.said != nil {
		b.said.Close()
	}
	return b.group.Remove()
}
