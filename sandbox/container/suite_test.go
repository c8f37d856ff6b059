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
		Name: name, Endpoint: endpoint, Guest: sandboxtest.Guest, Instance: "itest", StateDir: t.TempDir(), Images: container.Images{Image: os.Getenv(imageEnv)},
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

// ofTheGuest are the long cases of what is the guest's, or is checked before an
// engine hears of it: one engine, as root, shows it for all.
func ofTheGuest() []string {
	return []string{"TestCase_S02", "TestCase_S06", "TestCase_S08", "TestCase_S16", "TestCase_S18", "TestCase_S19", "Ptrace", "Home", "Require", "BadInput", "Development"}
}

func TestSuite(t *testing.T) {
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			options(t, engine.name, engine.env) // skips as a whole
			// An ordinary user cannot enter the containers of root's engine.
			h := sandboxtest.Harness{OtherRoot: true, MasksAtOpen: os.Getuid() != 0, Engine: func(t testing.TB) caisson.Engine { return open(t, options(t, engine.name, engine.env)) }}
			if engine.name != container.Docker || os.Getuid() != 0 {
				h.Without = ofTheGuest()
			}
			sandboxtest.Run(t, h)
		})
	}
}
