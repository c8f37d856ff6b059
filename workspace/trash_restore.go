package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
)

// Restore brings a workspace back from the trash exactly as it was: its files,
// the worktree's record, index, HEAD, references, logs and stashes, and the
// branch if it is not there. Nothing is overwritten: CodeAlreadyExists where
// something is at its place, CodeBranchExists where the branch is at another
// commit, CodeBranchCheckedOut, CodeWorkspaceBindingLost where the repository
// is another.
func (w *Workspaces) Restore(ctx context.Context, id caisson.WorkspaceID) (caisson.Workspace, error) {
	if _, err := w.trashed(id); caisson.CodeOf(err) == caisson.CodeNotFound {
		return caisson.Workspace{}, err
	}
	release, err := w.lockTrash(ctx, id)
	if err != nil {
		return caisson.Workspace{}, err
	}
	defer release()
	if err := w.resumeTrash(ctx, id); err != nil {
		return caisson.Workspace{}, failed("end what was begun before with workspace "+string(id), err)
	}
	t, err := w.trashed(id)
	if err != nil {
		return caisson.Workspace{}, err
	}
	if err := w.restorable(ctx, t); err != nil {
		return caisson.Workspace{}, err
	}
	ws := t.Workspace
	ws.Removed = false
	if ws.Binding.AdminDir, err = w.freeAdmin(t); err != nil {
		return caisson.Workspace{}, failed("find a place for the worktree's record", err)
	}
	if err := w.restoreBranch(ctx, t); err != nil { // what can be refused comes before what is noted
		return caisson.Workspace{}, failed("make branch "+ws.Branch+" again", err)
	}
	t.Stage, t.Restoring = stageRestoring, &ws
	if err := w.writeTrashed(t); err != nil {
		return caisson.Workspace{}, failed("note that it is restored", err)
	}
	if err := w.restore(ctx, t); err != nil {
		return ws, failed("bring workspace "+ws.Name+" the rest of the way back", err)
	}
	return ws, nil
}

// restorable tells why a workspace cannot be restored now.
func (w *Workspaces) restorable(ctx context.Context, t Trashed) error {
	ws := t.Workspace
	for _, path := range []string{ws.Path, w.private(ws.ID)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return caisson.Errorf(caisson.CodeAlreadyExists, "there is something at %s", path).WithHint("Move it away, then restore the workspace again.")
		}
	}
	all, err := w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: ws.Binding.CommonDir})
	if err != nil {
		return err
	}
	for _, other := range all {
		if strings.EqualFold(other.Name, ws.Name) && other.ID != ws.ID {
			return caisson.Errorf(caisson.CodeAlreadyExists, "there is another workspace %s now", other.Name)
		}
	}
	repo, err := w.boundRepository(ctx, ws)
	if err != nil {
		return err
	}
	if repo == nil {
		return caisson.Errorf(caisson.CodeWorkspaceBindingLost, "the repository of workspace %s is gone, or another is in its place", ws.Name).
			WithHint("Its files are in %s.", w.aside(ws, "tree"))
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil {
		return failed("look at branch "+ws.Branch, err)
	}
	if tip != "" && tip != t.Tip {
		return caisson.Errorf(caisson.CodeBranchExists, "branch %s is at another commit now", ws.Branch).
			WithHint("Give it another name (`git branch -m %s OTHER`), then restore the workspace again: it has a branch of its own.", ws.Branch)
	}
	if at := repo.checkedOut(ws.Branch); at != nil && at.gitDir != ws.Binding.AdminDir {
		return caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is checked out in %s", ws.Branch, at.describe()).
			WithHint("Check out another branch there, then restore the workspace again.")
	}
	other, err := w.cloneOn(ctx, repo, ws.Branch)
	if err == nil && other != nil && other.ID != ws.ID {
		err = caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is workspace %s's", ws.Branch, other.Name)
	}
	return err
}

