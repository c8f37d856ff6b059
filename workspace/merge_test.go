package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// working returns a workspace with two imported commits.
func working(t *testing.T) (*world, caisson.Workspace, *box) {
	t.Helper()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1"})
	box := newBox(t, ws)
	inside(t, box, "echo from-agent >>a.txt; git commit -qam 'change a'; echo n >n; git add n; git -c user.name=Agent -c user.email=agent@example.com commit -qm 'add n\n\nwith a body'")
	wd.importOK(ws, box, workspace.ImportOptions{})
	return wd, ws, box
}

func TestMergeModes(t *testing.T) { forModes(t, testMergeModes) }

func testMergeModes(t *testing.T) {
	for mode, want := range map[workspace.MergeMode][]string{
		workspace.MergeCommit: {"Merge branch 'caisson/r1' into main", "change a", "add n", "on main", "first"},
		workspace.MergeSquash: {"caisson/r1: 2 commits", "on main", "first"},
		workspace.MergeRebase: {"add n", "change a", "on main", "first"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			wd, ws, _ := working(t)
			wd.write(filepath.Join(wd.repo, "sub", "b.txt"), "two\nthree\n")
			wd.git("commit", "-qam", "on main")
			wd.write(filepath.Join(wd.repo, "untracked"), "mine")
			if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Mode: mode}); err != nil {
				t.Fatal(err)
			}
			got := strings.Split(wd.git("log", "--topo-order", "--format=%s"), "\n")
			if mode == workspace.MergeCommit { // two lines of history in either order
				if len(got) != len(want) || got[0] != want[0] || got[4] != "first" {
					t.Fatalf("%q", got)
				}
			} else if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
			if s := wd.git("status", "--porcelain"); s != "?? untracked" {
				t.Fatalf("status %q", s)
			}
			if mode == workspace.MergeRebase {
				if s := wd.git("log", "-1", "--format=%an|%ae|%cn|%b"); strings.TrimSpace(s) != "Agent|agent@example.com|Ada Person|with a body" {
					t.Fatalf("%q", s)
				}
			}
			again, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Mode: workspace.MergeCommit})
			if err != nil || mode == workspace.MergeCommit && again.New != again.Old {
				t.Fatalf("%+v, %v", again, err)
			}
			wd.git("fsck", "--strict")
		})
	}
}

func TestMergeLeavesEverythingAsItWas(t *testing.T) { forModes(t, testMergeLeavesEverythingAsItWas) }

func testMergeLeavesEverythingAsItWas(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(wd *world, ws caisson.Workspace)
		into    string
		code    caisson.Code
	}{
		"conflict": {func(wd *world, _ caisson.Workspace) {
			wd.write(filepath.Join(wd.repo, "a.txt"), "one\nfrom-person\n")
			wd.git("commit", "-qam", "conflicting")
		}, "", caisson.CodeMergeConflict},
		"dirty":                {func(wd *world, _ caisson.Workspace) { wd.write(filepath.Join(wd.repo, "sub", "b.txt"), "changed") }, "", caisson.CodeWorkspaceDirty},
		"staged":               {func(wd *world, _ caisson.Workspace) { wd.write(filepath.Join(wd.repo, "s"), "x"); wd.git("add", "s") }, "", caisson.CodeWorkspaceDirty},
		"untracked in the way": {func(wd *world, _ caisson.Workspace) { wd.write(filepath.Join(wd.repo, "n"), "mine") }, "", caisson.CodeWorkspaceDirty},
		"ignored in the way": {func(wd *world, _ caisson.Workspace) {
			wd.write(filepath.Join(wd.repo, ".git", "info", "exclude"), "n\n")
			wd.write(filepath.Join(wd.repo, "n"), "mine")
		}, "", caisson.CodeWorkspaceDirty},
		"merge under way": {func(wd *world, _ caisson.Workspace) {
			wd.write(filepath.Join(wd.repo, ".git", "MERGE_HEAD"), wd.git("rev-parse", "HEAD")+"\n")
		}, "", caisson.CodeWorkspaceDirty},
		"an agent's branch": {func(wd *world, _ caisson.Workspace) { wd.create(workspace.CreateSpec{Name: "other"}) }, "caisson/other", caisson.CodeBranchCheckedOut},
		"no such branch":    {nil, "nowhere", caisson.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws, _ := working(t)
			if c.prepare != nil {
				c.prepare(wd, ws)
			}
			see := func() string {
				files, err := os.ReadFile(filepath.Join(wd.repo, "a.txt"))
				wd.must(err)
				n, _ := os.ReadFile(filepath.Join(wd.repo, "n"))
				return wd.git("for-each-ref") + wd.git("status", "--porcelain", "--ignored") + string(files) + string(n)
			}
			before := see()
			for _, mode := range []workspace.MergeMode{workspace.MergeCommit, workspace.MergeSquash, workspace.MergeRebase} {
				_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: c.into, Mode: mode})
				wantCode(t, err, c.code)
				if files, _ := caisson.AsError(err).Detail["files"].([]string); c.code == caisson.CodeMergeConflict && !cmp.Equal(files, []string{"a.txt"}) {
					t.Fatalf("files %q", files)
				}
				if d := cmp.Diff(before, see()); d != "" {
					t.Fatal(d)
				}
			}
		})
	}
}

