//go:build linux

package workspace_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// What a workspace kept in the repositories of its submodules goes when it is
// removed for good, and nothing else there does.
func TestPruneReleasesSubmodules(t *testing.T) { forModes(t, testPruneReleasesSubmodules) }

func testPruneReleasesSubmodules(t *testing.T) {
	wd := newWorld(t)
	wd.withSubmodule()
	wd.boxes()
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	inner := filepath.Join(dep, "modules", "in", "ner")
	goes, stays := wd.create(workspace.CreateSpec{Name: "goes", Run: "r1", Base: "HEAD"}), wd.create(workspace.CreateSpec{Name: "stays", Run: "r2", Base: "HEAD"})
	commits := map[string]string{}
	for _, ws := range []caisson.Workspace{goes, stays} {
		out, code := wd.tryWork(ws, `set -e
cd libs/dep/in/ner; git commit -q --allow-empty -m `+ws.Name+`; cd ../..
echo `+ws.Name+` >>dep.txt; git commit -qam `+ws.Name+`; git rev-parse HEAD; echo more >>dep.txt`)
		if commits[ws.Name] = strings.TrimSpace(out); code != 0 {
			t.Fatal(out)
		}
		wd.importOK(ws, nil, workspace.ImportOptions{})
		_, err := wd.w.Snapshot(t.Context(), ws, nil, ws.Run, 1)
		wd.must(err)
	}
	wd.gitIn(dep, "--git-dir=.", "--work-tree=.", "update-ref", "refs/caisson/diverged/x/1", "HEAD")
	refs := func() (all []string) {
		for _, dir := range []string{dep, inner} {
			for _, name := range strings.Fields(wd.gitIn(dir, "--git-dir=.", "--work-tree=.", "for-each-ref", "--format=%(refname)", "refs/caisson")) {
				all = append(all, filepath.Base(dir)+": "+name)
			}
		}
		return all
	}
	of := func(word string) (n int) {
		for _, name := range refs() {
			if strings.Contains(name, "/"+word+"/") {
				n++
			}
		}
		return n
	}
	before := of(string(goes.ID)) + of("r1")
	others := len(refs()) - before
	if of(string(goes.ID)) < 4 || others < 5 {
		t.Fatalf("kept: %q", refs())
	}
	wd.remove(discard(t, wd.inspect(goes)))
	if n := of(string(goes.ID)) + of("r1"); n != before {
		t.Errorf("in the trash %d of %d are kept: %q", n, before, refs())
	}
	goes = wd.restore(goes)
	wd.remove(discard(t, wd.inspect(goes)))
	wd.must(wd.w.Prune(t.Context(), goes.ID))
	if n := of(string(goes.ID)) + of("r1"); n != 0 || len(refs()) != others {
		t.Errorf("after the prune %d are left, and %d of %d others: %q", n, len(refs())-n, others, refs())
	}
	for _, dir := range []string{dep, inner} {
		wd.gitIn(dir, "--git-dir=.", "--work-tree=.", "reflog", "expire", "--expire=now", "--all")
		wd.gitIn(dir, "--git-dir=.", "--work-tree=.", "gc", "-q", "--prune=now")
	}
	if _, err := wd.tryGit(dep, "--git-dir=.", "cat-file", "-e", commits["goes"]); err == nil {
		t.Error("the commit of the one that is gone is kept")
	}
	wd.gitIn(dep, "--git-dir=.", "rev-list", "--objects", commits["stays"])
	inside(t, newBox(t, stays), "git -C libs/dep fsck --strict; git status >/dev/null")
}