// freeAdmin returns where the worktree's record goes: its old place, or one
// beside it where another worktree has that. "" where it had none.
func (w *Workspaces) freeAdmin(t Trashed) (string, error) {
	old := t.Workspace.Binding.AdminDir
	if _, err := os.Lstat(filepath.Join(w.trash(t.Workspace.ID), "admin")); err != nil || old == "" {
		return old, nil //nolint:nilerr // it was damaged, and stays so
	}
	if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
		return old, nil
	}
	for n := 1; ; n++ {
		admin := filepath.Join(filepath.Dir(old), fmt.Sprint(t.Workspace.Name, "-", n))
		if _, err := os.Lstat(admin); err == nil && n < 1000 {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", failed("find a place for the worktree's record", err)
		}
		return admin, nil
	}
}

// restore does it. Each step can be done again.
func (w *Workspaces) restore(ctx context.Context, t Trashed) error {
	if t.Restoring == nil {
		return errors.New("the trash's note does not say what it is restored to")
	}
	ws := *t.Restoring
	for _, do := range []func() error{
		func() error { return w.restoreAdmin(&t, &ws) },
		func() error { return w.moveBack(ws, "private", w.private(ws.ID), 0o700) },
		func() error { return w.moveBack(ws, "tree", ws.Path, t.TreeMode) },
		func() error { return w.opts.Ledger.PutWorkspace(ctx, ws) },
		func() error { return w.unpin(ctx, ws, trashRefs) },
		func() error { return w.dropTrash(ctx, ws.ID) },
	} {
		if err := step(); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// restoreBranch makes the branch again, with its log, unless it is there.
func (w *Workspaces) restoreBranch(ctx context.Context, t Trashed) error {
	ws := t.Workspace
	repo, err := w.boundRepository(ctx, ws)
	if err != nil || repo == nil || t.Tip == "" {
		return err
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err == nil && tip == t.Tip && t.BranchDeleted {
		return w.restoreLog(ctx, repo, t) // somebody was killed on the way here
	}
	if err != nil || tip != "" {
		return err
	}
	if err := w.updateRefs(ctx, repo, restoring(ws), refUpdate{"refs/heads/" + ws.Branch, t.Tip, absent}); err != nil {
		return err
	}
	return w.restoreLog(ctx, repo, t)
}

// restoreAdmin puts the worktree's record back, by way of the repository's own
// file system, so that one rename puts it in place. In another place than
// before, the tree's pointer is made to lead there.
func (w *Workspaces) restoreAdmin(t *Trashed, ws *caisson.Workspace) error {
	from, half := filepath.Join(w.trash(ws.ID), "admin"), halfway(*ws)
	if _, err := os.Lstat(from); err != nil {
		return nil //nolint:nilerr // there was none, or it is in its place
	}
	if _, err := os.Lstat(ws.Binding.AdminDir); err == nil && w.ownAdmin(*ws) == "" { // taken meanwhile
		admin, err := w.freeAdmin(*t)
		if err != nil {
			return err
		}
		ws.Binding.AdminDir = admin
		t.Restoring = ws
		if err := w.writeTrashed(*t); err != nil {
			return err
		}
	}
	if err := w.repoint(*t, *ws); err != nil {
		return err
	}
	to := ws.Binding.AdminDir
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.RemoveAll(half)); err != nil {
		return err
	}
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		if err := copyDir(from, half); err != nil {
			return err
		}
		if err := renameDir(half, to, asIs); err != nil {
			return err
		}
	}
	return os.RemoveAll(from)
}

// repoint makes the tree's pointer lead to where the worktree's record goes. A
// pointer that did not lead to the record stays as it is.
func (w *Workspaces) repoint(t Trashed, ws caisson.Workspace) error {
	dir, to := w.aside(ws, "tree"), ws.Binding.AdminDir
	if now, err := pointer(filepath.Join(dir, ".git"), "gitdir: "); err != nil || to == t.Workspace.Binding.AdminDir || now == to {
		return nil //nolint:nilerr // as it was
	}
	if err := os.Chmod(dir, 0o700); err != nil { // it gets its mode when it is in its place
		return err
	}
	return writeFile(filepath.Join(dir, ".git"), []byte("gitdir: "+to+"\n"), 0o644)
}
