package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson"
)

// A clone is a workspace whose git directory lies in its tree, where the agent
// writes it. The host's git never opens that one: what is known of a clone
// outside is in its private directory, and the repository has its branch.

// isClone tells in which of the two ways a workspace was made.
func isClone(ws caisson.Workspace) bool { return ws.Mode == caisson.WorkspaceClone }

// outer is a git directory of ours for a clone: it is on the clone's branch, and
// everything else in it is the repository's. In it a revision means what it
// means to a person who stands in the tree.
func (w *Workspaces) outer(id caisson.WorkspaceID) string {
	return filepath.Join(w.private(id), "outer")
}

// treeMark tells the directory that was made for a clone from another at the
// same path.
type treeMark struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

func (w *Workspaces) treeMarkPath(id caisson.WorkspaceID) string {
	return filepath.Join(w.private(id), "tree")
}

// makeClone fills the directory of a clone with an empty git directory. The mark
// is written before anything is in it.
func (c *creation) makeClone() error {
	private := c.w.private(c.ws.ID)
	c.undo = append(c.undo, func() { _ = os.RemoveAll(private) })
	outer := c.w.outer(c.ws.ID)
	if err := os.MkdirAll(outer, 0o700); err != nil {
		return failed("make the clone's record", err)
	}
	mark, err := json.Marshal(treeMark{c.ws.Binding.TreeDevice, c.ws.Binding.TreeInode})
	if err != nil {
		return err
	}
	for _, file := range []struct{ path, text string }{
		{c.w.treeMarkPath(c.ws.ID), string(mark)},
		{filepath.Join(outer, "commondir"), c.repo.common + "\n"},
		{filepath.Join(outer, "HEAD"), "ref: refs/heads/" + c.ws.Branch + "\n"},
	} {
		if err := writeFile(file.path, []byte(file.text), 0o600); err != nil {
			return failed("make the clone's record", err)
		}
	}
	if err := os.Mkdir(filepath.Join(c.ws.Path, ".git"), 0o700); err != nil {
		return failed("make the clone's git directory", err)
	}
	return nil
}

// indexPath is the index that the base is checked out with: of a worktree the
// person's, of a clone the agent's, whom it is handed to later.
func (c *creation) indexPath() string {
	if isClone(c.ws) {
		return filepath.Join(c.ws.Path, ".git", "index")
	}
	return filepath.Join(c.ws.Binding.AdminDir, "index")
}

// cloneLost is the part of Check that is a clone's alone. Which branch the agent
// has checked out is no part of it.
func (w *Workspaces) cloneLost(ws caisson.Workspace) *loss {
	if _, _, err := directoryID(filepath.Join(ws.Path, ".git")); err != nil {
		return &loss{part: "git-dir", says: "the git directory in its tree is gone, or is none any more"}
	}
	outer := w.outer(ws.ID)
	if common, err := pointer(filepath.Join(outer, "commondir"), ""); err != nil || common != ws.Binding.CommonDir {
		return &loss{part: "common", says: "its record names another repository", want: ws.Binding.CommonDir, found: common}
	}
	if head, err := pointer(filepath.Join(outer, "HEAD"), "ref: refs/heads/"); err != nil || head != ws.Binding.Branch || head != ws.Branch {
		return &loss{part: "branch", says: "its record names another branch than " + ws.Branch, want: ws.Branch, found: head}
	}
	return nil
}

// unmakeClone removes the tree of a clone that nothing has worked in.
func (w *Workspaces) unmakeClone(ctx context.Context, ws caisson.Workspace) error {
	raw, err := os.ReadFile(w.treeMarkPath(ws.ID))
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(ws.Path) // made, and not filled yet; else another's
		return nil
	}
	if err != nil {
		return err
	}
	var mark treeMark
	if err := json.Unmarshal(raw, &mark); err != nil {
		return err
	}
	if device, inode, err := directoryID(ws.Path); err != nil || device != mark.Device || inode != mark.Inode {
		return nil //nolint:nilerr // gone already, and perhaps another in its place
	}
	others, err := w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: ws.Binding.CommonDir})
	if err != nil {
		return err
	}
	for _, other := range others { // a directory's number may have been given to it
		if other.Path == ws.Path && other.ID != ws.ID {
			return nil
		}
	}
	return os.RemoveAll(ws.Path)
}

// cloneOn returns the clone whose branch this is, if there is one: nothing in
// the repository tells that an agent works on it.
func (w *Workspaces) cloneOn(ctx context.Context, repo *repository, branch string) (*caisson.Workspace, error) {
	all, err := w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: repo.common})
	if err != nil {
		return nil, err
	}
	for _, ws := range all {
		if isClone(ws) && ws.Branch == branch {
			return &ws, nil
		}
	}
	return nil, nil
}

func modeOf(mode caisson.WorkspaceMode) (caisson.WorkspaceMode, error) {
	switch mode {
	case "":
		return caisson.WorkspaceWorktree, nil
	case caisson.WorkspaceWorktree, caisson.WorkspaceClone:
		return mode, nil
	}
	return "", caisson.Errorf(caisson.CodeUsage, "%q is no way to make a workspace: worktree, clone", printable(string(mode)))
}
