package container

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox"
)

// setUpBound is how long the guest may take to close the box and report.
const setUpBound = 10 * time.Second

// Open implements caisson.Engine.
func (e *Engine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	spec, err := sandbox.Check(spec)
	if err == nil {
		err = sandbox.Refuse(e.Name(), spec, sandbox.Layers)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, caisson.Errorf(caisson.CodeCancelled, "cancelled before the sandbox was open: %w", context.Cause(ctx))
	}
	if err := e.cannot(spec); err != nil {
		return nil, err
	}
	cli, info, err := e.meet(ctx)
	if err != nil {
		return nil, err
	}
	img, err := e.image(ctx, cli)
	if err != nil {
		return nil, err
	}
	return e.raise(ctx, cli, info, spec, img, true)
}

// raise opens a box of a checked spec in an image, in which commands are to run
// or nothing but the guest.
func (e *Engine) raise(ctx context.Context, cli *client.Client, info system.Info, spec caisson.SandboxSpec, img image.InspectResponse, commands bool) (*box, error) {
	b := &box{
		engine: e, client: cli, id: spec.ID, instance: e.instance(info), info: info, commands: commands,
		done: make(chan struct{}), closed: make(chan struct{}),
	}
	u := userFor(os.Getuid(), os.Getgid(), e.opts.Name, info)
	err := b.begin(ctx, spec, img, u)
	if err == nil {
		err = b.prove(ctx, spec, img)
	}
	if err != nil {
		left := b.abandon()
		if caisson.CodeOf(left) == caisson.CodeEngineUnavailable {
			return nil, err // the engine went away: what is left goes when it is back
		}
		return nil, errors.Join(err, left)
	}
	go b.watch() // ends with the guest's stream
	return b, nil
}

// unmountable are characters of a path that Podman cannot be told to mount at.
const unmountable = ",\"\n\r"

// cannot refuses what the engine cannot do, rather than leave it out.
func (e *Engine) cannot(spec caisson.SandboxSpec) error {
	if e.opts.Name == Podman {
		if spec.Limits.Files > maxFiles { // it would raise its own limit for more, which its user may not be allowed to
			return caisson.Errorf(caisson.CodeLimitInvalid, "Podman's sandboxes have at most %d open files for each process", maxFiles)
		}
		for _, m := range sandbox.Mounts(spec) {
			if strings.ContainsAny(m.Target, unmountable) { // it takes mounts apart at these
				return caisson.Errorf(caisson.CodePathInvalid, "Podman cannot show a path with a comma, a quote or a line break: %q", m.Target)
			}
		}
	}
	if spec.Egress != nil && !carries {
		return e.farKernel()
	}
	return nil
}

// farKernel is the refusal of a way out where the engine is on another kernel:
// connections cannot be handed over to this one.
func (e *Engine) farKernel() error {
	return caisson.Errorf(caisson.CodeUnsupported, "engine %s cannot enforce what `network:` allows: its containers are on another kernel", e.opts.Name).
		WithHint("Use an engine on this kernel, or do without `network:`.")
}

