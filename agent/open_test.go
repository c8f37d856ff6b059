package agent

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }

// openSandbox opens a real boundary around an empty workspace.
func openSandbox(t *testing.T) (sandbox caisson.Sandbox, workspace string) {
	t.Helper()
	engine := namespace.New(namespace.Options{Guest: sandboxtest.Guest, Instance: "itest"})
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return sandboxtest.Open(t, engine)
}
