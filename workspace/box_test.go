//go:build linux

package workspace_test

import (
	"context"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
	"github.com/caisson-run/caisson/workspace"
)

// box is an open sandbox of the built-in engine around a workspace.
type box struct {
	caisson.Sandbox
	ws   caisson.Workspace
	mu   sync.Mutex
	runs int
}

func newBox(t testing.TB, ws caisson.Workspace) *box {
	t.Helper()
	return newBoxOf(t, namespace.New(namespace.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()}), ws)
}

// around is a boundary around a workspace, with all that is lent of it.
func around(ws caisson.Workspace, require ...caisson.Control) caisson.SandboxSpec {
	lent := workspace.Lend(ws)
	return caisson.SandboxSpec{
		ID: caisson.NewSandboxID(), Workspace: ws.Path, GitCover: ws.Cover, GitDir: ws.Shadow, GitObjects: lent.Objects, GitTrees: lent.Trees, Home: ws.Home, Require: require,
	}
}

type closingEngine interface {
	caisson.Engine
	Close() error
}

func newBoxOf(t testing.TB, engine closingEngine, ws caisson.Workspace, require ...caisson.Control) *box {
	t.Helper()
	sandbox, err := engine.Open(t.Context(), around(ws, require...))
	if code := caisson.CodeOf(err); code == caisson.CodeIsolationUnavailable || code == caisson.CodeEngineUnavailable {
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
