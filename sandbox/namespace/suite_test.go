//go:build linux

package namespace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Args[0] == "caisson-guest" {
		os.Exit(beLiar())
	}
	if os.Getenv(liarEnv) != "" {
		os.Exit(liarHost())
	}
	if os.Getenv(sandboxtest.StormEnv) != "" {
		os.Exit(sandboxtest.StormHost(newEngine()))
	}
	if os.Getenv(getEnv) != "" {
		os.Exit(getPage())
	}
	if os.Getenv(hostEnv) != "" {
		os.Exit(probeHost())
	}
	os.Exit(sandboxtest.Main(m))
}

func newEngine() *namespace.Engine {
	return namespace.New(namespace.Options{
		Guest:    sandboxtest.Guest,
		Instance: "itest",
	})
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

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Harness{Engine: engine, OwnLimits: true})
}

func TestLife(t *testing.T) {
	sandboxtest.Life{Engine: func(t testing.TB) sandboxtest.Lasting { return engine(t).(sandboxtest.Lasting) }}.Run(t)
}

func TestUnprivileged(t *testing.T) {
	sandboxtest.Unprivileged(t, "^(TestSuite|TestLife|TestCase_.*|TestNested|TestRemnants|TestEgress.*)$")
}

// A workspace may lie where a box usually has a link.
func TestWorkspaceBelowVarTmp(t *testing.T) {
	ws, err := os.MkdirTemp("/var/tmp", "caisson-ws-") //nolint:usetesting // the place is what is tested
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(ws)
	sb, err := engine(t).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	run(t, sb, caisson.Command{Line: "echo x > here && echo y > /var/tmp/there && echo z > /tmp/there"})
	if got, err := os.ReadFile(filepath.Join(ws, "here")); err != nil || string(got) != "x\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Lstat("/var/tmp/there"); err == nil {
		t.Error("a file was made on the host")
	}
}
