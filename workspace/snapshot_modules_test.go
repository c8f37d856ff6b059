//go:build linux

package workspace_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// modulesOf is what is in the trees of submodules, and what is checked out there.
func modulesOf(t *testing.T, box *box) string {
	t.Helper()
	return inside(t, box, `cd libs/dep; find . -name .git -prune -o -type f -printf '%p ' -exec cat {} \; | sort`)
}

// What was changed in submodules and not committed is in snapshots, is listed, and
// comes back; what is checked out there stays.
func TestSnapshotsHoldSubmodules(t *testing.T) { forModes(t, testSnapshotsHoldSubmodules) }

func testSnapshotsHoldSubmodules(t *testing.T) {
	wd := newWorld(t)
	wd.withSubmodule()
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1", Base: "HEAD"})
	box := newBox(t, ws)
	clean := wd.take(ws, box, 1)
	if clean.Changed || len(clean.Submodules) != 2 {
		t.Errorf("of a new one: %+v", clean)
	}
	inside(t, box, `set -e
cd libs/dep; echo changed >>dep.txt; echo new >new; mkdir d; echo in >d/f; echo ignored >x.log; echo '*.log' >>$(git rev-parse --git-dir)/info/exclude
echo inner >>in/ner/inner.txt; chmod +x in/ner/inner.txt`)
	two := wd.take(ws, box, 2)
	if !two.Changed || two.Partial != "" || slices.ContainsFunc(two.Submodules, func(m workspace.SubmoduleSnapshot) bool { return !m.Changed || m.Unkept != "" }) {
		t.Errorf("%+v", two)
	}
	first := modulesOf(t, box)
	inside(t, box, `set -e
cd libs/dep; git add dep.txt; git commit -qm dep; echo later >>dep.txt; rm -r new d; echo mine >d; rm in/ner/inner.txt; git add d`)
	heads := "git -C libs/dep rev-parse HEAD; git -C libs/dep diff --cached; git -C libs/dep/in/ner rev-parse HEAD"
	second, staged := modulesOf(t, box), inside(t, box, heads)

	// A clean-up of the submodule's own repository leaves what snapshots hold.
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	for _, dir := range []string{dep, filepath.Join(dep, "modules", "in", "ner")} {
		wd.gitIn(dir, "--git-dir=.", "--work-tree=.", "gc", "-q", "--prune=now")
	}
	restore := func(name, commit string, paths ...string) workspace.Restored {
		t.Helper()
		got, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: name, Commit: commit, Paths: paths})
		wd.must(err)
		return got
	}
	got := restore("@2", two.Commit)
	if d := cmp.Diff(first, modulesOf(t, box)); d != "" {
		t.Error(d)
	}
	if inside(t, box, heads) != staged {
		t.Error("what is checked out or staged was moved")
	}
	var changed []string
	for _, c := range got.Changes {
		changed = append(changed, c.Kind+" "+string(c.Path))
	}
	slices.Sort(changed)
	want := []string{"added libs/dep/d/f", "added libs/dep/in/ner/inner.txt", "added libs/dep/new", "changed libs/dep/dep.txt", "removed libs/dep/d"}
	if d := cmp.Diff(want, changed); d != "" || len(got.Left) > 0 || len(got.Submodules) != 2 {
		t.Errorf("%s\n%+v", d, got)
	}
	restore(got.Before.Name, got.Before.Commit)
	if d := cmp.Diff(second, modulesOf(t, box)); d != "" {
		t.Error(d)
	}
	restore("@2", two.Commit, "libs/dep/new", "libs/dep/in/ner")
	if got := inside(t, box, "cat libs/dep/new libs/dep/d; test -x libs/dep/in/ner/inner.txt"); got != "new\nmine" {
		t.Errorf("of paths: %q", got)
	}
	restore("@1", clean.Commit)
	if got := inside(t, box, "cat libs/dep/dep.txt libs/dep/in/ner/inner.txt libs/dep/x.log; ls libs/dep"); got != "dep\ninner\nignored\ndep.txt\nin\nx.log" {
		t.Errorf("as it was made: %q", got)
	}
	_, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@2", Commit: two.Commit, Paths: []string{"libs/dep/nothing"}})
	wantCode(t, err, caisson.CodeNotFound)

	kept, err := wd.w.Snapshots(t.Context(), ws)
	wd.must(err)
	listed := ""
	for _, k := range kept {
		if k.Name == "@2" {
			for _, c := range k.Changes {
				listed += c.Kind + " " + string(c.Path) + "\n"
			}
		}
		if len(k.Without) > 0 {
			t.Errorf("%s is without %q", k.Name, k.Without)
		}
	}
	if !strings.Contains(listed, "added libs/dep/new\n") || !strings.Contains(listed, "changed libs/dep/in/ner/inner.txt\n") {
		t.Errorf("listed: %s", listed)
	}
}

