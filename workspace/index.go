package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/fault"
)

// Git that is killed while it writes an index leaves a lock that says nothing of
// whose it was. So the host's git never writes the index of a workspace's outer
// worktree: it makes a new one beside it, which this process puts in place by
// git's own rule. The lock it takes for that is the new index itself, under a
// second name. Where a lock is found that has such a second name, a process of
// ours made it; and where the workspace is locked by the finder, that process has
// ended. It is the only lock of an index that is removed.

// newIndexes are the names of indexes that are being made.
const newIndexes = "caisson-index-"

// indexTries is how often a new index is made, where a person's git changes the
// one that it is made of all the time.
const indexTries = 5

// errIndexMoves is the end of these tries.
var errIndexMoves = errors.New("the index is changed all the time")

// changeIndex has change work on a copy of the index in dir, and puts that in its
// place. To be called with the workspace locked.
func changeIndex(ctx context.Context, dir string, change func(index string) error) error {
	if err := removeOldIndexes(dir); err != nil {
		return err
	}
	end := time.Now().Add(indexLockWait)
	for range indexTries {
		made := filepath.Join(dir, newIndexes+rand.Text())
		done, err := replaceIndex(ctx, dir, made, end, change)
		if removed := os.Remove(made); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		if done || err != nil {
			return err
		}
	}
	return errIndexMoves
}

// replaceIndex makes one new index; done is false where the old one was changed
// meanwhile, and nothing was.
func replaceIndex(ctx context.Context, dir, made string, end time.Time, change func(index string) error) (done bool, err error) {
	index, lock := filepath.Join(dir, "index"), filepath.Join(dir, "index.lock")
	// A second name is as good as a copy: git replaces indexes, it never writes into one.
	err = os.Link(index, made)
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is none yet
	case err != nil:
		return true, change(index) // no second names on this file system
	}
	before, err := os.Lstat(made)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := change(made); err != nil {
		return false, err
	}
	for err = os.Link(made, lock); errors.Is(err, fs.ErrExist); err = os.Link(made, lock) {
		if time.Now().After(end) || !pause(ctx, lockPoll) {
			return false, heldLock("bring the index along", lock, err)
		}
	}
	if err != nil {
		return false, err
	}
	if now, err := os.Lstat(index); !sameIndex(before, now, err) {
		return false, os.Remove(lock)
	}
	if err := fault.Point("workspace.index.locked"); err != nil {
		return false, errors.Join(err, os.Remove(lock))
	}
	return true, os.Rename(lock, index)
}

// sameIndex tells whether the index is the one that was begun with.
func sameIndex(before, now fs.FileInfo, err error) bool {
	if before == nil || err != nil {
		return before == nil && errors.Is(err, fs.ErrNotExist)
	}
	return os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime())
}

// removeOldIndexes removes what processes of ours left that were killed, and the
// lock of one of them.
func removeOldIndexes(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	lock, lockErr := os.Lstat(filepath.Join(dir, "index.lock"))
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), newIndexes) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if info, err := os.Lstat(path); err == nil && lockErr == nil && os.SameFile(info, lock) {
			if err := atomicfile.RemoveIfThere(filepath.Join(dir, "index.lock")); err != nil {
				return fmt.Errorf("remove a lock that a killed process left: %w", err)
			}
		}
		if err := atomicfile.RemoveIfThere(path); err != nil {
			return err
		}
	}
	return nil
}