func TestSnapshots(t *testing.T) { forModes(t, testSnapshots) }

func testSnapshots(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	take := func(turn int) workspace.Snapshot {
		t.Helper()
		s, err := wd.w.Snapshot(t.Context(), ws, box, "r1", turn)
		if err != nil {
			t.Fatal(err)
		}
		if got := wd.git("rev-parse", s.Ref); got != s.Commit {
			t.Fatalf("%s is %s, want %s", s.Ref, got, s.Commit)
		}
		return s
	}
	if s := take(1); s.Changed || s.Commit != ws.Base {
		t.Fatalf("nothing was done: %+v", s)
	}
	inside(t, box, "echo u >untracked; echo l >x.log; echo s >>a.txt; git add a.txt; echo t >>a.txt; rm sub/b.txt")
	two := take(2)
	if got := wd.git("show", "--format=", "--name-status", two.Commit); !two.Changed || got != "M\ta.txt\nD\tsub/b.txt\nA\tuntracked" {
		t.Fatalf("%+v %q", two, got)
	}
	if got := inside(t, box, "git status --porcelain"); got != "MM a.txt\n D sub/b.txt\n?? untracked" {
		t.Fatalf("the agent's index was touched: %q", got)
	}
	if s := take(3); s.Changed || s.Commit != two.Commit {
		t.Fatalf("%+v", s)
	}
	inside(t, box, "git commit -qam mid; echo more >>untracked")
	four := take(4)
	if got := wd.git("log", "-2", "--format=%s", four.Commit); !four.Changed || got != "snapshot of r1 after turn 4\nmid" {
		t.Fatalf("%+v %q", four, got)
	}
	if got := wd.diff(ws, box, workspace.DiffOptions{From: two.Ref, To: four.Ref, Stat: true}); !strings.Contains(got, "untracked") || strings.Contains(got, "a.txt") {
		t.Fatal(got)
	}
	if wd.git("rev-parse", ws.Branch) != ws.Base {
		t.Fatal("a snapshot moved the branch")
	}
	// A repository below the tree does not stop a snapshot.
	inside(t, box, "git init -q nested; cd nested; git -c user.name=a -c user.email=b commit -q --allow-empty -m x")
	if s := take(5); !s.Changed {
		t.Fatalf("%+v", s)
	}
}

// File names are bytes. Origin: OpenShell 1965, nono 1521.
func TestNamesThatAreNotUTF8(t *testing.T) { forModes(t, testNamesThatAreNotUTF8) }

func testNamesThatAreNotUTF8(t *testing.T) {
	wd := newWorld(t)
	odd := "od\xffd\n\x01 'na\"me\\"
	wd.write(filepath.Join(wd.repo, odd), "one\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "odd")
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	if !exists(filepath.Join(ws.Path, odd)) {
		t.Fatal("not checked out")
	}
	inside(t, box, "for f in od*; do echo more >>\"$f\"; cp \"$f\" \"x$f\"; done; git add -A; git commit -qm inside; git branch \"$(printf 'b\\377x')\"")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("%+v", got)
	}
	if again := wd.importOK(ws, box, workspace.ImportOptions{}); len(again.Pinned) > 0 {
		t.Fatalf("%+v", again)
	}
	if s := wd.status(ws, box); s != "" {
		t.Fatalf("%q", s)
	}
	if _, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1); err != nil {
		t.Fatal(err)
	}
	wd.write(filepath.Join(wd.repo, odd), "two\n")
	wd.git("commit", "-qam", "conflicting")
	_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{})
	wantCode(t, err, caisson.CodeMergeConflict)
	wd.git("reset", "-q", "--hard", ws.Base)
	if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(wd.repo, "x"+odd)) {
		t.Fatal("not merged")
	}
}

// What the person staged in the outer worktree stays.
func TestImportKeepsStaging(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	wd.write(filepath.Join(ws.Path, "mine"), "x")
	wd.gitIn(ws.Path, "add", "mine")
	inside(t, box, "echo x >>a.txt; git commit -qm inside a.txt")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.IndexKept != "" {
		t.Fatalf("%+v", got)
	}
	if s := wd.gitIn(ws.Path, "status", "--porcelain"); s != "A  mine" {
		t.Fatalf("%q", s)
	}
	wd.write(filepath.Join(ws.Path, "a.txt"), "staged by the person")
	wd.gitIn(ws.Path, "add", "a.txt")
	inside(t, box, "echo y >a.txt; git commit -qm again a.txt")
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if !got.Moved || got.IndexKept == "" {
		t.Fatalf("%+v", got)
	}
	if s := wd.gitIn(ws.Path, "show", ":a.txt"); s != "staged by the person" {
		t.Fatalf("the staging was lost: %q", s)
	}
}

func BenchmarkImport(b *testing.B) {
	wd := newWorld(b)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(b, ws)
	for b.Loop() {
		b.StopTimer()
		inside(b, box, "date +%N >>a.txt; git commit -qam inside")
		b.StartTimer()
		wd.importOK(ws, box, workspace.ImportOptions{})
	}
}

func BenchmarkImportNothing(b *testing.B) {
	wd := newWorld(b)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	for b.Loop() {
		wd.importOK(ws, nil, workspace.ImportOptions{})
	}
}
