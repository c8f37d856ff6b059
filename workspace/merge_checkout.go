package workspace

import (
	"context"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson"
)

// nobodys refuses a branch that another workspace works on.
func (w *Workspaces) nobodys(ctx context.Context, ws caisson.Workspace, branch string) error {
	all, err := w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: ws.Binding.CommonDir})
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Branch == branch && !other.Removed {
			return caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is that of workspace %s, where an agent works", branch, other.Name).
				WithHint("Merge into another branch.")
		}
	}
	return nil
}

// mergeable returns the checkout of a branch that is to be brought along; nil
// where it is checked out nowhere.
func (w *Workspaces) mergeable(ctx context.Context, repo *repository, branch, tip string) (*checkout, error) {
	at := repo.checkedOut(branch)
	if at == nil {
		return nil, nil
	}
	refuse := func(code caisson.Code, why, hint string) (*checkout, error) {
		return nil, caisson.Errorf(code, "branch %s is checked out in %s, %s", branch, at.describe(), why).WithHint("%s", hint)
	}
	tree, err := filepath.EvalSymlinks(at.tree)
	if at.tree == "" || err != nil {
		return refuse(caisson.CodeBranchCheckedOut, "which cannot be told apart from an agent's", "Merge by hand, or into another branch.")
	}
	at.tree = tree
	if !at.isNamedBack(repo.common) {
		return refuse(caisson.CodeBranchCheckedOut, "which does not name this repository in turn", "If it is its worktree, `git worktree repair` says so; else `git worktree prune` removes the record.")
	}
	if w.treeOf(tree) != "" {
		return refuse(caisson.CodeBranchCheckedOut, "a workspace that an agent can write", "Merge into another branch.")
	}
	for _, busy := range []string{"rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"} {
		if _, err := os.Lstat(filepath.Join(at.gitDir, busy)); err == nil {
			return refuse(caisson.CodeWorkspaceDirty, "where a merge, rebase or bisect is under way", "Finish it first.")
		}
	}
	if truth(last(repo.settings, "core.sparsecheckout")) {
		return refuse(caisson.CodeRepositoryUnsupported, "a sparse checkout, which cannot be brought along", "Merge by hand, or into a branch that is not checked out.")
	}
	clean, err := w.clean(ctx, repo, *at, tip)
	if err != nil {
		return nil, err
	}
	if !clean {
		return refuse(caisson.CodeWorkspaceDirty, "with changes that are not committed", "Commit or stash them first.")
	}
	return at, nil
}

// isNamedBack tells whether the tree names the checkout's git directory. A
// repository can name any directory of the host as the tree of a worktree.
func (c *checkout) isNamedBack(common string) bool {
	if c.gitDir == common {
		return true // the tree is where the repository lies
	}
	to, err := pointer(filepath.Join(c.tree, ".git"), "gitdir: ")
	if err != nil {
		return false
	}
	if to, err = filepath.EvalSymlinks(absolute(to, c.tree)); err != nil {
		return false
	}
	admin, err := filepath.EvalSymlinks(c.gitDir)
	return err == nil && to == admin && admin == c.gitDir // a link could lead to the record of another repository
}
