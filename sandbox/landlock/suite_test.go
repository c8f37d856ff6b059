//go:build linux

package landlock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/landlock"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

// dirEnv names the engine's directory for a host that is killed.
const dirEnv = "CAISSON_TEST_LANDLOCK_DIR"

func TestMain(m *testing.M) {
	if os.Getenv(sandboxtest.StormEnv) != "" {
		os.Exit(sandboxtest.StormHost(at(os.Getenv(dirEnv))))
	}
	dir, err := os.MkdirTemp("", "caisson-landlock-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(dirEnv, dir)
	code := sandboxtest.Main(m)
	if err := os.Remove(dir); err != nil && code == 0 { // nothing is left in it
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func at(dir string) *landlock.Engine {
	return landlock.New(landlock.Options{Guest: sandboxtest.Guest, Instance: "itest", Dir: dir})
}

func engine(t testing.TB) caisson.Engine {
	e := at(os.Getenv(dirEnv))
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Harness{Engine: engine, SharedPaths: true, SharedNetwork: true, Require: []caisson.Control{}})
}

func TestLife(t *testing.T) {
	sandboxtest.Life{Engine: func(t testing.TB) sandboxtest.Lasting { return engine(t).(sandboxtest.Lasting) }}.Run(t)
}

func TestUnprivileged(t *testing.T) { sandboxtest.Unprivileged(t, "^(TestSuite|TestLife)$") }
