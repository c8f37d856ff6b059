package workspace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// What a person does to the branch outside while the agent commits loses neither
// side's work. Origin: W07, reading of peers.
func TestBranchOutside(t *testing.T) {
	t.Parallel()
	commitOn := func(wd *world, branch string) string {
		id := wd.git("commit-tree", "-p", branch, "-m", "outside", branch+"^{tree}")
		wd.git("update-ref", "refs/heads/"+branch, id)
		return id
	}
	for name, c := range map[string]struct {
		outside func(wd *world, ws caisson.Workspace)
		why     string                                // part of what the agent is told
		then    func(wd *world, ws caisson.Workspace) // after which the branch has the commits
	}{
		"moved": {
			outside: func(wd *world, ws caisson.Workspace) { commitOn(wd, ws.Branch) },
			why:     "moved outside",
			then:    func(wd *world, ws caisson.Workspace) { wd.git("update-ref", "refs/heads/"+ws.Branch, ws.Base) },
		},
		"moved, and merged by the person": {
			outside: func(wd *world, ws caisson.Workspace) { commitOn(wd, ws.Branch) },
			why:     "moved outside",
			then: func(wd *world, ws caisson.Workspace) {
				diverged := wd.git("rev-parse", "refs/caisson/diverged/"+ws.Branch+"/1")
				merged := wd.git("commit-tree", "-p", ws.Branch, "-p", diverged, "-m", "merged", diverged+"^{tree}")
				wd.git("update-ref", "refs/heads/"+ws.Branch, merged)
			},
		},
		"deleted": {
			outside: func(wd *world, ws caisson.Workspace) { wd.git("update-ref", "-d", "refs/heads/"+ws.Branch) },
			why:     "deleted outside",
			then:    func(wd *world, ws caisson.Workspace) { wd.git("update-ref", "refs/heads/"+ws.Branch, ws.Base) },
		},
		"checked out in the main checkout": {
			outside: func(wd *world, ws caisson.Workspace) { wd.git("switch", "-q", "--ignore-other-worktrees", ws.Branch) },
			why:     "checked out in",
			then:    func(wd *world, ws caisson.Workspace) { wd.git("switch", "-q", "main") },
		},
		"checked out in another worktree": {
			outside: func(wd *world, ws caisson.Workspace) {
				wd.git("worktree", "add", "-q", "--force", wd.repo+"-other", ws.Branch)
			},
			why:  "checked out in",
			then: func(wd *world, ws caisson.Workspace) { wd.git("worktree", "remove", wd.repo+"-other") },
		},
		"a forged record of a worktree": {
			outside: func(wd *world, ws caisson.Workspace) {
				forged := filepath.Join(wd.repo, ".git", "worktrees", "forged")
				wd.write(filepath.Join(forged, "HEAD"), "ref: refs/heads/"+ws.Branch+"\n")
				wd.write(filepath.Join(forged, "gitdir"), ws.Path+"/.git\n")
				wd.write(filepath.Join(forged, "commondir"), "../..\n")
			},
			why: "checked out in",
			then: func(wd *world, ws caisson.Workspace) {
				wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git", "worktrees", "forged")))
			},
		},
		"being rebased in the main checkout": {
			outside: func(wd *world, ws caisson.Workspace) {
				wd.write(filepath.Join(wd.repo, ".git", "rebase-merge", "head-name"), "refs/heads/"+ws.Branch+"\n")
			},
			why: "checked out in",
			then: func(wd *world, ws caisson.Workspace) {
				wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git", "rebase-merge")))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r7"})
			box := newBox(t, ws)
			inside(t, box, "echo by-agent >>a.txt; git commit -qam inside")
			agent := inside(t, box, "git rev-parse HEAD")
			c.outside(wd, ws)
			before, _ := wd.tryGit(wd.repo, "rev-parse", "--verify", "--quiet", "refs/heads/"+ws.Branch)
			status := wd.git("status", "--porcelain")
			for range 2 { // told again as long as it is so
				got := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true})
				if got.Moved || got.Diverged != "refs/caisson/diverged/caisson/r7/1" || !strings.Contains(got.Why, c.why) {
					t.Fatalf("%+v", got)
				}
			}
			if now, _ := wd.tryGit(wd.repo, "rev-parse", "--verify", "--quiet", "refs/heads/"+ws.Branch); now != before {
				t.Errorf("the branch was moved from %s to %s", before, now)
			}
			if now := wd.git("status", "--porcelain"); now != status {
				t.Errorf("the main checkout was %q and is %q", status, now)
			}
			wd.git("rev-parse", "--verify", "refs/caisson/diverged/caisson/r7/1^{commit}")
			c.then(wd, ws)
			used := box.used()
			got := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true})
			if got.Diverged != "" || box.used() != used {
				t.Fatalf("it was not taken without the box: %+v", got)
			}
			wd.git("merge-base", "--is-ancestor", agent, ws.Branch)
			if again := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true}); again.Diverged != "" || again.Moved {
				t.Fatalf("%+v", again)
			}
			wd.must(wd.w.Check(t.Context(), ws))
		})
	}
}

