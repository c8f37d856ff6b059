package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// heldIndex is the index of a person's checkout, locked as git locks it, so that
// no other git writes it meanwhile. Work is done on a copy, which takes its place
// at the end.
type heldIndex struct {
	b    bringing
	lock *os.File // index.lock, with a mark of ours; held by the git commands too, so that one that outlives us is seen
	copy string
}

func (b bringing) lockPath() string  { return filepath.Join(b.GitDir, "index.lock") }
func (b bringing) indexPath() string { return filepath.Join(b.GitDir, "index") }
func (b bringing) own() string       { return filepath.Join(b.GitDir, "caisson-"+b.ID) }
func (b bringing) mark() string      { return "caisson: merge " + b.ID + "\n" }

// takeIndex locks the index. The lock appears with the mark in it: killed at any
// moment, it can be told whose it is. One that another git holds is waited for.
func takeIndex(ctx context.Context, b bringing) (*heldIndex, error) {
	f, err := os.OpenFile(b.own(), os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, failed("lock the index of "+b.Tree, err)
	}
	held := &heldIndex{b: b, lock: f, copy: b.own() + ".index"}
	_, err = f.WriteString(b.mark())
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Link(b.own(), b.lockPath())
		for end := time.Now().Add(indexLockWait); errors.Is(err, fs.ErrExist) && time.Now().Before(end) && pause(ctx, lockPoll); {
			err = os.Link(b.own(), b.lockPath())
		}
	}
	err = errors.Join(err, os.Remove(b.own()))
	if errors.Is(err, fs.ErrExist) {
		_ = f.Close()
		return nil, heldLock("lock the index of "+b.Tree, b.lockPath(), err)
	}
	if err != nil {
		_ = f.Close()
		return nil, failed("lock the index of "+b.Tree, err)
	}
	if err := held.renew(); err != nil {
		held.release()
		return nil, err
	}
	return held, nil
}

// retakeIndex takes the lock that a killed process of this merge left, or a new one.
func retakeIndex(ctx context.Context, b bringing) (*heldIndex, error) {
	f, err := os.OpenFile(b.lockPath(), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		_ = atomicfile.RemoveIfThere(b.own())
		return takeIndex(ctx, b)
	}
	if err != nil {
		return nil, failed("lock the index of "+b.Tree, err)
	}
	text := make([]byte, 128)
	n, _ := f.ReadAt(text, 0)
	if string(text[:n]) != b.mark() {
		_ = f.Close()
		return nil, b.unfinished("another git works there (" + b.lockPath() + " is there)")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, b.unfinished("a git of it is still at work")
	}
	held := &heldIndex{b: b, lock: f, copy: b.own() + ".index"}
	_ = atomicfile.RemoveIfThere(held.copy + ".lock")
	_ = atomicfile.RemoveIfThere(b.own())
	if err := held.renew(); err != nil {
		held.release()
		return nil, err
	}
	return held, nil
}

// renew makes the copy again. Its time is the original's: by it git tells files
// that were changed in the moment in which the index was written.
func (h *heldIndex) renew() error {
	info, err := os.Stat(h.b.indexPath())
	var data []byte
	if err == nil {
		data, err = os.ReadFile(h.b.indexPath())
	}
	if err == nil {
		if err = atomicfile.RemoveIfThere(h.copy); err == nil {
			err = writeFile(h.copy, data, info.Mode().Perm())
		}
	}
	if err == nil {
		err = os.Chtimes(h.copy, info.ModTime(), info.ModTime())
	}
	if err != nil {
		return failed("copy the index of "+h.b.Tree, err)
	}
	return nil
}

// on returns a command on the copy and the tree.
func (h *heldIndex) on(repo *repository, args ...string) invocation {
	inv := repo.in(args...)
	inv.index, inv.tree, inv.dir, inv.files = h.copy, h.b.Tree, h.b.Tree, []*os.File{h.lock}
	return inv
}

func (h *heldIndex) install() error {
	return os.Rename(h.copy, h.b.indexPath())
}

func (h *heldIndex) release() {
	_ = atomicfile.RemoveIfThere(h.copy)
	_ = os.Remove(h.b.lockPath())
	_ = h.lock.Close()
}

// nothingInTheWay refuses where a file that git does not track, ignored or not,
// is where a new one comes: git itself writes over ignored ones.
func (w *Workspaces) nothingInTheWay(ctx context.Context, repo *repository, b bringing) error {
	changed, err := w.differences(ctx, repo, b.Old, b.New)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(b.Tree)
	if err != nil {
		return failed("look at "+b.Tree, err)
	}
	defer root.Close()
	files := inTheWay(root, changed)
	if len(files) == 0 {
		return nil
	}
	return caisson.Errorf(caisson.CodeWorkspaceDirty, "files that git does not track are in the way in %s: %s", b.Tree, strings.Join(files[:min(10, len(files))], ", ")).
		With("files", files).WithHint("Move them away, then merge again.")
}

// inTheWay returns what is where a file comes that was not there, but for what
// goes, printable. Git that is forced removes all of it, whole directories too.
func inTheWay(root *os.Root, changed []difference) []string {
	goes := map[string]bool{}
	for _, d := range changed {
		goes[d.path] = d.mode == noMode
	}
	var found []string
	for _, d := range changed {
		if d.oldMode != noMode || d.mode == noMode {
			continue
		}
		if path := obstacle(root, d.path, goes); path != "" && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	for i, path := range found {
		found[i] = printable(path)
	}
	return found
}

// obstacle returns what is in the way of a file that comes to path, but for
// what goes; "" if nothing is.
func obstacle(root *os.Root, path string, goes map[string]bool) string {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		info, err := root.Lstat(path[:i])
		switch {
		case err != nil:
			return ""
		case info.IsDir():
		case goes[path[:i]]:
			return ""
		default:
			return path[:i]
		}
	}
	info, err := root.Lstat(path)
	if err != nil {
		return ""
	}
	if !info.IsDir() {
		return path
	}
	found := ""
	_ = fs.WalkDir(root.FS(), path, func(at string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || goes[at]) {
			return nil
		}
		found = at
		return fs.SkipAll
	})
	return found
}
