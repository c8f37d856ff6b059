//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/landlock"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
	"github.com/caisson-run/caisson/workspace"
)

// newClone returns a world with a clone in it.
func newClone(t testing.TB, name string) (*world, caisson.Workspace) {
	t.Helper()
	wd := newWorld(t)
	wd.mode = caisson.WorkspaceClone
	return wd, wd.create(workspace.CreateSpec{Name: name})
}

func TestCloneLeavesNoRecordInTheRepository(t *testing.T) {
	wd, ws := newClone(t, "r1")
	if ws.Cover != "" || ws.Shadow != filepath.Join(ws.Path, ".git") || ws.Binding.AdminDir != "" {
		t.Fatalf("%+v", ws)
	}
	if exists(filepath.Join(wd.repo, ".git", "worktrees")) {
		t.Fatal("there is a worktree")
	}
	want := ws.Base + " refs/caisson/workspaces/" + string(ws.ID) + "/base\n" + ws.Base + " refs/heads/caisson/r1\n" + ws.Base + " refs/heads/main"
	if got := wd.git("for-each-ref", "--format=%(objectname) %(refname)"); got != want {
		t.Fatalf("%s", got)
	}
	// Objects are borrowed, not copied, and what is not needed stays where it is.
	box := newBox(t, ws)
	if got := inside(t, box, "git count-objects; git rev-list --objects --all | wc -l; git fsck --strict 2>&1; git gc -q; git log --format=%s"); !strings.HasPrefix(got, "0 objects, 0 kilobytes\n") || !strings.HasSuffix(got, "first") {
		t.Fatal(got)
	}
	if out, code := tryInside(t, box, "touch "+ws.Objects[0]+"/x"); code == 0 {
		t.Fatalf("the repository's objects can be written inside: %s", out)
	}
}

// The clone's part of W06: whatever is put in the place of the git directory in
// the tree, nothing is followed. Origin: the class of GHSA-q5hj.
func TestCase_W06_clone(t *testing.T) {
	for name, forge := range map[string]string{
		"a link to another repository": "mv .git away; ln -s $OTHER/.git .git",
		"a link in the tree":           "mv .git away; ln -s away .git",
		"a link to itself":             "mv .git away; ln -s .git .git",
		"a pointer":                    "mv .git away; echo gitdir: $OTHER/.git >.git",
		"a pointer that is answered":   "mv .git away; mkdir -p r/worktrees/x; cp -r away/. r; echo gitdir: $PWD/r/worktrees/x >.git; echo $PWD/.git >r/worktrees/x/gitdir; echo ../.. >r/worktrees/x/commondir; cp away/HEAD r/worktrees/x",
		"a pipe":                       "mv .git away; mkfifo .git",
		"nothing":                      "rm -rf .git",
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws := newClone(t, "r6")
			other := filepath.Join(filepath.Dir(wd.repo), "other")
			wd.must(os.Mkdir(other, 0o755))
			wd.gitIn(other, "init", "-q")
			wd.gitIn(other, "commit", "-q", "--allow-empty", "-m", "other")
			before := wd.gitIn(other, "for-each-ref")
			box := newBox(t, ws)
			inside(t, box, "git commit -q --allow-empty -m inside")
			wd.must(wd.w.Check(t.Context(), ws))
			inside(t, box, "OTHER='"+other+"'; "+forge)
			wantCode(t, wd.w.Check(t.Context(), ws), caisson.CodeWorkspaceBindingLost)
			used := box.used()
			_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
			wantCode(t, err, caisson.CodeWorkspaceBindingLost)
			_, err = wd.w.Snapshot(t.Context(), ws, box, "r6", 1)
			wantCode(t, err, caisson.CodeWorkspaceBindingLost)
			wantCode(t, wd.w.Diff(t.Context(), ws, box, workspace.DiffOptions{Out: os.Stderr}), caisson.CodeWorkspaceBindingLost)
			if box.used() != used {
				t.Fatal("something was done in the box")
			}
			// Where a person stands in it, the record says what it is of.
			if got, err := wd.w.Find(t.Context(), ws.Path, "r6"); err != nil || got.ID != ws.ID {
				t.Fatalf("%v, %v", got.ID, err)
			}
			if again, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: ws.Path}); err != nil || again.Binding.CommonDir != ws.Binding.CommonDir {
				t.Fatalf("%v, %v", again.Binding, err)
			}
			if wd.gitIn(other, "for-each-ref") != before {
				t.Fatal("the other repository was changed")
			}
		})
	}
	for name, forge := range map[string]func(wd *world, ws caisson.Workspace){
		"directory swapped": func(wd *world, ws caisson.Workspace) {
			wd.must(os.Rename(ws.Path, ws.Path+".away"))
			wd.must(os.CopyFS(ws.Path, os.DirFS(ws.Path+".away")))
		},
		"repository replaced": func(wd *world, _ caisson.Workspace) {
			wd.must(os.Rename(wd.repo, wd.repo+".away"))
			wd.must(os.CopyFS(wd.repo, os.DirFS(wd.repo+".away")))
		},
		"record of another branch": func(wd *world, ws caisson.Workspace) {
			wd.write(filepath.Join(filepath.Dir(ws.Home), "outer", "HEAD"), "ref: refs/heads/main\n")
		},
		"record of another repository": func(wd *world, ws caisson.Workspace) {
			wd.write(filepath.Join(filepath.Dir(ws.Home), "outer", "commondir"), wd.home+"\n")
		},
		"no record": func(wd *world, ws caisson.Workspace) {
			wd.must(os.RemoveAll(filepath.Join(filepath.Dir(ws.Home), "outer")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws := newClone(t, "r6")
			forge(wd, ws)
			wantCode(t, wd.w.Check(t.Context(), ws), caisson.CodeWorkspaceBindingLost)
			_, err := wd.w.Import(t.Context(), ws, nil, workspace.ImportOptions{})
			wantCode(t, err, caisson.CodeWorkspaceBindingLost)
		})
	}
}

