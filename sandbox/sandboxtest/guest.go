package sandboxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson"
)

// GuestEnv is the variable with the path of the guest program for tests.
const GuestEnv = "CAISSON_GUEST"

// Main runs the tests of a package that opens sandboxes, and returns the exit
// status: with the guest that [GuestEnv] names, or one that is built, and with
// no goroutine left at the end.
func Main(m *testing.M) int {
	if os.Getenv(GuestEnv) == "" {
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
		os.Setenv(GuestEnv, path)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Guest returns the guest program of [Main].
func Guest() ([]byte, error) { return os.ReadFile(os.Getenv(GuestEnv)) }

// Open opens a sandbox around an empty workspace, until the test ends.
func Open(t testing.TB, engine caisson.Engine) (sandbox caisson.Sandbox, workspace string) {
	t.Helper()
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