// A submodule that cannot be kept is told, and keeps nothing else from being kept.
func TestSnapshotWithoutASubmodule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string
		why  string
	}{
		"no git directory": {`rm -rf "$(git -C libs/dep rev-parse --git-dir)"`, "could not be read"},
		"moved away":       {`mv libs lib2`, "could not be read"},
		"no such commit":   {`echo $(printf '1%.0s' $(seq 40)) >"$(git -C libs/dep rev-parse --git-dir)/HEAD"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.withSubmodule()
			ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1", Base: "HEAD"})
			box := newBox(t, ws)
			inside(t, box, "echo one >mine; echo one >>libs/dep/dep.txt")
			one := wd.take(ws, box, 1)
			inside(t, box, "echo two >mine; "+c.line)
			if name == "moved away" {
				box = newBox(t, ws)
			}
			two := wd.take(ws, box, 2)
			i := slices.IndexFunc(two.Submodules, func(m workspace.SubmoduleSnapshot) bool { return m.Path == "libs/dep" })
			if i < 0 || two.Submodules[i].Unkept == "" || !strings.Contains(two.Submodules[i].Unkept, c.why) {
				t.Fatalf("%+v", two)
			}
			got, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@1", Commit: one.Commit, Paths: []string{"mine"}})
			if name != "moved away" { // git cannot look at the tree around it either
				wantCode(t, err, caisson.CodeWorkspaceDirty)
				return
			}
			if err != nil || len(got.Changes) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			if got := inside(t, box, "cat mine"); got != "one" {
				t.Errorf("restored: %q", got)
			}
			kept, err := wd.w.Snapshots(t.Context(), ws)
			wd.must(err)
			for _, k := range kept {
				if slices.Contains(k.Without, "libs/dep") != (k.Name != "@1") {
					t.Errorf("%s: without %q", k.Name, k.Without)
				}
			}
		})
	}
}

// A turn that is taken again, as after a crash, loses nothing of submodules; and
// they are thinned with the snapshots that they belong to.
func TestSnapshotsOfSubmodulesAgain(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.withSubmodule()
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1", Base: "HEAD"})
	box := newBox(t, ws)
	inside(t, box, "echo one >a; echo one >libs/dep/a")
	one := wd.take(ws, box, 1)
	inside(t, box, "echo two >a; echo two >libs/dep/a")
	wd.take(ws, box, 1)
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	refs := func(dir string) []string {
		return strings.Fields(wd.gitIn(dir, "--git-dir=.", "--work-tree=.", "for-each-ref", "--format=%(refname)", "refs/caisson/runs", "refs/caisson/workspaces/"+string(ws.ID)+"/snapshots"))
	}
	if here, there := refs(filepath.Join(wd.repo, ".git")), refs(dep); len(here) != 2 || !slices.Equal(here, there) {
		t.Fatalf("%q, of the submodule %q", here, there)
	}
	_, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@s1", Commit: one.Commit})
	wd.must(err)
	if got := inside(t, box, "cat a libs/dep/a"); got != "one\none" {
		t.Errorf("%q", got)
	}
	for turn := 2; turn < 25; turn++ {
		wd.take(ws, box, turn)
	}
	if here, there := refs(filepath.Join(wd.repo, ".git")), refs(dep); len(here) > 23 || !slices.Equal(here, there) {
		t.Errorf("%q, of the submodule %q", here, there)
	}
	wd.must(wd.w.DropSnapshots(t.Context(), ws))
	if left := append(refs(filepath.Join(wd.repo, ".git")), refs(dep)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
