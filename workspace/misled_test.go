package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// agent commits one file in a workspace.
func (wd *world) agent(ws caisson.Workspace, name, text string) {
	wd.t.Helper()
	box := newBox(wd.t, ws)
	inside(wd.t, box, "echo "+text+" >"+name+"; git add -A; git commit -q -m inside")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		wd.t.Fatalf("%+v", got)
	}
}

// A repository that came with records of worktrees names a directory of the
// person's as one: a merge would write its files there.
func TestMergeIntoForgedWorktree(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(wd *world, victim, admin string){
		"no pointer back": func(*world, string, string) {},
		"pointer to another repository": func(wd *world, victim, _ string) {
			wd.write(filepath.Join(victim, ".git"), "gitdir: "+wd.home+"/other/.git/worktrees/x\n")
			wd.must(os.MkdirAll(wd.home+"/other/.git/worktrees/x", 0o755))
		},
		"a worktree of another repository": func(wd *world, victim, admin string) {
			other := filepath.Join(wd.home, "other")
			wd.must(os.CopyFS(other, os.DirFS(wd.repo))) // which the repository knows
			wd.write(filepath.Join(victim, ".git"), "gitdir: "+other+"/.git/worktrees/made\n")
			wd.must(os.RemoveAll(admin))
			wd.must(os.Symlink(other+"/.git/worktrees/made", admin))
		},
		"a repository of its own": func(wd *world, victim, _ string) { wd.gitIn(victim, "init", "-q") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{})
			wd.agent(ws, "rc", "harm")
			victim := filepath.Join(wd.home, "victim")
			wd.write(filepath.Join(victim, "mine"), "mine\n")
			wd.git("branch", "into")
			wd.git("worktree", "add", "-q", "../made", "into")
			admin := filepath.Join(wd.repo, ".git", "worktrees", "made")
			// All that is tracked is said to be as it was, whatever is there.
			wd.gitIn(filepath.Join(filepath.Dir(wd.repo), "made"), "update-index", "--skip-worktree", "a.txt", "sub/b.txt", ".gitignore")
			wd.write(filepath.Join(admin, "gitdir"), filepath.Join(victim, ".git")+"\n")
			forge(wd, victim, admin)
			before := digestOf(t, victim)
			_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "into"})
			wantCode(t, err, caisson.CodeBranchCheckedOut)
			if digestOf(t, victim) != before {
				t.Fatal("a directory of the person's was written")
			}
			if wd.git("rev-parse", "into") != ws.Base {
				t.Fatal("the branch was moved")
			}
		})
	}
}

// A worktree of the person's is brought along, also where its pointers are relative.
func TestMergeIntoWorktree(t *testing.T) {
	t.Parallel()
	for _, relative := range []bool{false, true} {
		wd := newWorld(t)
		ws := wd.create(workspace.CreateSpec{})
		wd.agent(ws, "rc", "good")
		made := filepath.Join(filepath.Dir(wd.repo), "made")
		wd.git("worktree", "add", "-q", "-b", "into", made, ws.Base)
		if relative {
			wd.write(filepath.Join(made, ".git"), "gitdir: ../my project/.git/worktrees/made\n")
			wd.write(filepath.Join(wd.repo, ".git/worktrees/made/gitdir"), "../../../../made/.git\n")
		}
		got, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "into"})
		if err != nil || got.Checkout != made {
			t.Fatalf("%+v, %v", got, err)
		}
		if !exists(filepath.Join(made, "rc")) || wd.gitIn(made, "status", "--porcelain") != "" {
			t.Fatal("it was not brought along")
		}
	}
}

// Git writes references and logs through links. Those that a repository has put
// there to lead into the person's files are not followed.
func TestReferencesAreNotWrittenThroughLinks(t *testing.T) {
	t.Parallel()
	type refused struct {
		into          string // is merged into
		merge, create bool
	}
	for place, want := range map[string]refused{
		"logs/refs/heads/main": {"main", true, false},
		"logs/refs/heads/into": {"into", true, false},
		"logs/refs/heads":      {"into", true, true},
		"logs/refs":            {"into", true, true},
		"logs":                 {"into", true, true},
		"refs/heads/into":      {"into", true, false},
		"refs/caisson":         {"into", false, true},
		"packed-refs":          {"into", true, true},
	} {
		t.Run(strings.ReplaceAll(place, "/", " "), func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{})
			wd.agent(ws, "x", "x")
			wd.git("branch", "into")
			if place == "packed-refs" {
				wd.git("pack-refs", "--all")
			}
			at, away := filepath.Join(wd.repo, ".git", place), filepath.Join(wd.home, "away")
			wd.must(os.Rename(at, away))
			wd.must(os.Symlink(away, at))
			before := digestOf(t, wd.home)
			_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: want.into})
			wantRefusal(t, err, want.merge)
			_, err = wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Base: ws.Base, Branch: "into2"})
			wantRefusal(t, err, want.create)
			if digestOf(t, wd.home) != before {
				t.Fatal("what the link leads to was written")
			}
		})
	}
}

