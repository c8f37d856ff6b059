//go:build linux

package namespace

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/layout"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// box implements caisson.Sandbox.
type box struct {
	id       caisson.SandboxID
	instance caisson.InstanceID
	group    *process.Group
	process  *os.Process
	stream   *os.File // the client's once it is connected
	control  *os.File
	outlet   *os.File // the host's end of the way out, until the client has it
	client   *guest.Client
	mask     *mask.Mask  // nil where nothing is hidden
	inside   mask.Client // the client, which hides first where there is something to hide

	root      caisson.ProcessIdentity
	isolation caisson.Isolation

	done   chan struct{} // the guest has ended and its cgroups are removed
	undone error         // why they are not; set before done is closed

	closing sync.Once
	closed  chan struct{}
	failed  error
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
	return b.inside.Hold(ctx, cmd)
}

// Files implements caisson.Sandbox.
func (b *box) Files() caisson.Files { return b.inside.Files() }

// Done implements caisson.Sandbox.
func (b *box) Done() <-chan struct{} { return b.done }

// watch sees the guest's end. When its first process has ended, the kernel has
// ended all others of the pid namespace.
func (b *box) watch() {
	defer close(b.done)
	_, err := b.process.Wait()
	b.undone = errors.Join(err, b.group.Remove())
}

// endCutOff ends a guest that was cut off: one that lies does not end by itself.
func (b *box) endCutOff() {
	<-b.client.Done()
	_ = b.process.Kill() // it may have ended by itself
}

// Close implements caisson.Sandbox.
func (b *box) Close() error {
	b.closing.Do(func() {
		defer close(b.closed)
		_ = b.process.Kill() // it may have ended by itself
		if b.mask != nil {
			b.mask.Close()
		}
		if b.client != nil {
			_ = b.client.Close() // always nil
		} else {
			b.stream.Close()
			b.control.Close()
			if b.outlet != nil {
				b.outlet.Close()
			}
		}
		select {
		case <-b.done:
			b.failed = b.undone
		case <-time.After(layout.EndBound):
			b.failed = caisson.Errorf(caisson.CodeOrphanAlive, "process %d, the first of sandbox %s, does not end though it was killed", b.process.Pid, b.id)
		}
	})
	<-b.closed
	return b.failed
}

// abandon removes what was made for a guest that did not start.
func (b *box) abandon() error {
	for _, f := range []*os.File{b.stream, b.control, b.outlet} {
		if f != nil {
			f.Close()
		}
	}
	return b.group.Remove()
}
