package container

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/gofrs/flock"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
)

// DefaultBase is what our image is built from unless told otherwise.
const DefaultBase = "docker.io/library/debian:bookworm-slim"

// ourImage is the name of our images; their tags are signatures.
const ourImage = "caisson-box"

//go:embed Dockerfile
var dockerfile string

// buildPause is how often a build that waits for another looks whether that is over.
const buildPause = 50 * time.Millisecond

// signature tells one content of our image from another: what it is built of.
func (e *Engine) signature() string {
	sum := string(caisson.DigestOf([]byte(dockerfile + "\x00" + e.base())))
	return sum[strings.LastIndexByte(sum, ':')+1:][:16]
}

func (e *Engine) base() string {
	return cmp.Or(e.use().Base, DefaultBase)
}

// imageName is the image of boxes: the user's, or ours of the present signature.
func (e *Engine) imageName() string {
	if image := e.use().Image; image != "" {
		return image
	}
	return ourImage + ":" + e.signature()
}

// Image is the name of the image of boxes.
func (e *Engine) Image() string { return e.imageName() }

// image returns the image to use, which is there and can run the guest. One
// that is missing is pulled, or built. An old one is used, and made new beside.
func (e *Engine) image(ctx context.Context, cli *client.Client) (image.InspectResponse, error) {
	name := e.imageName()
	got, err := e.inspectImage(ctx, cli, name)
	if cerrdefs.IsNotFound(err) {
		e.announce()
		if err = e.Rebuild(ctx, RebuildOptions{}); err == nil {
			got, err = e.inspectImage(ctx, cli, name)
		}
	} else if err == nil && e.old(got) {
		e.refreshBeside()
	}
	if err != nil {
		return got, e.fault(ctx, "look at image "+name, err)
	}
	return got, e.usable(got)
}

// Prepare makes the image of boxes where it is not there, as opening one does.
func (e *Engine) Prepare(ctx context.Context) error {
	cli, _, err := e.meet(ctx)
	if err != nil {
		return err
	}
	_, err = e.image(ctx, cli)
	return err
}

// announce says, once, that the image is missing and is made before a sandbox
// opens.
func (e *Engine) announce() {
	if e.opts.Notice == nil {
		return
	}
	e.announced.Do(func() {
		e.opts.Notice(fmt.Sprintf("the image of %s's sandboxes, %s, is not there: it is %s now, which may take minutes; to do it beforehand: caisson sandbox rebuild --engine %s",
			e.opts.Name, e.imageName(), e.making(), e.opts.Name))
	})
}

func (e *Engine) making() string {
	if e.use().Image != "" {
		return "pulled"
	}
	return "built from " + e.base()
}

func (e *Engine) inspectImage(ctx context.Context, cli *client.Client, name string) (image.InspectResponse, error) {
	ctx, cancel := bound(ctx, lookBound)
	defer cancel()
	got, err := cli.ImageInspect(ctx, name)
	if err != nil && !cerrdefs.IsNotFound(err) {
		err = e.fault(ctx, "look at image "+name, err)
	}
	return got.InspectResponse, err
}

// usable refuses an image that the guest cannot run in.
func (e *Engine) usable(got image.InspectResponse) error {
	want, err := e.guestArch()
	if err != nil {
		return err
	}
	if got.Os != "linux" || got.Architecture != want {
		return unusable("image %s is for %s/%s, and the guest for linux/%s", e.imageName(), got.Os, got.Architecture, want).
			WithHint("Name an image for linux/%s with `containers.image`.", want)
	}
	return nil
}

func unusable(format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeImageUnusable, format, args...)
}

// guestArch is the architecture of the guest program, in the engines' words.
func (e *Engine) guestArch() (string, error) {
	program, err := e.opts.Guest()
	if err != nil {
		return "", caisson.Errorf(caisson.CodeGuestMissing, "read guest program: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", caisson.Errorf(caisson.CodeGuestMissing, "the guest program is none for Linux: %w", err)
	}
	arch, known := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[file.Machine]
	if !known {
		return "", caisson.Errorf(caisson.CodeGuestMissing, "the guest program is for %v", file.Machine)
	}
	return arch, nil
}

// old tells whether an image has reached the age of a refresh. The engine's
// clock may not be ours: a time to come is not old.
func (e *Engine) old(got image.InspectResponse) bool {
	made := got.Created
	if e.use().Image != "" && !got.Metadata.LastTagTime.IsZero() {
		made = got.Metadata.LastTagTime.Format(time.RFC3339Nano)
	}
	at, err := time.Parse(time.RFC3339Nano, made)
	refresh := e.use().Refresh
	return err == nil && refresh > 0 && time.Since(at) > refresh
}

// refreshBeside makes the image new while work goes on with the old one. That
// it cannot be made is no error: the old one stays, and the next process tries.
func (e *Engine) refreshBeside() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refreshing || e.closed {
		return
	}
	e.refreshing = true
	e.background.Go(func() { // ends with the engine
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan struct{})
		defer close(done)
		go func() { // ends with the refresh
			select {
			case <-e.closing:
				cancel()
			case <-done:
			}
		}()
		_ = e.Rebuild(ctx, RebuildOptions{Refresh: true})
	})
}

