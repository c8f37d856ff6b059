package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
)

const guestEnv = "CAISSON_TEST_GUEST" // path of the guest program; built where it is not set

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(guestEnv) == "" {
		dir, err := os.MkdirTemp("", "caisson-guest-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "caisson-guest")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/caisson-run/caisson/cmd/caisson-guest")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build guest: %v\n%s", err, out)
			return 1
		}
		os.Setenv(guestEnv, path)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// openSandbox opens a real boundary around an empty workspace.
func openSandbox(t *testing.T) (sandbox caisson.Sandbox, workspace string) {
	t.Helper()
	engine := namespace.New(namespace.Options{
		Guest:    func() ([]byte, error) { return os.ReadFile(os.Getenv(guestEnv)) },
		Instance: "itest",
	})
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	workspace = t.TempDir()
	sandbox, err := engine.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: workspace})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sandbox.Close(); err != nil {
			t.Error(err)
		}
	})
	return sandbox, workspace
}