// A git directory of the agent's own making is data as any other: what it has
// is kept, and the branch does not go to a history that is another.
func TestCloneMadeAnewInside(t *testing.T) {
	wd, ws := newClone(t, "r1")
	box := newBox(t, ws)
	inside(t, box, "rm -rf .git; git init -q -b caisson/r1; git -c user.name=a -c user.email=b commit -q --allow-empty -m anew")
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if got.Moved || got.Diverged == "" || wd.git("log", "-1", "--format=%s", got.Diverged) != "anew" {
		t.Fatalf("%+v", got)
	}
	if wd.git("rev-parse", "caisson/r1") != ws.Base {
		t.Fatal("the branch was moved")
	}
}

// Nothing in the repository keeps a person from checking the branch out, whose
// checkout an import would then make a lie.
func TestCloneBranchCheckedOut(t *testing.T) {
	wd, ws := newClone(t, "r1")
	box := newBox(t, ws)
	wd.git("switch", "-q", ws.Branch)
	inside(t, box, "echo x >x; git add x; git commit -q -m one")
	for range 2 { // it is looked at again each time, and kept once
		got := wd.importOK(ws, box, workspace.ImportOptions{})
		if got.Moved || got.Diverged != "refs/caisson/diverged/caisson/r1/1" || !strings.Contains(got.Why, wd.repo) {
			t.Fatalf("%+v", got)
		}
	}
	if s := wd.git("status", "--porcelain", "--branch"); s != "## caisson/r1" {
		t.Fatal(s)
	}
	wd.git("switch", "-q", "main")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || wd.git("log", "-1", "--format=%s", ws.Branch) != "one" {
		t.Fatalf("%+v", got)
	}
	used := box.used()
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); got.Moved || got.Diverged != "" || box.used() != used {
		t.Fatalf("%+v", got)
	}
}

// Engines that cover files in other ways, or cannot, open a clone like any tree.
func TestCloneInOtherEngines(t *testing.T) {
	for name, engine := range map[string]closingEngine{
		"bubblewrap": bubblewrap.New(bubblewrap.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()}),
		"landlock":   landlock.New(landlock.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID(), Dir: filepath.Join(t.TempDir(), "landlock")}),
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws := newClone(t, "r1")
			box := newBoxOf(t, engine, ws, caisson.ControlSyscalls)
			if name == "landlock" {
				if box.Isolation().NoCover == "" {
					t.Fatal("it does not say that it covers nothing")
				}
				if row := box.Isolation().Row(caisson.ControlFiles); row.Enforced != (os.Geteuid() != 0) {
					t.Fatalf("%+v", row)
				}
			}
			inside(t, box, "test -z \"$(git status --porcelain)\" && echo more >>a.txt && git commit -qam inside && echo u >u && git gc -q")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Fatalf("%+v", got)
			}
			if s, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1); err != nil || !s.Changed || s.Partial != "" {
				t.Fatalf("%+v, %v", s, err)
			}
			if got := wd.diff(ws, box, workspace.DiffOptions{}); !strings.Contains(got, "+more") || !strings.Contains(got, "+u") {
				t.Fatal(got)
			}
			if out, code := tryInside(t, box, "git push -q '"+wd.repo+"' HEAD:refs/heads/pushed || touch '"+ws.Objects[0]+"/x'"); code == 0 {
				t.Fatalf("the repository can be written inside: %s", out)
			}
		})
	}
}