// begin makes the container and starts it, with its stream in our hands.
func (b *box) begin(ctx context.Context, spec caisson.SandboxSpec, img image.InspectResponse, u user) error {
	e := b.engine
	mounts := sandbox.Mounts(spec)
	s, err := e.stage(spec, note{Endpoint: e.at, Instance: b.instance, Holder: e.opts.Instance}, u, sandbox.Home(mounts))
	if err != nil {
		return err
	}
	b.staging = s
	if u.mapped {
		if err := e.lend(s, lentPaths(spec), u); err != nil {
			u = u.asRoot(err)
			if err := errors.Join(s.unmount(), s.fill(spec, note{e.at, b.instance, e.opts.Instance}, u, sandbox.Home(mounts))); err != nil {
				return caisson.Errorf(caisson.CodeWriteFailed, "make a directory for the box: %w", err)
			}
		}
	}
	if spec.Egress != nil {
		if b.door, err = s.openDoor(); err != nil {
			return caisson.Errorf(caisson.CodeWriteFailed, "make the socket of the way out: %w", err)
		}
	}
	if err := b.readyMasks(ctx, spec); err != nil {
		return err
	}
	b.user, b.plans = u, lay(spec, u, s, e.opts.Name)
	if hides(spec) {
		b.plans.showMasks(s.dir, spec, b.fixed.Found(), e.opts.Name)
	}
	if !b.commands {
		b.plans.plan.Needs = nil
	}
	if err := b.plans.volumes(img, e.imageName(), spec.Limits, u, e.opts.Name); err != nil {
		return err
	}
	if b.container, err = e.create(ctx, b.client, img.ID, b.plans, u, spec, max(1, b.info.NCPU)); err != nil {
		b.unheard = caisson.CodeOf(err) == caisson.CodeEngineUnavailable || caisson.CodeOf(err) == caisson.CodeCancelled
		return err
	}
	if b.stream, err = b.attach(ctx); err != nil {
		return err
	}
	callCtx, cancel := bound(ctx, callBound)
	defer cancel()
	if _, err := b.client.ContainerStart(callCtx, b.container, client.ContainerStartOptions{}); err != nil {
		return e.fault(callCtx, "start the container", err)
	}
	if err := s.unmount(); err != nil {
		return caisson.Errorf(caisson.CodeInternal, "release what was shown to the engine: %w", err)
	}
	return nil
}

// attach takes the standard streams of a container before it starts, so that
// nothing of them is missed.
func (b *box) attach(ctx context.Context) (*stream, error) {
	ctx, cancel := bound(ctx, callBound)
	defer cancel()
	got, err := b.client.ContainerAttach(ctx, b.container, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, b.engine.fault(ctx, "attach to the container", err)
	}
	return newStream(got.HijackedResponse), nil
}

// prove lets the guest close the box, judges its report and greets it.
func (b *box) prove(ctx context.Context, spec caisson.SandboxSpec, img image.InspectResponse) error {
	report, err := b.setUp(ctx)
	if err != nil {
		return err
	}
	if err := b.identify(ctx, report); err != nil {
		return err
	}
	b.isolation = b.report(report, spec.Limits)
	if err := sandbox.Enforce(b.isolation, spec.Require); err != nil {
		return err
	}
	var env []string
	if img.Config != nil {
		env = img.Config.Env
	}
	var way *os.File
	if b.door != nil {
		if way, err = b.door.take(b.root); err != nil {
			return caisson.Errorf(caisson.CodeIsolationUnavailable, "the way out of the sandbox could not be made: %w", err).
				WithHint("Use another engine on this host, or do without `network:`.")
		}
	}
	opts := guest.Options{
		Workspace: b.plans.plan.Workspace, Env: environment(b.plans.plan, env, spec), Limits: spec.Limits, Root: b.root,
		OOM: b.oom, Stopped: b.stopped, Egress: spec.Egress, Outlet: way,
	}
	if b.shared {
		opts.Identify = within(b.root)
	}
	if b.guest, err = guest.Connect(ctx, b.stream, opts); err != nil {
		return err
	}
	if spec.Egress != nil {
		b.isolation = sandbox.WithEgress(b.isolation, b.guest.Mode())
	}
	return b.hide(ctx, spec)
}

// setUp sends the plan and reads the report.
func (b *box) setUp(ctx context.Context) (report plan.Report, err error) {
	ctx, cancel := bound(ctx, setUpBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = b.stream.Close() })
	defer stop()
	raw := pack.Bytes(&b.plans.plan)
	_, err = b.stream.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)) //nolint:gosec // far below
	if err == nil {
		err = readReport(b.stream, &report)
	}
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errSlow):
		return report, caisson.Errorf(caisson.CodeIsolationUnavailable, "the sandbox was not set up within %v", setUpBound)
	case ctx.Err() != nil:
		return report, caisson.Errorf(caisson.CodeCancelled, "cancelled before the sandbox was open: %w", context.Cause(ctx))
	case err != nil:
		return report, b.stillborn(ctx, err)
	case report.Seen == nil:
		return report, caisson.Errorf(caisson.CodeGuestProtocol, "the guest reports nothing of its box")
	case report.Seen.Proof != b.staging.proof:
		return report, caisson.Errorf(caisson.CodeIsolationUnavailable, "engine %s does not show files of this machine", b.engine.opts.Name).
			WithHint("Is it on another machine, or in another mount namespace? Use one that sees this machine's files.")
	case len(report.Seen.Missing) > 0:
		return report, unusable("image %s has no %s", b.engine.imageName(), report.Seen.Missing[0]).
			WithHint("Name an image with a shell with `containers.image`.")
	case report.Failed != "" && b.door != nil && !sharesKernel(report.Seen.Boot):
		return report, b.engine.farKernel()
	case report.Failed != "":
		return report, caisson.Errorf(caisson.CodeIsolationUnavailable, "the sandbox could not be set up (%s): %s", report.Failed, report.Error).
			WithHint("It was ended before anything ran in it. Use another engine on this host, and report it.")
	}
	return report, nil
}

