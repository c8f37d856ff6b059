//go:build linux

package container_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

// Where the engines of the tests are, and their image; scripts/engines sets them.
const (
	dockerEnv = "CAISSON_TEST_DOCKER"
	podmanEnv = "CAISSON_TEST_PODMAN"
	imageEnv  = "CAISSON_TEST_IMAGE"
	rootfsEnv = "CAISSON_TEST_ROOTFS"
)

func TestMain(m *testing.M) {
	if os.Getenv(stormEnv) != "" {
		os.Exit(storm())
	}
	os.Exit(sandboxtest.Main(m))
}

// options are those of a tested engine.
func options(t testing.TB, name, env string) container.Options {
	t.Helper()
	endpoint := os.Getenv(env)
	if endpoint == "" {
		t.Skipf("no %s runs here: scripts/engines starts one", name)
	}
	return container.Options{
		Name: name, Endpoint: endpoint, Guest: sandboxtest.Guest, Instance: "itest", StateDir: t.TempDir(), Image: os.Getenv(imageEnv),
	}
}

// open returns an engine that is released with the test.
func open(t testing.TB, opts container.Options) *container.Engine {
	t.Helper()
	e := container.New(opts)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// testedEngine is one that scripts/engines starts.
type testedEngine struct{ name, env string }

func tested() []testedEngine {
	return []testedEngine{{container.Docker, dockerEnv}, {container.Podman, podmanEnv}}
}

func TestSuite(t *testing.T) {
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			options(t, engine.name, engine.env) // skips as a whole
			sandboxtest.Run(t, sandboxtest.Harness{OtherRoot: true, Engine: func(t testing.TB) caisson.Engine { return open(t, options(t, engine.name, engine.env)) }})
		})
	}
}