// RebuildOptions say how the image of boxes is made.
type RebuildOptions struct {
	// Refresh also brings what it is made from, whatever is there already.
	Refresh bool
	// Output receives what the engine says meanwhile. Nil: nothing.
	Output io.Writer
}

// Rebuild builds our image, or pulls the user's. The old one stays in use, and
// under its name, until the new one is whole.
func (e *Engine) Rebuild(ctx context.Context, opts RebuildOptions) error {
	cli, err := e.dial()
	if err != nil {
		return err
	}
	if opts.Output == nil {
		opts.Output = io.Discard
	}
	if image := e.use().Image; image != "" {
		return e.pull(ctx, cli, image, opts.Output)
	}
	return e.build(ctx, cli, opts)
}

func (e *Engine) pull(ctx context.Context, cli *client.Client, image string, out io.Writer) error {
	ctx, cancel := bound(ctx, pullBound)
	defer cancel()
	body, err := cli.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = errors.Join(follow(body, out), body.Close())
	}
	if err == nil {
		return nil
	}
	if coded := e.fault(ctx, "pull image "+image, err); caisson.CodeOf(coded) != caisson.CodeIsolationUnavailable {
		return coded
	}
	return unusable("image %s is not there and cannot be pulled: %w", image, err).
		WithHint("See that `containers.image` names one that the engine can pull.")
}

func (e *Engine) build(ctx context.Context, cli *client.Client, opts RebuildOptions) error {
	ctx, cancel := bound(ctx, buildBound)
	defer cancel()
	files, err := buildContext()
	if err != nil {
		return err
	}
	building, err := e.lockBuild(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = building.Close() }() // the kernel lets go of it at the latest with this process
	base := e.base()
	// Where the engine has no network of its own there may be none to build in;
	// then what is missing from the base cannot be installed, and it says so.
	made, err := cli.ImageBuild(ctx, files, client.ImageBuildOptions{
		Tags: []string{e.imageName()}, Dockerfile: "Dockerfile", BuildArgs: map[string]*string{"BASE": &base},
		Labels:  map[string]string{labelImage: e.signature(), labelBuilder: e.owner()},
		NoCache: opts.Refresh, PullParent: opts.Refresh, Remove: true, ForceRemove: true,
	})
	if err == nil {
		err = errors.Join(follow(made.Body, opts.Output), made.Body.Close())
	}
	if err == nil {
		e.dropOld(ctx, cli)
		return nil
	}
	if coded := e.fault(ctx, "build the image", err); caisson.CodeOf(coded) != caisson.CodeIsolationUnavailable {
		return coded
	}
	return unusable("the image of sandboxes cannot be built: %w", err).
		WithHint("Can the engine reach a registry for %s? Else name an image that is there with `containers.image`.", base)
}

// lockBuild keeps others with this state directory from building at the same time:
// what a build has made on its way looks to another like what is left of one.
func (e *Engine) lockBuild(ctx context.Context) (*flock.Flock, error) {
	if err := os.MkdirAll(e.dir(), 0o700); err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "make a directory for locks: %w", err)
	}
	lock := flock.New(filepath.Join(e.dir(), e.opts.Name+".lock"))
	if _, err := lock.TryLockContext(ctx, buildPause); err != nil {
		return nil, e.fault(ctx, "wait for another build of the image", err)
	}
	return lock, nil
}

func buildContext() (io.Reader, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))})
	if err == nil {
		_, err = io.WriteString(w, dockerfile)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "pack the image's sources: %w", err)
	}
	return &out, nil
}

// dropOld removes images of ours that no box uses any more: those that a newer
// one of the same content has taken the name of, and those of another content that
// this state directory's process built. Others' it would build again and again by
// turns with their owner. What cannot be removed is in use, and goes with a later
// build.
func (e *Engine) dropOld(ctx context.Context, cli *client.Client) {
	found, err := cli.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", labelImage)})
	if err != nil {
		return
	}
	for _, img := range found.Items {
		named := len(img.RepoTags) > 0 && img.RepoTags[0] != "<none>:<none>"
		if named && (img.Labels[labelImage] == e.signature() || img.Labels[labelBuilder] != e.owner()) {
			continue
		}
		_, _ = cli.ImageRemove(ctx, img.ID, client.ImageRemoveOptions{PruneChildren: true})
	}
}

// follow reads what the engine says of its work to the end; an error that it
// tells is one.
func follow(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(in)
	for {
		var line struct {
			Stream, Status, Error string
			ErrorDetail           struct{ Message string }
		}
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if said := line.Error + line.ErrorDetail.Message; said != "" {
			return errors.New(strings.TrimSpace(max(line.ErrorDetail.Message, line.Error)))
		}
		text := line.Stream
		if line.Status != "" {
			text = line.Status + "\n"
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
}
