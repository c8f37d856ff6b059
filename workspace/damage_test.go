//go:build linux

package workspace_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// stays starts a process that is there until the test ends. It is sleep, at last.
func stays(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		if err == nil && string(name) == "sleep\n" {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%q, %v", name, err)
		}
	}
}

// A damaged workspace is not clean, can be removed all the same, and loses
// nothing of what there is of it.
func TestRemoveDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(wd *world, ws caisson.Workspace){
		"pointer forged": func(wd *world, ws caisson.Workspace) {
			wd.write(filepath.Join(ws.Path, ".git"), "gitdir: "+wd.home+"/.git\n")
		},
		"pointer gone":     func(wd *world, ws caisson.Workspace) { wd.must(os.Remove(filepath.Join(ws.Path, ".git"))) },
		"record gone":      func(wd *world, ws caisson.Workspace) { wd.must(os.RemoveAll(ws.Binding.AdminDir)) },
		"record another's": func(wd *world, ws caisson.Workspace) { wd.must(otherRecord(wd, ws)) },
		"shadow gone":      func(wd *world, ws caisson.Workspace) { wd.must(os.RemoveAll(ws.Shadow)) },
		"private gone":     func(wd *world, ws caisson.Workspace) { wd.must(os.RemoveAll(filepath.Dir(ws.Home))) },
		"tree gone":        func(wd *world, ws caisson.Workspace) { wd.must(os.RemoveAll(ws.Path)) },
		"repository gone":  func(wd *world, ws caisson.Workspace) { wd.must(os.Rename(wd.repo, wd.repo+".away")) },
		"branch gone":      func(wd *world, ws caisson.Workspace) { wd.git("update-ref", "-d", "refs/heads/"+ws.Branch) },
		"head inside bad":  func(wd *world, ws caisson.Workspace) { wd.write(filepath.Join(ws.Shadow, "HEAD"), "nonsense\n") },
		"index inside bad": func(wd *world, ws caisson.Workspace) { wd.write(filepath.Join(ws.Shadow, "index"), "nonsense\n") },
		"ref inside bad": func(wd *world, ws caisson.Workspace) {
			wd.write(filepath.Join(ws.Shadow, "refs/heads/x"), strings.Repeat("1", 40)+"\n")
		},
		"objects gone": func(wd *world, ws caisson.Workspace) { wd.must(os.RemoveAll(filepath.Join(ws.Shadow, "objects"))) },
		"log is a pipe": func(wd *world, ws caisson.Workspace) {
			wd.must(exec.Command("mkfifo", filepath.Join(ws.Shadow, "logs", "pipe")).Run())
		},
		"unreadable":        func(wd *world, ws caisson.Workspace) { wd.close(filepath.Join(ws.Path, "sub"), 0) },
		"tree not writable": func(wd *world, ws caisson.Workspace) { wd.close(ws.Path, 0o555) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd, ws := trashWorld(t, "echo x >x; git add x; git commit -qm unpushed; echo y >y")
			wd.inspect(ws)
			damage(wd, ws)
			found := wd.inspect(ws)
			state := func() map[string]string {
				all := files(t, wd.state, "ledger.db", "ledger.db-wal", "ledger.db-shm", "trash", "views")
				delete(all, "shadows/"+string(ws.ID)+"/lock")
				return all
			}
			before := state()
			if d := workspace.Decide(found, workspace.Ask{Batch: true}); d.Mode != workspace.ModeRefused {
				t.Fatalf("%s: %v", d.Mode, d.Losses)
			}
			trashed := wd.remove(discard(t, found))
			if exists(ws.Path) || exists(filepath.Dir(ws.Home)) || trashed.BranchDeleted {
				t.Fatalf("%+v", trashed)
			}
			if admin := ws.Binding.AdminDir; exists(admin) != (name == "record another's") && name != "repository gone" {
				t.Error("the record in the repository")
			}
			if n := residue(t, wd); n > 0 {
				t.Errorf("%d things are left", n)
			}
			if _, err := wd.w.Restore(t.Context(), ws.ID); err != nil {
				if name != "repository gone" {
					t.Fatal(err)
				}
				wantCode(t, err, caisson.CodeWorkspaceBindingLost)
				return
			}
			if diff := cmp.Diff(before, state()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// close gives a directory a mode until the test ends.
func (wd *world) close(dir string, mode os.FileMode) {
	wd.must(os.Chmod(dir, mode))
	wd.t.(*testing.T).Cleanup(func() { _ = os.Chmod(dir, 0o755) }) // gone; else it is to be removed
}

// otherRecord makes the worktree's record another's.
func otherRecord(wd *world, ws caisson.Workspace) error {
	wd.write(filepath.Join(ws.Binding.AdminDir, "gitdir"), wd.home+"/other/.git\n")
	return os.Remove(filepath.Join(ws.Binding.AdminDir, "locked"))
}

// A directory that was put in the place of the tree is nobody's to remove.
func TestRemoveForeign(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, "")
	permit := workspace.Decide(wd.inspect(ws), workspace.Ask{}).Permit
	wd.must(os.Rename(ws.Path, ws.Path+".away"))
	wd.must(os.Mkdir(ws.Path, 0o755))
	wd.write(filepath.Join(ws.Path, "mine"), "x")
	found := wd.inspect(ws)
	d := workspace.Decide(found, workspace.Ask{Word: found.Digest()})
	wantCode(t, d.Err(), caisson.CodeWorkspaceBindingLost)
	_, err := wd.w.Remove(t.Context(), permit, "ada")
	wantCode(t, err, caisson.CodeWorkspaceDirty)
	if !exists(filepath.Join(ws.Path, "mine")) || !exists(filepath.Dir(ws.Home)) {
		t.Error("it was touched")
	}
}

// What is in the way of a restore is not overwritten.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(wd *world, ws caisson.Workspace)
		code    caisson.Code
		mend    func(wd *world, ws caisson.Workspace)
	}{
		"something at its place": {
			func(wd *world, ws caisson.Workspace) { wd.write(filepath.Join(ws.Path, "mine"), "x") }, caisson.CodeAlreadyExists,
			func(wd *world, ws caisson.Workspace) { wd.must(os.RemoveAll(ws.Path)) },
		},
		"another workspace of its name": {
			func(wd *world, ws caisson.Workspace) { wd.create(workspace.CreateSpec{Name: ws.Name, Branch: "other"}) }, caisson.CodeAlreadyExists, nil,
		},
		"branch at another commit": {
			func(wd *world, ws caisson.Workspace) {
				wd.git("commit", "-q", "--allow-empty", "-m", "later")
				wd.git("branch", ws.Branch)
			}, caisson.CodeBranchExists,
			func(wd *world, ws caisson.Workspace) { wd.git("branch", "-q", "-m", ws.Branch, "kept") },
		},
		"branch checked out": {
			func(wd *world, ws caisson.Workspace) { wd.git("switch", "-qc", ws.Branch) }, caisson.CodeBranchCheckedOut,
			func(wd *world, ws caisson.Workspace) { wd.git("switch", "-q", "main") },
		},
		"another repository": {
			func(wd *world, ws caisson.Workspace) {
				wd.must(os.Rename(wd.repo, wd.repo+".away"))
				wd.must(os.Mkdir(wd.repo, 0o755))
				wd.git("init", "-q")
			}, caisson.CodeWorkspaceBindingLost, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd, ws := trashWorld(t, "")
			before := files(t, ws.Path)
			d := workspace.Decide(wd.inspect(ws), workspace.Ask{})
			wd.remove(d.Permit)
			c.prepare(wd, ws)
			refs := wd.git("for-each-ref", "refs/heads")
			_, err := wd.w.Restore(t.Context(), ws.ID)
			wantCode(t, err, c.code)
			if hint := caisson.AsError(err).HintText(); hint == "" && c.mend != nil {
				t.Error("no hint")
			}
			if now := wd.git("for-each-ref", "refs/heads"); now != refs {
				t.Errorf("references: %s", now)
			}
			if list, err := wd.w.Trash(""); err != nil || len(list) != 1 {
				t.Fatalf("in the trash: %v, %v", list, err)
			}
			if c.mend == nil {
				return
			}
			c.mend(wd, ws)
			if diff := cmp.Diff(before, files(t, wd.restore(ws).Path)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The place of the worktree's record was taken by another worktree meanwhile.
func TestRestoreBesideAnotherRecord(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, "")
	wd.remove(workspace.Decide(wd.inspect(ws), workspace.Ask{}).Permit)
	wd.git("worktree", "add", "-q", filepath.Join(wd.home, ws.Name))
	back := wd.restore(ws)
	if back.Binding.AdminDir == ws.Binding.AdminDir {
		t.Fatal("two worktrees have one record")
	}
	if s := wd.gitIn(back.Path, "status", "--porcelain", "--branch"); s != "## "+ws.Branch {
		t.Errorf("%q", s)
	}
	wd.work(back, "git commit -q --allow-empty -m again")
	if found := wd.inspect(back); !slices.Equal(lossesOf(found, workspace.LossDamage), nil) || len(lossesOf(found, workspace.LossCommit)) != 1 {
		t.Errorf("%v", found.Losses)
	}
}

// A private clone goes and comes back like a worktree; it has no record in the
// repository.
func TestRemoveClone(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.boxes()
	ws := wd.create(workspace.CreateSpec{Name: "r7", Mode: caisson.WorkspaceClone})
	wd.work(ws, muchToLose)
	found := wd.inspect(ws)
	for _, kind := range []workspace.LossKind{workspace.LossChange, workspace.LossIgnored, workspace.LossCommit, workspace.LossRef, workspace.LossStash, workspace.LossReflog} {
		if !found.Has(kind) {
			t.Errorf("no %s among %v", kind, found.Losses)
		}
	}
	if found.Has(workspace.LossUnknown) || found.Has(workspace.LossDamage) {
		t.Errorf("%v", found.Losses)
	}
	before, private := files(t, ws.Path), files(t, filepath.Dir(ws.Home), "lock")
	wd.remove(discard(t, found))
	wd.git("reflog", "expire", "--expire=now", "--all")
	wd.git("gc", "-q", "--prune=now")
	back := wd.restore(ws)
	if diff := cmp.Diff(before, files(t, back.Path)) + cmp.Diff(private, files(t, filepath.Dir(ws.Home), "lock")); diff != "" {
		t.Error(diff)
	}
	wd.work(back, "set -e; git fsck --full --no-dangling; git stash pop -q; git cat-file -e v1^{tag}; git rev-parse side")
}

// A workspace of a repository with submodules, and of a shallow one, is clean
// when nothing was done in it.
func TestRemoveUnusual(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(wd *world){
		"submodule": func(wd *world) {
			wd.git("update-index", "--add", "--cacheinfo", "160000,"+wd.git("rev-parse", "HEAD")+",dep")
			wd.git("commit", "-qm", "dep")
		},
		"shallow": func(wd *world) {
			wd.git("commit", "-q", "--allow-empty", "-m", "second")
			wd.write(filepath.Join(wd.repo, ".git", "shallow"), wd.git("rev-parse", "HEAD")+"\n")
		},
		"sha256": func(wd *world) {
			wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git")))
			wd.git("init", "-q", "--object-format=sha256")
			wd.git("add", "-A")
			wd.git("commit", "-qm", "first")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.boxes()
			prepare(wd)
			ws, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Name: "r7", Base: "main"})
			wd.must(err)
			d := workspace.Decide(wd.inspect(ws), workspace.Ask{Batch: true})
			if d.Mode != workspace.ModeClean {
				t.Fatalf("%v", d.Losses)
			}
			wd.work(ws, "echo x >x; git add x; git commit -qm one; git reset -q --hard HEAD~1; echo y >>a.txt; git stash -q")
			found := wd.inspect(ws)
			if len(lossesOf(found, workspace.LossReflog)) != 1 || len(lossesOf(found, workspace.LossStash)) != 1 || len(found.Losses) != 2 {
				t.Errorf("%v", found.Losses)
			}
			before := wd.everything(ws)
			wd.remove(discard(t, found))
			wd.git("gc", "-q", "--prune=now")
			if diff := cmp.Diff(before, wd.everything(wd.restore(ws))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
