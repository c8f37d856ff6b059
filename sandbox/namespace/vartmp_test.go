//go:build linux

package namespace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
)

// /var/tmp is a link to /tmp inside, unless something that is lent lies below it.
func TestWorkspaceBelowVarTmp(t *testing.T) {
	ws, err := os.MkdirTemp("/var/tmp", "caisson-test-") //nolint:usetesting // the place is what is tested
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(ws) })
	sb, err := engine(t).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close() })
	p, err := sb.Hold(t.Context(), caisson.Command{Line: "touch made /var/tmp/own && ls /var/tmp"})
	if err == nil {
		err = p.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := os.Stat(filepath.Join(ws, "made")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/var/tmp/own"); err == nil {
		t.Error("the box wrote to the host's /var/tmp")
	}
}
