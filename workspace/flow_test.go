package workspace_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/workspace"
)

func TestCreateImportDiffMerge(t *testing.T) { forModes(t, testCreateImportDiffMerge) }

func testCreateImportDiffMerge(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1", By: "ada"})
	box := newBox(t, ws)
	if got := wd.status(ws, box, "--branch"); got != "## caisson/r1" {
		t.Fatalf("the new worktree is not clean: %q", got)
	}
	if got := inside(t, box, "git status --porcelain --branch"); got != "## caisson/r1" {
		t.Fatalf("inside it is not clean: %q", got)
	}
	inside(t, box, "echo more >>a.txt; echo new >new.txt; git add -A; git commit -qm 'work inside'; echo later >later.txt")
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if !got.Moved || got.IndexKept != "" || got.Diverged != "" {
		t.Fatalf("import: %+v", got)
	}
	if tip := wd.git("rev-parse", "caisson/r1"); tip != got.New {
		t.Fatalf("branch is at %s, want %s", tip, got.New)
	}
	if got := wd.git("log", "-1", "--format=%an <%ae>", "caisson/r1"); got != "Ada Person <ada@example.com>" {
		t.Fatalf("author %q", got)
	}
	if got := wd.status(ws, box); got != "?? later.txt" {
		t.Fatalf("outer status after import: %q", got)
	}
	used := box.used()
	if again := wd.importOK(ws, box, workspace.ImportOptions{}); again.Moved || box.used() != used {
		t.Fatalf("nothing new asked the box: %+v", again)
	}

	var diff bytes.Buffer
	if err := wd.w.Diff(t.Context(), ws, box, workspace.DiffOptions{Out: &diff}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+more", "+new", "+later"} {
		if !strings.Contains(diff.String(), want) {
			t.Errorf("diff lacks %q:\n%s", want, &diff)
		}
	}
	log, err := wd.w.Log(t.Context(), ws, 0)
	if err != nil || len(log) != 1 || log[0].Subject != "work inside" {
		t.Fatalf("log: %+v, %v", log, err)
	}

	merged, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if merged.New != got.New || merged.Checkout != wd.repo {
		t.Fatalf("merged: %+v", merged)
	}
	if status := wd.git("status", "--porcelain", "--branch"); status != "## main" {
		t.Fatalf("main checkout after merge: %q", status)
	}
	if !exists(filepath.Join(wd.repo, "new.txt")) {
		t.Fatal("the checkout was not brought along")
	}
	if out := wd.git("fsck", "--strict"); strings.Contains(out, "error") {
		t.Fatal(out)
	}
}
