//go:build linux

package container_test

import (
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/container"
)

// A look at an engine tries what it enforces, says that the image of sandboxes
// is missing, and makes none.
func TestProbeMakesNoImage(t *testing.T) {
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			opts := options(t, engine.name, engine.env)
			for _, missing := range []struct{ image, base, says string }{
				{"caisson-test:never", "", "pulled at the first run"},
				{"", "docker.io/library/never:latest", "built from docker.io/library/never:latest at the first run"},
			} {
				opts.Image, opts.Base = missing.image, missing.base
				e := open(t, opts)
				for range 2 { // the second finds the empty image there
					begun := time.Now()
					found, err := e.Probe(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%s: %v", engine.name, time.Since(begun))
					if !strings.Contains(found.Pending, missing.says) || !strings.Contains(found.Pending, "rebuild --engine "+engine.name) {
						t.Errorf("pending %q, want %q", found.Pending, missing.says)
					}
					if err := sandbox.Enforce(found, sandbox.DefaultRequire()); err != nil {
						t.Error(err)
					}
					if row := found.Row(caisson.ControlNetwork); row.Test == "" {
						t.Errorf("nothing was tried: %+v", row)
					}
				}
				nothing(t, e)
				if _, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()}); caisson.CodeOf(err) != caisson.CodeImageUnusable {
					t.Errorf("open: %v, want image-unusable", err)
				}
			}
			opts.Image = ""
			cli, err := client.New(client.WithHost(opts.Endpoint))
			if err != nil {
				t.Fatal(err)
			}
			defer cli.Close()
			images, err := cli.ImageList(t.Context(), client.ImageListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, img := range images.Items {
				for _, tag := range img.RepoTags {
					if strings.Contains(tag, "never") {
						t.Errorf("image %s was made", tag)
					}
				}
			}
			ready := open(t, options(t, engine.name, engine.env))
			if found, err := ready.Probe(t.Context()); err != nil || found.Pending != "" {
				t.Errorf("with the image: pending %q, %v", found.Pending, err)
			}
		})
	}
	down := container.New(container.Options{Name: container.Docker, Endpoint: "unix://" + t.TempDir() + "/nothing.sock"})
	if _, err := down.Probe(t.Context()); caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
		t.Errorf("where nobody answers: %v", err)
	}
}