// wantRefusal wants an error of a repository that is not as it should be, or none.
func wantRefusal(t *testing.T, err error, want bool) {
	t.Helper()
	if !want && err != nil {
		t.Fatal(err)
	}
	if code := caisson.CodeOf(err); want && code != caisson.CodeRepositoryUnsupported && code != caisson.CodeWorkspaceBindingLost {
		t.Fatalf("%v (%s)", err, code)
	}
}

// A link within the repository is its own matter.
func TestReferencesThroughLinksWithin(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	logs := filepath.Join(wd.repo, ".git", "logs", "refs")
	wd.must(os.Rename(logs, filepath.Join(wd.repo, ".git", "logs", "real")))
	wd.must(os.Symlink("real", logs))
	ws := wd.create(workspace.CreateSpec{})
	wd.agent(ws, "x", "x")
}

func TestCreateInRepositoryOfLinks(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"worktrees", "objects"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			at, away := filepath.Join(wd.repo, ".git", place), filepath.Join(wd.home, "away")
			if place == "worktrees" {
				wd.must(os.Mkdir(away, 0o755))
			} else {
				wd.must(os.Rename(at, away))
			}
			wd.must(os.Symlink(away, at))
			before := digestOf(t, wd.home)
			_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Base: "HEAD"})
			wantCode(t, err, caisson.CodeRepositoryUnsupported)
			if digestOf(t, wd.home) != before {
				t.Fatal("something was made there")
			}
		})
	}
}

// Directories of ours that agents write are no repositories of the person's, and
// a directory that says it is of another repository has to be known there.
func TestDirectoriesThatAreNoRepository(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	for _, dir := range []string{ws.Shadow, ws.Home, filepath.Dir(ws.Shadow), wd.state} {
		_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: dir, Base: "HEAD"})
		wantCode(t, err, caisson.CodeNoRepository)
	}
	forged := filepath.Join(wd.home, "forged")
	wd.gitIn(wd.home, "init", "-q", forged)
	wd.gitIn(forged, "commit", "-q", "--allow-empty", "-m", "forged")
	wd.write(filepath.Join(forged, ".git", "commondir"), filepath.Join(wd.repo, ".git")+"\n")
	_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: forged, Base: "main"})
	wantCode(t, err, caisson.CodeRepositoryUnsupported)
	if list, err := wd.w.List(t.Context(), ""); err != nil || len(list) != 1 {
		t.Fatalf("%d workspaces, %v", len(list), err)
	}
}

// Programs come from directories that mean the same wherever one stands, and in
// which no agent writes; git's own children are given the same ones.
func TestProgramsOfPath(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	ran := filepath.Join(wd.home, "ran")
	for _, dir := range []string{ws.Path, filepath.Join(ws.Home, "bin")} {
		for _, name := range []string{"git", "tr", "sh"} {
			wd.write(filepath.Join(dir, name), "#!/bin/sh\n>>'"+ran+"'\n")
			wd.must(os.Chmod(filepath.Join(dir, name), 0o755))
		}
	}
	wd.must(os.Symlink(filepath.Join(ws.Home, "bin"), filepath.Join(wd.home, "bin")))
	// A filter of the person's is run with the tree as its working directory.
	wd.write(filepath.Join(wd.home, ".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n[filter \"up\"]\n\tsmudge = tr a-z A-Z\n\tclean = tr A-Z a-z\n")
	for _, name := range []string{"tr", "git"} {
		wd.write(filepath.Join(wd.repo, name), "#!/bin/sh\n>>'"+ran+"'\n")
		wd.must(os.Chmod(filepath.Join(wd.repo, name), 0o755))
	}
	wd.write(filepath.Join(wd.repo, ".gitattributes"), "*.txt filter=up\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "filter")
	t.Chdir(wd.repo)
	path := strings.Join([]string{".", "", "sub", ws.Path, filepath.Join(wd.home, "bin"), "/nowhere/bin", os.Getenv("PATH")}, ":")
	w := workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: append(wd.env(), "PATH="+path)})
	made, err := w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(made.Path, "a.txt")); err != nil || string(got) != "ONE\n" {
		t.Fatalf("%q, %v", got, err)
	}
	if exists(ran) {
		t.Fatal("a program of the repository's or of the agent's ran")
	}
	w = workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: []string{"PATH=.:" + ws.Path}})
	_, err = w.GitVersion(t.Context())
	wantCode(t, err, caisson.CodeGitMissing)
}

// What protects a checkout from names that some file systems take for .git is
// the person's to switch off.
func TestRepositoryKeepsProtection(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.git("config", "core.protectHFS", "false")
	wd.git("config", "core.protectNTFS", "false")
	ws := wd.create(workspace.CreateSpec{})
	views, err := filepath.Glob(filepath.Join(wd.state, "views", "*", "config"))
	if err != nil || len(views) != 1 {
		t.Fatal(views, err)
	}
	for _, path := range append(views, filepath.Join(ws.Shadow, "config")) {
		if raw, err := os.ReadFile(path); err != nil || strings.Contains(strings.ToLower(string(raw)), "protect") {
			t.Fatalf("%s: %s %v", path, raw, err)
		}
	}
}
