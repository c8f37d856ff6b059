//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// loggedTrash is a workspace in the trash whose branch was deleted, with its log.
func loggedTrash(t *testing.T) (wd *world, ws caisson.Workspace, permit workspace.Permit, log string) {
	t.Helper()
	wd, ws = trashWorld(t, "git commit -q --allow-empty -m one; git reset -q --hard HEAD~1")
	permit = discard(t, wd.inspect(ws))
	raw, err := os.ReadFile(filepath.Join(wd.repo, ".git", "logs", "refs", "heads", ws.Branch))
	wd.must(err)
	if trashed := wd.remove(permit); !trashed.BranchDeleted || len(raw) == 0 {
		t.Fatalf("the branch is deleted: %v; its log: %q", trashed.BranchDeleted, raw)
	}
	return wd, ws, permit, string(raw)
}

// A restorer that is killed while it writes the log of the branch leaves no lock
// that stops anybody.
func TestKilledWithALockedBranch(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"workspace.restore.made", "workspace.restore.log"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			wd, ws, permit, log := loggedTrash(t)
			if !wd.killed("restore", permit, point, 1) {
				t.Fatal("it was not killed")
			}
			git, branch := filepath.Join(wd.repo, ".git"), "refs/heads/"+ws.Branch
			if point == "workspace.restore.log" {
				if _, err := wd.tryGit(wd.repo, "-c", "core.filesRefLockTimeout=0", "update-ref", branch, "HEAD~0", ws.Base); err == nil {
					t.Error("the branch was not locked while its log was written")
				}
			}
			wd.must(wd.open().Tidy(t.Context()))
			if left, _ := filepath.Glob(filepath.Join(git, "caisson-*")); len(left) > 0 || exists(filepath.Join(git, branch+".lock")) || residue(t, wd) > 0 {
				t.Errorf("left: %q", left)
			}
			wd.restore(ws)
			if after, err := os.ReadFile(filepath.Join(git, "logs", branch)); err != nil || string(after) != log {
				t.Errorf("was:\n%sis:\n%s%v", log, after, err)
			}
		})
	}
}

// A branch that another git has locked is not written beside it.
func TestRestoreWaitsForTheLockOfTheBranch(t *testing.T) {
	t.Parallel()
	wd, ws, _, log := loggedTrash(t)
	git, branch := filepath.Join(wd.repo, ".git"), "refs/heads/"+ws.Branch
	wd.git("update-ref", "--create-reflog", "-m", "caisson: restore workspace "+ws.Name, branch, ws.Base)
	wd.git("pack-refs", "--all")
	lock := filepath.Join(git, branch+".lock")
	wd.write(lock, "")
	_, err := wd.w.Restore(t.Context(), ws.ID)
	wantCode(t, err, caisson.CodeRepositoryBusy)
	if after, err := os.ReadFile(filepath.Join(git, "logs", branch)); err != nil || string(after) == log {
		t.Errorf("it was written: %q, %v", after, err)
	}
	wd.must(os.RemoveAll(filepath.Dir(lock))) // as git does where all is packed
	wd.restore(ws)
	if after, err := os.ReadFile(filepath.Join(git, "logs", branch)); err != nil || string(after) != log {
		t.Errorf("was:\n%sis:\n%s%v", log, after, err)
	}
}
