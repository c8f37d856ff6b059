//go:build linux

package bubblewrap_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(sandboxtest.StormEnv) != "" {
		os.Exit(sandboxtest.StormHost(newEngine()))
	}
	if os.Args[0] == "bwrap" {
		os.Exit(lie())
	}
	os.Exit(sandboxtest.Main(m))
}

func newEngine() *bubblewrap.Engine {
	return bubblewrap.New(bubblewrap.Options{Guest: sandboxtest.Guest, Instance: "itest"})
}

func engine(t testing.TB) caisson.Engine {
	e := newEngine()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestSuite(t *testing.T) { sandboxtest.Run(t, sandboxtest.Harness{Engine: engine}) }

func TestLife(t *testing.T) {
	sandboxtest.Life{Engine: func(t testing.TB) sandboxtest.Lasting { return engine(t).(sandboxtest.Lasting) }}.Run(t)
}

func TestUnprivileged(t *testing.T) {
	sandboxtest.Unprivileged(t, "^(TestSuite|TestLife|TestWrapper.*)$")
}
