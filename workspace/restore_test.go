package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// listing is what is in the tree, without git's pointer.
func listing(t *testing.T, box *box) string {
	t.Helper()
	return inside(t, box, `find . -path ./.git -prune -o ! -type d -printf '%p %M %l ' -exec sh -c 'cat -- "$1" | cksum; echo' - {} \; | sort`)
}

func (wd *world) take(ws caisson.Workspace, box *box, turn int) workspace.Snapshot {
	wd.t.Helper()
	s, err := wd.w.Snapshot(wd.t.Context(), ws, box, ws.Run, turn)
	wd.must(err)
	return s
}

// A whole tree is brought back, and what was there before again.
func TestRestoreWholeTree(t *testing.T) { forModes(t, testRestoreWholeTree) }

func testRestoreWholeTree(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1"})
	box := newBox(t, ws)
	inside(t, box, `mkdir -p d/e; echo u >d/e/u; echo x >x; chmod +x x; ln -s x l; rm sub/b.txt; printf 'o\n' >"$(printf 'o\377dd\n')"; echo t >turns`)
	one := wd.take(ws, box, 1)
	first := listing(t, box)
	inside(t, box, `rm -r d; echo now-a-file >d; chmod -x x; rm l; mkdir l; echo in >l/f; echo b >sub/b.txt; echo secret >kept.log; echo new >new; git add new; git commit -qm meanwhile; echo later >>a.txt; git add a.txt`)
	wd.importOK(ws, box, workspace.ImportOptions{})
	second := listing(t, box)
	tip, staged := wd.git("rev-parse", "caisson/r1"), inside(t, box, "git rev-parse HEAD; git diff --cached")

	got, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: one.Name, Commit: one.Commit})
	wd.must(err)
	if got.Before.Name != "@s1" || !got.Before.Changed {
		t.Errorf("%+v", got)
	}
	inside(t, box, "grep -q secret kept.log && rm kept.log")
	if d := cmp.Diff(first, listing(t, box)); d != "" {
		t.Error(d)
	}
	if wd.git("rev-parse", "caisson/r1") != tip || inside(t, box, "git rev-parse HEAD; git diff --cached") != staged {
		t.Error("the branch or what was staged was moved")
	}
	inside(t, box, "echo secret >kept.log")
	back, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@s1", Commit: got.Before.Commit})
	wd.must(err)
	if d := cmp.Diff(second, listing(t, box)); d != "" {
		t.Error(d)
	}
	if back.Before.Name != "@s2" || back.Before.Commit == got.Before.Commit {
		t.Errorf("%+v", back)
	}
	again, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@s1", Commit: got.Before.Commit})
	if err != nil || len(again.Changes) > 0 {
		t.Errorf("%+v, %v", again, err)
	}
	wd.git("fsck", "--strict")
}

// Of single files nothing is removed that the snapshot does not hold.
func TestRestorePaths(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1"})
	box := newBox(t, ws)
	inside(t, box, "echo u >sub/u; echo '*' >'sub/*'; echo keep >keep")
	one := wd.take(ws, box, 1)
	inside(t, box, "echo changed | tee sub/u a.txt 'sub/*' >keep; rm sub/b.txt; echo n >sub/new")
	restore := func(paths ...string) error {
		_, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@1", Commit: one.Commit, Paths: paths})
		return err
	}
	for path, code := range map[string]caisson.Code{
		"../x": caisson.CodePathOutside, "/etc/passwd": caisson.CodePathOutside, "a/../../x": caisson.CodePathOutside, "": caisson.CodePathOutside,
		"nothing": caisson.CodeNotFound, "sub/new": caisson.CodeNotFound, "--": caisson.CodeNotFound,
	} {
		wantCode(t, restore(path), code)
	}
	wd.must(restore("sub/*"))
	if got := inside(t, box, "cat sub/u 'sub/*'"); got != "changed\n*" {
		t.Fatalf("%q", got)
	}
	wd.must(restore("sub/", "./a.txt"))
	if got := inside(t, box, "cat sub/u sub/b.txt sub/new a.txt keep"); got != "u\ntwo\nn\none\nchanged" {
		t.Fatalf("%q", got)
	}
	inside(t, box, "rm keep; mkdir keep; echo f >keep/f")
	wantCode(t, restore("keep"), caisson.CodeWorkspaceDirty)
	wantCode(t, restore("."), caisson.CodeWorkspaceDirty)
	inside(t, box, "rm -r keep sub; echo f >sub")
	wantCode(t, restore("sub/u"), caisson.CodeWorkspaceDirty)
	inside(t, box, "rm sub")
	wd.must(restore("."))
	if got := inside(t, box, "cat keep sub/u sub/b.txt"); got != "keep\nu\ntwo" {
		t.Fatalf("%q", got)
	}
}