// A person who is done with what diverged is not told of it for ever.
func TestDivergedIsDoneWith(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r7"})
	box := newBox(t, ws)
	inside(t, box, "git commit -q --allow-empty -m inside")
	agent := inside(t, box, "git rev-parse HEAD")
	wd.git("update-ref", "refs/heads/"+ws.Branch, wd.git("commit-tree", "-p", "main", "-m", "outside", "main^{tree}"))
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	wd.git("update-ref", "-d", got.Diverged)
	if got = wd.importOK(ws, box, workspace.ImportOptions{}); got.Diverged != "" {
		t.Fatalf("%+v", got)
	}
	wd.collect() // what the shadow may have given up stays
	inside(t, box, "git gc -q --prune=now; git fsck --strict; git rev-list --objects "+agent)
	wd.git("rev-list", "--objects", agent)
}

// The outer index was busy; the next import brings it all the way.
func TestIndexComesAlongLater(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	lock := filepath.Join(ws.Binding.AdminDir, "index.lock")
	wd.write(lock, "")
	for i := range 2 {
		inside(t, box, "date +%s%N >>a.txt; git commit -qam inside")
		if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.IndexKept == "" {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	wd.must(os.Remove(lock))
	inside(t, box, "echo new >n; git add n; git commit -qm inside")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.IndexKept != "" {
		t.Fatalf("%+v", got)
	}
	if s := wd.gitIn(ws.Path, "status", "--porcelain"); s != "" {
		t.Fatalf("outer status %q", s)
	}
}

// A clean-up by who cannot see the workspace: in a container that has only the
// repository, or with the disk of the state directory away. Origin: xorq PR1974.
func TestCase_W08(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(wd *world, do func()){
		"seen": func(_ *world, do func()) { do() },
		"not seen": func(wd *world, do func()) {
			wd.must(os.Rename(filepath.Join(wd.state, "workspaces"), filepath.Join(wd.state, "away")))
			do()
			wd.must(os.Rename(filepath.Join(wd.state, "away"), filepath.Join(wd.state, "workspaces")))
		},
		"at another path": func(wd *world, do func()) {
			here, elsewhere := filepath.Dir(wd.repo), filepath.Dir(wd.repo)+"-elsewhere"
			wd.must(os.Rename(here, elsewhere))
			repo := wd.repo
			wd.repo, wd.home = filepath.Join(elsewhere, filepath.Base(repo)), filepath.Join(elsewhere, "home")
			do()
			wd.must(os.Rename(elsewhere, here))
			wd.repo, wd.home = repo, filepath.Join(here, "home")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.git("switch", "-qc", "topic")
			wd.write(filepath.Join(wd.repo, "topic.txt"), "topic\n")
			wd.git("add", "-A")
			wd.git("commit", "-qm", "topic")
			ws := wd.create(workspace.CreateSpec{Name: "r8", Run: "r8"})
			box := newBox(t, ws)
			inside(t, box, "echo 1 >>a.txt; git commit -qam one; echo s >>a.txt; git stash -q; git branch side; git commit -q --allow-empty -m two; git reset -q --hard HEAD~1")
			wd.importOK(ws, box, workspace.ImportOptions{})
			inside(t, box, "git gc -q --prune=now") // what is outside is not kept twice
			inside(t, box, "echo 2 >>a.txt; git commit -qam 'not imported yet'; echo staged >staged; git add staged")
			// The person drops everything that the workspace came from.
			wd.git("switch", "-q", "main")
			wd.git("branch", "-qD", "topic")
			wd.git("update-ref", "-d", "refs/heads/"+ws.Branch)
			away(wd, wd.collect)
			wd.git("update-ref", "refs/heads/"+ws.Branch, "refs/caisson/workspaces/"+string(ws.ID)+"/tip")
			wd.must(wd.w.Check(t.Context(), ws))
			inside(t, box, "git fsck --strict --connectivity-only 2>&1 | (! grep -v dangling); git rev-list --objects --all --reflog >/dev/null; git stash show -p >/dev/null; git diff "+ws.Base+" >/dev/null")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Fatalf("%+v", got)
			}
			if s := wd.gitIn(ws.Path, "status", "--porcelain"); s != "?? staged" {
				t.Errorf("outer status %q", s)
			}
			if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "main"}); err != nil {
				t.Fatal(err)
			}
			wd.git("fsck", "--strict")
		})
	}
}

