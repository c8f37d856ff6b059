package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/container"
)

// dockerEnv and imageEnv name the engine and the image to measure with;
// scripts/engines sets both.
const (
	dockerEnv = "CAISSON_TEST_DOCKER"
	imageEnv  = "CAISSON_TEST_IMAGE"
)

// docker returns the Docker engine that scripts/engines has started, and the
// docker program at the same endpoint.
func (b *bench) docker(ctx context.Context) (e *container.Engine, cli func(args ...string) timer, done func(), err error) {
	endpoint, image := os.Getenv(dockerEnv), os.Getenv(imageEnv)
	program, lookErr := exec.LookPath("docker")
	if endpoint == "" || lookErr != nil {
		return nil, nil, nil, skipped("no Docker runs here: scripts/engines starts one")
	}
	guest, err := b.program("caisson-guest")
	if err != nil {
		return nil, nil, nil, err
	}
	dir, remove, err := b.scratch()
	if err != nil {
		return nil, nil, nil, err
	}
	e = container.New(container.Options{
		Name: container.Docker, Endpoint: endpoint, Images: container.Images{Image: image}, StateDir: dir,
		Guest: func() ([]byte, error) { return os.ReadFile(guest) },
	})
	if _, err := e.Probe(ctx); err != nil {
		err = errors.Join(err, e.Close())
		remove()
		return nil, nil, nil, err
	}
	cli = func(args ...string) timer { return timed(plain(program, append([]string{"-H", endpoint}, args...)...)) }
	return e, cli, func() { _ = e.Close(); remove() }, nil
}

// execWarmDocker runs a command that does nothing in an open sandbox of
// Docker's, beside `docker exec` of it in a container of the same image. Must: a
// tenth. In rounds of one.
func execWarmDocker(ctx context.Context, b *bench, n int) (r result, err error) {
	e, cli, done, err := b.docker(ctx)
	if err != nil {
		return result{}, err
	}
	defer done()
	name := fmt.Sprintf("caisson-bench-%d", time.Now().UnixNano())
	start := cli("run", "-d", "--rm", "--network", "none", "--name", name, os.Getenv(imageEnv), "/bin/sleep", "1000")
	if _, err := start(ctx); err != nil {
		return result{}, err
	}
	defer cli("kill", name)(context.WithoutCancel(ctx)) //nolint:errcheck // it ends by itself too
	err = within(ctx, e, "", func(box caisson.Sandbox) error {
		ours := func(ctx context.Context) error { return runIn(ctx, box, caisson.Command{Argv: []string{nothing}}) }
		c, err := compare(ctx, n, byTurns(timed(ours), cli("exec", name, nothing)))
		r = c.times("docker exec")
		return err
	})
	return r, err
}

// execColdDocker opens a sandbox of Docker's, runs its first command and closes
// it, beside `docker run --rm` of the same image. In rounds of one.
func execColdDocker(ctx context.Context, b *bench, n int) (result, error) {
	e, cli, done, err := b.docker(ctx)
	if err != nil {
		return result{}, err
	}
	defer done()
	ours := func(ctx context.Context) error {
		return within(ctx, e, "", func(box caisson.Sandbox) error { return runIn(ctx, box, caisson.Command{Argv: []string{nothing}}) })
	}
	c, err := compare(ctx, n, byTurns(timed(ours), cli("run", "--rm", "--network", "none", os.Getenv(imageEnv), nothing)))
	return c.times("docker run --rm"), err
}

// captureDocker brings the output of a command out of a sandbox of Docker's, as
// the shell tool does, beside `docker run` of the same line. n is MiB; it is done
// three times.
func captureDocker(ctx context.Context, b *bench, n int) (r result, err error) {
	e, cli, done, err := b.docker(ctx)
	if err != nil {
		return result{}, err
	}
	defer done()
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	size := int64(n) << 20
	line := fmt.Sprintf("head -c %d /dev/zero", size)
	err = within(ctx, e, "", func(box caisson.Sandbox) error {
		ours, err := shellCall(box, dir, line, size)
		if err != nil {
			return err
		}
		theirs := cli("run", "--rm", "--network", "none", "--log-driver", "none", os.Getenv(imageEnv), "/bin/sh", "-c", "/usr/bin/"+line)
		c, err := compare(ctx, 3, byTurns(ours, theirs))
		if err != nil {
			return err
		}
		r = c.rates("MB/s", "docker run", float64(size)/1e6, float64(size)/1e6)
		r.Size = n
		return nil
	})
	return r, err
}