// What no snapshot holds is never overwritten, and then nothing is written.
func TestRestoreOverwritesNothingThatIsNotKept(t *testing.T) {
	t.Parallel()
	repository := "git init -q nested; cd nested; echo precious >f; git add f; git -c user.name=a -c user.email=b@c commit -qm f"
	for name, c := range map[string]struct {
		one, between, two, lost, left string
		refused                       bool
	}{
		"ignored file in the way":           {"echo mine >notes", "echo notes >>.gitignore; rm notes", "echo precious >notes", "notes", "", true},
		"ignored directory in the way":      {"echo mine >notes", "echo notes >>.gitignore; rm notes", "mkdir notes; echo precious >notes/n", "notes/n", "", true},
		"ignored file for a directory":      {"mkdir notes; echo mine >notes/n", "echo notes >>.gitignore; rm -r notes", "echo precious >notes", "notes", "", true},
		"ignored now, kept before":          {"echo mine >notes", "", "echo notes >>.gitignore; echo precious >notes", "notes", "[]", false},
		"repository for a file":             {"echo mine >nested", "", "rm nested; " + repository, "nested/f", "[nested]", false},
		"repository over files":             {"mkdir nested; echo mine >nested/f", "", "rm -r nested; " + repository, "nested/f", "[]", false},
		"repository for files":              {"mkdir nested; echo mine >nested/f", "rm -r nested", repository, "nested/f", "", true},
		"repository that was not there":     {"echo one >a.txt", "", repository, "nested/f", "[nested]", false},
		"file hidden from git by its index": {"echo mine >local; git add local; git commit -qm local", "", "echo notes >n; git update-index --assume-unchanged local; echo precious >local", "local", "[]", false},
		"file left out by its index":        {"echo mine >local; git add local; git commit -qm local", "", "echo notes >n; git update-index --skip-worktree local; echo precious >local", "local", "[]", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1"})
			box := newBox(t, ws)
			inside(t, box, c.one)
			var one workspace.Snapshot
			if strings.HasSuffix(name, "its index") { // the look at the tree begins with the agent's index
				wd.importOK(ws, box, workspace.ImportOptions{})
				one.Commit = wd.git("rev-parse", "caisson/r1")
			} else {
				one = wd.take(ws, box, 1)
			}
			if c.between != "" {
				inside(t, box, c.between)
				wd.take(ws, box, 2)
			}
			inside(t, box, c.two)
			got, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: "@1", Commit: one.Commit})
			kept, _ := wd.tryGit(wd.repo, "show", got.Before.Commit+":"+c.lost)
			there, _ := tryInside(t, box, "cat "+c.lost)
			if strings.TrimSpace(kept) != "precious" && there != "precious" {
				t.Fatalf("lost: %q, %q (%v)", kept, there, err)
			}
			if c.refused {
				wantCode(t, err, caisson.CodeWorkspaceDirty)
				if there != "precious" {
					t.Fatalf("refused, and not left alone: %q", there)
				}
			} else if err != nil || fmt.Sprint(got.Left) != c.left {
				t.Fatalf("%+v, %v", got, err)
			}
		})
	}
}

