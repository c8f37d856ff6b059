//go:build linux

package workspace_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
)

// guest builds the guest program once, when the first box is opened.
var guest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "caisson-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "caisson-guest")
	build := exec.Command("go", "build", "-o", path, "github.com/caisson-run/caisson/cmd/caisson-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if program := os.Getenv("CAISSON_TEST_GUEST"); program != "" {
		return os.ReadFile(program)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build guest: %w: %s", err, out)
	}
	return os.ReadFile(path)
})

// box is an open sandbox of the built-in engine around a workspace.
type box struct {
	caisson.Sandbox
	ws   caisson.Workspace
	mu   sync.Mutex
	runs int
}

func newBox(t testing.TB, ws caisson.Workspace) *box {
	t.Helper()
	if _, err := guest(); err != nil {
		t.Fatal(err)
	}
	engine := namespace.New(namespace.Options{Guest: guest, Instance: caisson.NewInstanceID()})
	sandbox, err := engine.Open(t.Context(), caisson.SandboxSpec{
		ID: caisson.NewSandboxID(), Workspace: ws.Path, GitCover: ws.Cover, GitDir: ws.Shadow, GitObjects: ws.Objects, Home: ws.Home,
	})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("needs a boundary: %v", err)
	}
	if err != nil {
		t.Fatalf("open box: %v", err)
	}
	t.Cleanup(func() {
		if err := sandbox.Close(); err != nil {
			t.Errorf("close box: %v", err)
		}
		if err := engine.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return &box{Sandbox: sandbox, ws: ws}
}

func (b *box) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	b.mu.Lock()
	b.runs++
	b.mu.Unlock()
	return b.Sandbox.Hold(ctx, cmd)
}

// used returns how many commands ran in the box.
func (b *box) used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs
}
