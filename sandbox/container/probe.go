package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// bareImage has no files: what an engine enforces can be tried in it, as the
// guest needs none.
const bareImage = "caisson-probe:latest"

// Probe implements caisson.Engine: it opens a box without a workspace and
// closes it. It builds and pulls nothing: where the image of boxes is not there
// the box is one without files, and Pending says that the image is to be made.
// What works holds for the life of the process; what does not is tried again, as
// engines are started and stopped.
func (e *Engine) Probe(ctx context.Context) (caisson.Isolation, error) {
	e.mu.Lock()
	known := e.probed
	e.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	spec, err := sandbox.Check(caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err != nil {
		return caisson.Isolation{}, err
	}
	cli, info, err := e.meet(ctx)
	if err != nil {
		return caisson.Isolation{}, err
	}
	img, err := e.inspectImage(ctx, cli, e.imageName())
	missing := cerrdefs.IsNotFound(err)
	switch {
	case missing:
		img, err = e.bare(ctx, cli)
	case err == nil:
		err = e.usable(img)
	}
	if err != nil {
		return caisson.Isolation{}, err
	}
	box, err := e.raise(ctx, cli, info, spec, img, !missing)
	if err != nil {
		return caisson.Isolation{}, err
	}
	found := box.Isolation()
	if err := box.Close(); err != nil {
		return caisson.Isolation{}, err
	}
	if missing {
		found.Pending = e.pending()
		return found, nil
	}
	e.mu.Lock()
	e.probed = &found
	e.mu.Unlock()
	return found, nil
}

// pending says what is done first when a box is opened and its image is missing.
func (e *Engine) pending() string {
	return fmt.Sprintf("its image %s is not there; it is %s at the first run, which may take minutes, or now by `caisson sandbox rebuild --engine %s`", e.imageName(), e.making(), e.opts.Name)
}

// bare returns an image without files, which it makes where it is missing.
func (e *Engine) bare(ctx context.Context, cli *client.Client) (image.InspectResponse, error) {
	img, err := e.inspectImage(ctx, cli, bareImage)
	if cerrdefs.IsNotFound(err) {
		if err = e.makeBare(ctx, cli); err == nil {
			img, err = e.inspectImage(ctx, cli, bareImage)
		}
	}
	if err != nil {
		return img, e.fault(ctx, "make an empty image", err)
	}
	want, err := e.guestArch()
	if err == nil && img.Architecture != want {
		err = unusable("engine %s runs containers for linux/%s, and the guest is for linux/%s", e.opts.Name, img.Architecture, want).
			WithHint("Use a caisson that is built for the engine's machine.")
	}
	return img, err
}

func (e *Engine) makeBare(ctx context.Context, cli *client.Client) error {
	ctx, cancel := bound(ctx, callBound)
	defer cancel()
	var files bytes.Buffer
	if err := tar.NewWriter(&files).Close(); err != nil {
		return caisson.Errorf(caisson.CodeInternal, "pack nothing: %w", err)
	}
	got, err := cli.ImageImport(ctx, client.ImageImportSource{Source: &files, SourceName: "-"}, bareImage, client.ImageImportOptions{})
	if err != nil {
		return e.fault(ctx, "make an empty image", err)
	}
	return e.fault(ctx, "make an empty image", errors.Join(follow(got, io.Discard), got.Close()))
}
