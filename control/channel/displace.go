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

// displaceTries bounds how often the private directory is taken from others who
// open the channel at the same time, each of whom takes it once.
const displaceTries = 100

// displace takes the private directory from whoever has the channel open, who
// may have been stopped in the middle of anything. All that is published is
// written there first: once the directory is removed, nothing can be written in
// it by who still has it open, so that he publishes and claims nothing more.
//
// Ours is held before it gets that name, so that no two have the same one who open
// the channel at the same time.
func (f *Files) displace(root *os.File) error {
	made := ""
	for range displaceTries {
		if made == "" {
			made = f.name(displacedPrefix)
			err := f.holdPrivate(root, made)
			if errors.Is(err, fs.ErrNotExist) { // see below
				made = ""
				continue
			}
			if err != nil {
				return err
			}
		}
		err := unix.Renameat(at(root), caisson.ControlPrivate, at(root), f.name(displacedPrefix))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = unix.Renameat2(at(root), made, at(root), caisson.ControlPrivate, unix.RENAME_NOREPLACE)
		}
		switch {
		case err == nil:
			return f.knowOurs()
		case errors.Is(err, fs.ErrExist): // another was quicker, and is displaced
		case errors.Is(err, fs.ErrNotExist): // another took it for one that was left
			f.private.Close()
			made = ""
		default:
			return &fs.PathError{Op: "rename", Path: made, Err: err}
		}
	}
	return &fs.PathError{Op: "rename", Path: caisson.ControlPrivate, Err: unix.EBUSY}
}

// holdPrivate makes a directory and opens it as our private one.
func (f *Files) holdPrivate(root *os.File, name string) error {
	err := unix.Mkdirat(at(root), name, dirMode)
	if err == nil {
		f.private, err = openDir(root, name)
	}
	if err != nil {
		return &fs.PathError{Op: "make", Path: name, Err: err}
	}
	return nil
}

// Displaced tells whether another has taken the channel: nothing is published or
// claimed any more by who holds f. It is false where the channel's directory
// is gone.
func (f *Files) Displaced() bool {
	var now unix.Stat_t
	err := unix.Lstat(f.ours.path, &now)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.Stat(f.dir, &now) == nil
	}
	return err == nil && (now.Dev != f.ours.dev || now.Ino != f.ours.ino)
}

// ours is which directory is our private one: no other has its number for as
// long as we hold it.
type ours struct {
	path     string
	dev, ino uint64
}

// holds tells whether a directory is our private one.
func (f *Files) holds(dir *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(at(dir), &st) == nil && st.Dev == f.ours.dev && st.Ino == f.ours.ino
}

func (f *Files) knowOurs() error {
	var st unix.Stat_t
	if err := unix.Fstat(at(f.private), &st); err != nil {
		return err
	}
	f.ours = ours{filepath.Join(f.dir, caisson.ControlPrivate), st.Dev, st.Ino}
	return nil
}

// inherit moves what others have left into our private directory and removes
// theirs.
func (f *Files) inherit(dir *os.File) error {
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another has it
	}
	if err != nil {
		return err
	}
	defer theirs.Close()
	if f.holds(theirs) { // it is for whoever has taken it to do
		return &fs.PathError{Op: "hold", Path: caisson.ControlPrivate, Err: unix.ESTALE}
	}
	for range inheritTries {
		err = unix.Unlinkat(at(root), name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		left, listErr := listed(theirs)
		if errors.Is(listErr, fs.ErrNotExist) {
			return nil
		}
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
