//go:build linux

package bubblewrap_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }

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

func TestProbe(t *testing.T) {
	iso, err := engine(t).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range iso.Controls {
		t.Logf("%+v", r)
	}
}
