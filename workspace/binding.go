package workspace

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson"
)

// Check compares what a workspace is bound to with the disk, without starting
// a process and without following anything that is found: the repository, the
// tree's directory, the pointers between them, and the branch; of a clone, that
// its tree still has a git directory.
// CodeWorkspaceBindingLost, with the part that differs in detail "part". The
// state of the main checkout is no part of it.
func (w *Workspaces) Check(_ context.Context, ws caisson.Workspace) error {
	lost := func(part, what string) error {
		return caisson.Errorf(caisson.CodeWorkspaceBindingLost, "workspace %s: %s", ws.Name, what).With("part", part)
	}
	b := ws.Binding
	if dev, ino, err := directoryID(b.CommonDir); err != nil || dev != b.Device || ino != b.Inode {
		return lost("repository", "its repository is not where it was, or is another")
	}
	if dev, ino, err := directoryID(ws.Path); err != nil || dev != b.TreeDevice || ino != b.TreeInode {
		return lost("tree", "its directory is gone, or is another")
	}
	if isClone(ws) {
		return w.checkClone(ws, lost)
	}
	if to, err := pointer(filepath.Join(ws.Path, ".git"), "gitdir: "); err != nil || to != b.AdminDir {
		return lost("pointer", "the .git file in its tree was changed")
	}
	if filepath.Dir(b.AdminDir) != filepath.Join(b.CommonDir, "worktrees") {
		return lost("admin", "its record in the repository is elsewhere")
	}
	if _, _, err := directoryID(b.AdminDir); err != nil {
		return lost("admin", "its record in the repository is gone")
	}
	if back, err := pointer(filepath.Join(b.AdminDir, "gitdir"), ""); err != nil || back != filepath.Join(ws.Path, ".git") {
		return lost("back-pointer", "its record in the repository names another tree")
	}
	if common, err := pointer(filepath.Join(b.AdminDir, "commondir"), ""); err != nil || common != "../.." {
		return lost("common", "its record in the repository names another repository")
	}
	if head, err := pointer(filepath.Join(b.AdminDir, "HEAD"), "ref: refs/heads/"); err != nil || head != b.Branch || head != ws.Branch {
		return lost("branch", "its tree is not on branch "+ws.Branch+" any more")
	}
	return nil
}

// directoryID returns device and inode of a directory that is not a link.
func directoryID(path string) (device, inode uint64, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, 0, syscall.ENOTDIR
	}
	return uint64(stat.Dev), stat.Ino, nil //nolint:unconvert // narrower on other systems
}
