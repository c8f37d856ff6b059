package workspace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// restoreLog makes the branch's log what it was, without the entry of the
// restoring; what came since stays. It can be done again. The branch is locked as
// git locks it, so that no entry comes meanwhile.
func (w *Workspaces) restoreLog(ctx context.Context, repo *repository, t Trashed) (err error) {
	before, err := readInside(w.trash(t.Workspace.ID), "branch-log", maxLogs)
	if err != nil {
		return nil //nolint:nilerr // there was none
	}
	root, err := os.OpenRoot(t.Workspace.Binding.CommonDir)
	if err != nil {
		return err
	}
	defer root.Close()
	branch := "refs/heads/" + t.Workspace.Branch
	if err := repo.staysInside([]refUpdate{{name: branch}}); err != nil {
		return err
	}
	unlock, err := w.lockRef(ctx, repo, root, refUpdate{branch, t.Tip, ""}, filepath.Base(halfway(t.Workspace))+".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := fault.Point("workspace.restore.log"); err != nil {
		return err
	}
	name := "logs/" + branch
	now, err := readRegular(root, name, maxLogs)
	if err != nil || bytes.HasPrefix(now, before) {
		return nil //nolint:nilerr // no logs are kept any more, or it is done
	}
	whole := bytes.Clone(before)
	if len(whole) > 0 && whole[len(whole)-1] != '\n' {
		whole = append(whole, '\n')
	}
	for entry := range bytes.Lines(now) {
		if !bytes.HasSuffix(bytes.TrimSuffix(entry, []byte("\n")), []byte("\t"+restoring(t.Workspace))) {
			whole = append(whole, entry...)
		}
	}
	return replaceRegular(root, name, whole)
}

// restoring is what the log says of a branch that is made again.
func restoring(ws caisson.Workspace) string { return "caisson: restore workspace " + ws.Name }

// lockRef locks a reference as git does, for as long as it waits for one. The lock
// appears with the value in it that the reference has, and a note tells that it is
// ours: where this process is killed, it is removed as one of git's. made is a
// name in the repository under which it is written first.
func (w *Workspaces) lockRef(ctx context.Context, repo *repository, root *os.Root, ref refUpdate, made string) (unlock func() error, err error) {
	if err := w.undoUpdates(ctx); err != nil {
		return nil, err
	}
	note, err := w.writeUpdate(update{repo.common, map[string]string{ref.name: ref.to}, made})
	if err != nil {
		return nil, err
	}
	lock := ref.name + ".lock"
	if err = root.Remove(made); errors.Is(err, fs.ErrNotExist) { // else of one that was killed
		err = nil
	}
	if err == nil {
		err = root.MkdirAll(path.Dir(lock), 0o755) // git removes it where all of it is packed
	}
	if err == nil {
		err = root.WriteFile(made, []byte(ref.to+"\n"), 0o644)
	}
	if err == nil {
		pass("workspace.restore.made")
		err = root.Link(made, lock)
		for end := time.Now().Add(refLockWait); errors.Is(err, fs.ErrExist) && time.Now().Before(end) && pause(ctx, lockPoll); {
			err = root.Link(made, lock)
		}
		err = errors.Join(err, root.Remove(made))
	}
	if errors.Is(err, fs.ErrExist) {
		err = heldLock("lock "+ref.name, filepath.Join(repo.common, lock), err)
	}
	if err != nil {
		return nil, errors.Join(err, forget(note))
	}
	return func() error { return errors.Join(root.Remove(lock), forget(note)) }, nil
}

// replaceRegular replaces a file by one with that content: there is the one or
// the other, whole, at any time.
func replaceRegular(root *os.Root, name string, data []byte) (err error) {
	part := path.Join(path.Dir(name), ".caisson.0.tmp") // no name of a reference begins so
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if err := root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = errors.Join(f.Chmod(info.Mode().Perm()), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return nil
}