func TestSnapshotsAreListedAndThinned(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1"})
	box := newBox(t, ws)
	later := func() { // git's times are whole seconds, and those of one second are in no order
		last := time.Now().Unix()
		wd.until(func() bool { return time.Now().Unix() > last })
	}
	for turn := 1; turn <= 24; turn++ {
		if turn == 24 {
			later()
		}
		if turn < 4 || turn == 24 {
			inside(t, box, fmt.Sprintf("echo %d >f%d", turn, turn))
		}
		wd.take(ws, box, turn)
	}
	later()
	if _, err := wd.w.Snapshot(t.Context(), ws, box, "r2", 1); err != nil {
		t.Fatal(err)
	}
	if got := wd.git("for-each-ref", "--format=%(refname:lstrip=4)", "refs/caisson/runs/r1"); len(strings.Fields(got)) != 20 || strings.Contains(got+"\n", "4\n5\n1\n") {
		t.Fatalf("%q", got)
	}
	inside(t, box, "echo again >f24")
	wd.take(ws, box, 24) // told twice, as after a crash
	kept, err := wd.w.Snapshots(t.Context(), ws, "r2")
	wd.must(err)
	byName := map[string]workspace.Kept{}
	var names []string
	for _, k := range kept {
		byName[k.Name] = k
		names = append(names, k.Name)
	}
	want := "@5 @6 @7 @8 @9 @10 @11 @12 @13 @14 @15 @16 @17 @18 @19 @20 @21 @22 @23"
	if got := strings.Join(names, " "); !strings.HasPrefix(got, want+" ") || len(names) != 22 {
		t.Fatalf("%q", got)
	}
	if d := cmp.Diff([]workspace.Change{{Kind: "added", Path: "f1"}, {Kind: "added", Path: "f2"}, {Kind: "added", Path: "f3"}}, kept[0].Changes); d != "" {
		t.Error(d)
	}
	if len(kept[3].Changes) != 0 || byName["@24"].On != ws.Base || byName["@s1"].Commit != byName["@r2/1"].Commit {
		t.Errorf("%+v", byName)
	}
	for word, commit := range map[string]string{"@24": byName["@24"].Commit, "@r1/24": byName["@24"].Commit, "@s1": byName["@s1"].Commit, "base": ws.Base, "now": "", "main": ws.Base} {
		if got, err := wd.w.Revision(t.Context(), ws, word, "r2"); err != nil || got != commit {
			t.Errorf("%s: %s, %v", word, got, err)
		}
	}
	for _, word := range []string{"@1", "@", "@x", "@s2", "@r1/", "nothing", "", "--all", "@{-1}"} {
		_, err := wd.w.Revision(t.Context(), ws, word, "r2")
		wantCode(t, err, caisson.CodeNotFound)
	}

	// Dropped are those of its own runs; "r2" is on record with another workspace.
	for run, of := range map[caisson.RunID]caisson.WorkspaceID{"r2": "wother", "r3": ws.ID} {
		if _, err := wd.store.CreateRun(t.Context(), run, caisson.RunSpec{Workspace: of, Root: run}); err != nil {
			t.Fatal(err)
		}
		if _, err := wd.w.Snapshot(t.Context(), ws, box, run, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wd.must(wd.w.DropSnapshots(t.Context(), ws))
	}
	if got := wd.git("for-each-ref", "--format=%(refname)", "refs/caisson/runs", "refs/caisson/workspaces/"+string(ws.ID)+"/snapshots"); got != "refs/caisson/runs/r2/1" {
		t.Fatalf("%q", got)
	}
	wd.git("update-ref", "-d", "refs/caisson/runs/r2/1")
	wd.git("gc", "-q", "--prune=now")
	wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git", "logs")))
	if s := wd.take(ws, box, 25); !s.Changed {
		t.Fatalf("a commit that is gone was taken for the last snapshot: %+v", s)
	}
	wd.git("fsck", "--strict")
}

// A snapshot asks the box for what changed, not for the tree.
func TestSnapshotReadsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1"})
	box := newBox(t, ws)
	inside(t, box, "echo x >x")
	wd.take(ws, box, 1)
	used := box.used()
	wd.take(ws, box, 2)
	if n := box.used() - used; n != 1 {
		t.Errorf("%d commands for a tree that did not change", n)
	}
	before := strings.Fields(wd.git("count-objects"))[0]
	inside(t, box, "echo y >y")
	wd.take(ws, box, 3)
	var was, is int
	_, err := fmt.Sscan(before+" "+strings.Fields(wd.git("count-objects"))[0], &was, &is)
	if wd.must(err); is-was != 3 { // blob, tree, commit
		t.Errorf("%d objects came for one file", is-was)
	}
}
