package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// keep is the second half. Each step can be done again.
func (r *removal) keep(ctx context.Context) error {
	w, ws := r.w, r.t.Workspace
	for _, do := range []func() error{
		func() error { return w.keepAdmin(ws) },
		func() error { return r.dropBranch(ctx) },
		func() error {
			ws.Removed = true
			return w.opts.Ledger.PutWorkspace(ctx, ws)
		},
		func() error { r.t.Stage = stageKept; return w.writeTrashed(r.t) },
	} {
		if err := step(); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
	}
	_ = os.Remove(filepath.Dir(ws.Path)) // only where it is empty
	return nil
}

// halfway is where the worktree's record is while it goes to another file
// system or comes from there: one rename away from its place.
func halfway(ws caisson.Workspace) string {
	return filepath.Join(ws.Binding.CommonDir, "caisson-"+string(ws.ID))
}

// keepAdmin moves the worktree's record out of the repository.
func (w *Workspaces) keepAdmin(ws caisson.Workspace) error {
	to, half := filepath.Join(w.trash(ws.ID), "admin"), halfway(ws)
	if admin := w.ownAdmin(ws); admin != "" {
		err := renameDir(admin, to, asIs)
		if errors.Is(err, unix.EXDEV) {
			err = renameDir(admin, half, asIs)
		}
		if err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(admin)) // only where it is empty
	}
	if _, err := os.Lstat(half); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		if err := copyDir(half, to); err != nil {
			return err
		}
	}
	return os.RemoveAll(half)
}

// copyDir copies a directory of the person's repository; at to there is all of
// it or nothing.
func copyDir(from, to string) error {
	part := to + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := copyInto(from, part); err != nil {
		return err
	}
	return renameDir(part, to, asIs)
}

func copyInto(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source, target := filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case info.IsDir():
			err = copyInto(source, target)
		case info.Mode().IsRegular():
			err = copyFile(source, target, info)
		case info.Mode()&fs.ModeSymlink != 0:
			var where string
			if where, err = os.Readlink(source); err == nil {
				err = os.Symlink(where, target)
			}
		}
		if err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(to)
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// dropBranch deletes the branch, if it is where it was when the workspace was
// looked at, checked out nowhere, and another branch or a remote has its
// commits. Its log is kept.
func (r *removal) dropBranch(ctx context.Context) error {
	w, ws := r.w, r.t.Workspace
	repo, err := w.boundRepository(ctx, ws)
	if err != nil || repo == nil || r.t.Tip == "" {
		return err
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil || tip == "" {
		return err
	}
	r.t.BranchDeleted = false
	if tip != r.t.Tip || repo.checkedOut(ws.Branch) != nil {
		return w.writeTrashed(r.t)
	}
	only, err := w.git.line(ctx, repo.in(append([]string{"rev-list", "--max-count=1", tip}, elsewhere(ws.Branch)...)...))
	if err != nil {
		return err
	}
	if only != "" {
		return w.writeTrashed(r.t)
	}
	if log, err := readInside(ws.Binding.CommonDir, "logs/refs/heads/"+ws.Branch, maxLogs); err == nil {
		if err := writeFile(filepath.Join(w.trash(ws.ID), "branch-log"), log, 0o600); err != nil {
			return err
		}
	}
	r.t.BranchDeleted = true
	if err := w.writeTrashed(r.t); err != nil {
		return err
	}
	if err := w.updateRefs(ctx, repo, "", refUpdate{"refs/heads/" + ws.Branch, absent, tip}); err != nil {
		if now, lookErr := w.branchTip(ctx, repo, ws.Branch); lookErr != nil || now == tip {
			return err
		}
		r.t.BranchDeleted = false // somebody moved it just now: it is theirs
		return w.writeTrashed(r.t)
	}
	return nil
}

// partDepth is how many levels of a directory are removed entry by entry.
const partDepth = 4

// removeTree removes a directory that an agent has filled, also where its modes
// forbid that to an ordinary user. Only where nobody else can write. Where
// something is mounted in it, nothing is removed. It ends with ctx, and can be
// called again.
func removeTree(ctx context.Context, dir string) error {
	if err := nothingMounted(dir); err != nil {
		return err
	}
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	err = removeParts(ctx, parent, filepath.Base(dir), partDepth)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := openUp(unix.AT_FDCWD, dir, 0); err != nil {
		return err
	}
	return removeParts(ctx, parent, filepath.Base(dir), partDepth)
}

// removeParts removes name, and before it what is in it, part by part.
func removeParts(ctx context.Context, parent *os.Root, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if info, err := parent.Lstat(name); err != nil || !info.IsDir() || depth == 0 {
		return parent.RemoveAll(name)
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	all, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := all.Readdirnames(-1)
	if err = errors.Join(err, all.Close()); err != nil {
		return err
	}
	for _, child := range names {
		if err := removeParts(ctx, dir, child, depth-1); err != nil {
			return err
		}
	}
	return parent.RemoveAll(name)
}

// openUp lets the owner into all directories below one. Links are not followed,
// also those that come while it looks.
func openUp(at int, name string, depth int) error {
	held, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "look at", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(held) }()
	if depth > maxTreeDepth {
		return errors.New("there are directories too deep to be removed")
	}
	var st unix.Stat_t
	if err = unix.Fstat(held, &st); err == nil && st.Mode&0o700 != 0o700 {
		err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", held), 0o700)
	}
	if err != nil {
		return &fs.PathError{Op: "open up", Path: name, Err: err}
	}
	fd, err := unix.Openat(held, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, child := range names {
		if err := openUp(fd, child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