// Where git refuses the reference for commits that diverged, that is said at
// once, and they are kept elsewhere.
func TestDivergedCannotBeKept(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r7"})
	box := newBox(t, ws)
	inside(t, box, "echo by-agent >>a.txt; git commit -qam inside")
	agent := inside(t, box, "git rev-parse HEAD")
	wd.git("update-ref", "-d", "refs/heads/"+ws.Branch)
	wd.git("update-ref", "refs/caisson/diverged/"+ws.Branch, ws.Base) // in the way of names below it
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err := wd.w.Import(ctx, ws, box, workspace.ImportOptions{})
	wantCode(t, err, caisson.CodeImportHeld)
	if !strings.Contains(err.Error(), "update-ref") {
		t.Errorf("the cause is not said: %v", err)
	}
	if got := wd.git("rev-parse", "refs/caisson/inside/"+string(ws.ID)+"/heads/"+ws.Branch); got != agent {
		t.Errorf("%s is kept", got)
	}
	wd.git("update-ref", "-d", "refs/caisson/diverged/"+ws.Branch)
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); got.Diverged == "" {
		t.Errorf("it is not tried again: %+v", got)
	}
}

// An import that is killed between the branch and the outer index leaves the
// branch moved and what was seen last as it was. The next brings the index all
// the way, or the one after that where a person's staging is in the way.
func TestKilledBeforeTheIndex(t *testing.T) {
	t.Parallel()
	for _, keptBefore := range []bool{false, true} {
		t.Run(fmt.Sprint("kept before=", keptBefore), func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r7"})
			box := newBox(t, ws)
			wd.importOK(ws, box, workspace.ImportOptions{})
			blob := wd.git("rev-parse", ws.Base+":a.txt")
			mine := strings.TrimSpace(wd.git("rev-parse", ws.Base+":sub/b.txt"))
			stage := func(id string) { wd.gitIn(ws.Path, "update-index", "--cacheinfo", "100644,"+id+",a.txt") }
			stage(mine)
			file := filepath.Join(wd.state, "shadows", string(ws.ID), "state")
			importKept := func() {
				t.Helper()
				if got := wd.importOK(ws, box, workspace.ImportOptions{}); got.IndexKept == "" {
					t.Fatalf("%+v", got)
				}
			}
			inside(t, box, "echo by-agent >>a.txt; echo by-agent >>sub/b.txt; git commit -qam one")
			var before []byte
			read := func() {
				raw, err := os.ReadFile(file)
				wd.must(err)
				before = raw
			}
			if keptBefore {
				importKept()
				read()
				inside(t, box, "echo new >new; git add new; git commit -qm two")
				importKept()
			} else {
				read()
				importKept()
			}
			wd.must(os.WriteFile(file, before, 0o600)) // as if it had been killed
			if !keptBefore {
				importKept()
				inside(t, box, "echo new >new; git add new; git commit -qm two")
			}
			stage(blob)
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); got.IndexKept != "" {
				t.Fatalf("%+v", got)
			}
			if s := wd.gitIn(ws.Path, "status", "--porcelain"); s != "" {
				t.Errorf("the index is behind: %q", s)
			}
		})
	}
}
