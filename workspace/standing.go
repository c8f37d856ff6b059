package workspace

import (
	"context"

	"github.com/caisson-run/caisson"
)

// Merged tells whether a branch of a repository has nothing that a revision
// lacks: all its commits are in it, or merging it would change no file, as after
// a squash. there is false where there is no such branch.
func (w *Workspaces) Merged(ctx context.Context, common, branch, into string) (merged, there bool, err error) {
	repo, err := w.repository(ctx, common, false)
	if err != nil {
		return false, false, err
	}
	theirs, err := w.branchTip(ctx, repo, branch)
	if err != nil || theirs == "" {
		return false, false, err
	}
	ours, err := w.resolve(ctx, repo, into)
	if err != nil {
		return false, true, err
	}
	if merged, err = w.descends(ctx, repo, ours, theirs); err != nil || merged {
		return merged, true, err
	}
	m := &merge{w: w, repo: repo, ws: caisson.Workspace{Branch: branch}, into: into, ours: ours, theirs: theirs}
	err = m.related(ctx)
	tree := ""
	if err == nil {
		tree, err = m.tree(ctx, ours, theirs)
	}
	if caisson.CodeOf(err) == caisson.CodeMergeConflict {
		return false, true, nil
	}
	if err != nil {
		return false, true, err
	}
	now, err := w.treeID(ctx, repo, ours)
	return tree == now, true, err
}

// Inside tells which branch is checked out inside a workspace, "" for none, and
// what is under way there: a merge, a rebase and the like. It is read as data.
func (w *Workspaces) Inside(ctx context.Context, ws caisson.Workspace) (branch string, operations []string, err error) {
	if err := w.Check(ctx, ws); err != nil {
		return "", nil, err
	}
	root, err := boundShadow(ws)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	refs, err := readRefs(root)
	return refs.head, underWay(root), err
}

// Tree returns the git tree of what a workspace holds now: files that are not
// committed too, ignored ones not. Nothing keeps it.
func (w *Workspaces) Tree(ctx context.Context, ws caisson.Workspace, given Box) (string, error) {
	var tree string
	err := w.withTree(ctx, ws, given, func(t *treeLook) error {
		snap, err := t.take(ctx, "look")
		if err != nil {
			return err
		}
		if snap.Partial != "" {
			return caisson.Errorf(caisson.CodeGitFailed, "not all of the tree of %s can be read: %s", ws.Name, snap.Partial)
		}
		tree, err = w.treeID(ctx, t.repo, snap.Commit)
		return err
	})
	return tree, err
}

// BranchTree returns the git tree of a branch's last commit in a repository; ""
// where there is no such branch.
func (w *Workspaces) BranchTree(ctx context.Context, common, branch string) (string, error) {
	repo, err := w.repository(ctx, common, false)
	if err != nil {
		return "", err
	}
	tip, err := w.branchTip(ctx, repo, branch)
	if err != nil || tip == "" {
		return "", err
	}
	return w.treeID(ctx, repo, tip)
}

// treeID is the tree of a commit, as the repository's own git has it.
func (w *Workspaces) treeID(ctx context.Context, repo *repository, commit string) (string, error) {
	tree, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}"))
	if err != nil || !isObjectID(tree) {
		return "", caisson.Errorf(caisson.CodeGitFailed, "commit %s has no tree", commit)
	}
	return tree, nil
}