func readReport(in io.Reader, report *plan.Report) error {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > plan.MaxMessage {
		return fmt.Errorf("a report of %d bytes", size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(in, raw); err != nil {
		return err
	}
	return pack.Read(raw, report)
}

// stillborn explains a guest whose stream ended before it had reported.
func (b *box) stillborn(ctx context.Context, err error) error {
	why := b.stream.said()
	if state, stateErr := b.state(ctx); stateErr == nil && state.Error != "" {
		why = state.Error
	}
	if why == "" {
		why = err.Error()
	}
	return caisson.Errorf(caisson.CodeSandboxLost, "the guest ended before it had set up the sandbox: %s", why)
}

// state asks the engine for the state of the container.
func (b *box) state(ctx context.Context) (container.State, error) {
	ctx, cancel := bound(context.WithoutCancel(ctx), lookBound)
	defer cancel()
	got, err := b.client.ContainerInspect(ctx, b.container, client.ContainerInspectOptions{})
	if err != nil {
		return container.State{}, b.engine.fault(ctx, "look at the container", err)
	}
	if got.Container.State == nil {
		return container.State{}, errors.New("the engine tells no state")
	}
	return *got.Container.State, nil
}

// stopped says that the engine reports the container as paused, if it does. What is
// not known is no reason.
func (b *box) stopped() error {
	state, err := b.state(context.Background())
	if err != nil || !state.Paused {
		return nil //nolint:nilerr // then the guest is what does not answer
	}
	return caisson.Errorf(caisson.CodeSandboxPaused, "engine %s reports the container of sandbox %s as paused", b.engine.opts.Name, b.id).
		WithHint("Somebody paused it; let it go on: `%s unpause %s`.", b.engine.opts.Name, namePrefix+string(b.id))
}

// identify finds the guest as a process of this machine, where it is one.
func (b *box) identify(ctx context.Context, report plan.Report) error {
	state, err := b.state(ctx)
	if err != nil {
		return err
	}
	b.shared = sharesKernel(report.Seen.Boot)
	if err := b.shown(report.Seen); err != nil {
		return err
	}
	if !b.shared {
		b.root = caisson.ProcessIdentity{Host: b.info.Name, Boot: report.Seen.Boot, PID: 1}
		return nil
	}
	if b.root, err = identity(state.Pid, b.container); err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "read identity of the guest: %w", err)
	}
	b.oom = oomCount(state.Pid)
	return nil
}

// shown refuses a box that was given other files than it was to be given: an
// engine in another mount namespace takes what is at the same path there.
func (b *box) shown(seen *plan.Seen) error {
	wrong := func(path, why string) error {
		return caisson.Errorf(caisson.CodeIsolationUnavailable, "engine %s shows something else at %s: %s", b.engine.opts.Name, path, why).
			WithHint("Does the engine run in another mount namespace, or map users? Use one that sees this machine's files as they are.")
	}
	if len(seen.Foreign) > 0 {
		return wrong(seen.Foreign[0], "it does not belong to the user inside")
	}
	if !b.shared {
		return nil // another kernel numbers files as it likes; the proof was read
	}
	for i, source := range b.plans.sources {
		if i >= len(seen.Inodes) || seen.Inodes[i] != inode(source) {
			return wrong(source, "it is another file")
		}
	}
	return nil
}

// owner tells whose boxes at an engine are: one state directory is one owner.
func (e *Engine) owner() string { return string(caisson.DigestOf([]byte(e.dir()))) }
