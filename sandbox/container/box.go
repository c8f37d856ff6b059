package container

import (
	"context"
	"errors"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// endBound is how long the engine may take to be rid of a container that was
// killed.
const endBound = 15 * time.Second

// box implements caisson.Sandbox.
type box struct {
	engine   *Engine
	client   *client.Client
	id       caisson.SandboxID
	instance string // of the engine
	info     system.Info
	commands bool // are to run in it

	staging   *staging
	user      user
	plans     *plans
	unheard   bool // what the engine did when it was asked for the container
	container string
	door      *door   // where the guest comes for the way out; nil where there is none
	stream    *stream // the guest client's once that is connected
	guest     *guest.Client

	live   bool        // files can be hidden in it while it runs
	fixed  *mask.Fixed // what was hidden when it was made, where they cannot; else nil
	inside mask.Client // the guest, which hides first where there is something to hide
	unmask func()      // nil where nothing is hidden

	shared    bool // the engine's kernel is ours
	root      caisson.ProcessIdentity
	oom       func() (int64, error)
	isolation caisson.Isolation

	mu     sync.Mutex
	ending caisson.SandboxState // its state once it has ended
	done   chan struct{}

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
	root, state := b.root, caisson.SandboxRunning
	b.mu.Lock()
	if b.ending != "" {
		state = b.ending
	}
	b.mu.Unlock()
	return caisson.SandboxRecord{
		ID: b.id, Instance: b.engine.opts.Instance, Engine: b.engine.opts.Name, EngineInstance: b.instance, State: state, Guest: &root,
		Leftovers: []string{b.staging.dir}, Isolation: b.isolation, At: time.Now().UTC(),
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

// watch sees the guest's end, which is the end of all inside: its stream ends
// with the container, and when the engine goes away. In the first case the
// sandbox has stopped, in the second it is lost; either way it can be opened
// anew as soon as the engine answers.
func (b *box) watch() {
	<-b.guest.Done()
	ctx, cancel := bound(context.Background(), lookBound)
	defer cancel()
	state := caisson.SandboxStopped
	if _, err := b.client.Ping(ctx, client.PingOptions{}); err != nil {
		state = caisson.SandboxLost
		if b.shared {
			_ = kill(ctx, b.root) // Close and Sweep say if it does not end
		}
	}
	b.mu.Lock()
	b.ending = state
	b.mu.Unlock()
	close(b.done)
}

// Close implements caisson.Sandbox.
func (b *box) Close() error {
	b.closing.Do(func() {
		defer close(b.closed)
		b.closeMasks()
		_ = b.guest.Close() // always nil; it ends the guest by the end of its stream
		ctx, cancel := bound(context.Background(), endBound)
		defer cancel()
		b.failed = b.remove(ctx)
		<-b.done
	})
	<-b.closed
	return b.failed
}

// abandon removes what was made for a box that did not open.
func (b *box) abandon() error {
	ctx, cancel := bound(context.Background(), endBound)
	defer cancel()
	b.closeMasks()
	if b.guest != nil {
		_ = b.guest.Close() // always nil
	}
	if b.stream != nil {
		_ = b.stream.Close() // it may be closed already
	}
	return errors.Join(b.door.close(), b.remove(ctx))
}

// closeMasks releases what looks for files to hide.
func (b *box) closeMasks() {
	b.fixed.Close()
	if b.unmask != nil {
		b.unmask()
	}
}

// remove ends the container, sees that it is gone, and then removes what it had
// on the host. While that is not so the directory stays, for a later look.
func (b *box) remove(ctx context.Context) error {
	if b.staging == nil {
		return nil
	}
	var err error
	if b.container != "" {
		_, err = b.engine.removeContainer(ctx, b.client, b.container)
	} else {
		// The engine may have heard of it though we did not hear of that.
		var there bool
		there, err = b.engine.removeContainer(ctx, b.client, namePrefix+string(b.id))
		if err == nil && !there && b.unheard {
			return errors.Join(b.staging.unmount(), b.staging.lock.Close()) // Tidy looks again
		}
	}
	if b.shared && caisson.CodeOf(err) == caisson.CodeEngineUnavailable && kill(ctx, b.root) == nil {
		// All that ran has ended, though the engine may have gone without closing
		// its streams. What it still has on its books goes when it is back: the
		// directory stays for that.
		return errors.Join(b.staging.unmount(), b.staging.lock.Close())
	}
	if err == nil && b.shared {
		err = ended(ctx, b.root)
	}
	if err != nil {
		return errors.Join(err, b.staging.unmount(), b.staging.lock.Close())
	}
	return b.staging.remove()
}

// removeContainer ends a container and waits until it is gone. It tells whether
// there was one.
func (e *Engine) removeContainer(ctx context.Context, cli *client.Client, ref string) (there bool, _ error) {
	for ; ; there = true {
		_, err := cli.ContainerRemove(ctx, ref, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || cerrdefs.IsNotFound(err):
			return there || err == nil, nil
		// A conflict says that it is being removed already; Podman says that it
		// went wrong when the container ends by itself meanwhile.
		case ctx.Err() != nil || !cerrdefs.IsConflict(err) && !cerrdefs.IsInternal(err):
			return there, e.fault(ctx, "remove the container", err)
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return true, caisson.Errorf(caisson.CodeOrphanAlive, "container %s does not end though it was killed: %w", ref, err)
		}
	}
}
