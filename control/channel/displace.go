package channel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// displacedPrefix is of a private directory that was taken from whoever had it.
const displacedPrefix = caisson.ControlPrivate + "."

// displace takes the private directory from whoever has the channel open, who
// may have been stopped in the middle of anything. All that is published is
// written there first: once the directory is removed, nothing can be written in
// it by who still has it open, so that he publishes and claims nothing more.
func (f *Files) displace(root *os.Root) error {
	err := root.Rename(caisson.ControlPrivate, displacedPrefix+f.life)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Displaced tells whether another has taken the channel: nothing is published or
// claimed any more by who holds f. It is false where the channel's directory
// is gone.
func (f *Files) Displaced() bool {
	var ours, now unix.Stat_t
	if unix.Fstat(at(f.private), &ours) != nil {
		return false
	}
	err := unix.Lstat(filepath.Join(f.dir, caisson.ControlPrivate), &now)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.Stat(f.dir, &now) == nil
	}
	return err == nil && (now.Dev != ours.Dev || now.Ino != ours.Ino)
}

// inherit moves what others have left into our private directory and removes
// theirs.
func (f *Files) inherit(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := listed(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, displacedPrefix) {
			continue
		}
		if err := f.inheritFrom(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// inheritTries bounds how often a directory is emptied: who has it open may
// still put something there, until it is gone.
const inheritTries = 100

func (f *Files) inheritFrom(root *os.File, name string) error {
	theirs, err := openDir(root, name)
	if err != nil {
		return err
	}
	defer theirs.Close()
	for range inheritTries {
		err = unix.Unlinkat(at(root), name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		left, listErr := listed(theirs)
		if listErr != nil {
			return listErr
		}
		for _, entry := range left {
			if err := f.inheritOne(theirs, entry); err != nil {
				return err
			}
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// inheritOne moves one entry; settle deals with it.
func (f *Files) inheritOne(theirs *os.File, name string) error {
	move := func(to string) error {
		return unix.Renameat2(at(theirs), name, at(f.private), to, unix.RENAME_NOREPLACE)
	}
	err := move(name)
	if errors.Is(err, fs.ErrPermission) { // a directory that the sandbox has made, and locked
		if dir, openErr := openDir(theirs, name); openErr == nil {
			dir.Close()
		}
		err = move(name)
	}
	if errors.Is(err, fs.ErrExist) {
		err = move(f.name(gonePrefix))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // whoever had it open was quicker
	}
	return err
}
