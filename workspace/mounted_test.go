//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// What a person has mounted in a workspace, be it in an ignored directory, is not
// removed with it: it is found, and where it was moved along with the person's
// word, or mounted since, nothing is removed for good before it is unmounted.
func TestMountedInWorkspace(t *testing.T) {
	needsRoot(t)
	wd, ws := trashWorld(t, "echo 'data*' >.gitignore && git commit -qam ignore && mkdir 'data: 1'")
	wd.git("merge", "-q", ws.Branch)
	wd.inspect(ws)
	wd.git("merge", "-q", ws.Branch)
	elsewhere := t.TempDir()
	precious := filepath.Join(elsewhere, "precious")
	wd.write(precious, "of somebody else\n")
	mount := func(at string) {
		wd.must(unix.Mount(elsewhere, at, "", unix.MS_BIND, ""))
		t.Cleanup(func() { _ = unix.Unmount(at, 0) }) // where it is still there
	}
	mount(filepath.Join(ws.Path, "data: 1"))
	found := wd.inspect(ws)
	if len(found.Losses) != 1 || found.Losses[0].Kind != workspace.LossUnknown || found.Losses[0].What != "data: 1" {
		t.Fatalf("found %v", found.Losses)
	}
	if d := workspace.Decide(found, workspace.Ask{Batch: true}); d.Mode != workspace.ModeRefused {
		t.Errorf("a batch: %v", d.Mode)
	}
	wd.remove(discard(t, found))
	at := filepath.Join(wd.state, "trash", string(ws.ID), "tree", "data: 1")
	err := wd.w.Prune(t.Context(), ws.ID)
	wantCode(t, err, caisson.CodeWorkspaceDirty)
	if err != nil && !strings.Contains(caisson.AsError(err).HintText(), "umount '"+at+"'") {
		t.Errorf("the hint of %v: %s", err, caisson.AsError(err).HintText())
	}
	if !exists(precious) {
		t.Fatal("what was mounted is removed")
	}
	wd.must(unix.Unmount(at, 0))
	wd.must(wd.w.Tidy(t.Context()))
	if exists(filepath.Dir(at)) {
		t.Error("it is still there once nothing is mounted")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// What is mounted after a workspace was looked at keeps it where it is.
func TestMountedSinceInspection(t *testing.T) {
	needsRoot(t)
	wd, ws := trashWorld(t, "mkdir empty")
	at := filepath.Join(ws.Home, "cache")
	wd.must(os.Mkdir(at, 0o755))
	permit := workspace.Decide(wd.inspect(ws), workspace.Ask{}).Permit
	wd.must(unix.Mount("none", at, "tmpfs", 0, ""))
	t.Cleanup(func() { wd.must(unix.Unmount(at, 0)) })
	_, err := wd.w.Remove(t.Context(), permit, "ada")
	wantCode(t, err, caisson.CodeWorkspaceDirty)
	if !strings.Contains(err.Error(), "something is mounted at ") {
		t.Error(err)
	}
	if !exists(filepath.Join(ws.Path, "a.txt")) || !exists(at) {
		t.Error("it is not where it was")
	}
}
