//go:build linux

package landlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/sandbox"
)

// dir is the directory of a box's own on the host. It is locked by this
// process: the kernel lets go of the lock when that ends, however it ends.
type dir struct {
	path string
	lock *os.File
}

// dirOf is where the directory of a box is made.
func (e *Engine) dirOf(id caisson.SandboxID) string { return filepath.Join(e.opts.Dir, string(id)) }

// makeDir makes it, with the directories in it that the plan says are the box's.
// They are as few as can be: a file system that has removed many lately may take
// a millisecond to find a free place for each.
func (e *Engine) makeDir(id caisson.SandboxID, private []string) (*dir, error) {
	if err := e.home(); err != nil {
		return nil, err
	}
	d := &dir{path: e.dirOf(id)}
	var err error
	made := false
	// In the moment before it is locked others may look at its lock, or take it
	// for one that was left and remove it.
	for end := time.Now().Add(lockBound); ; <-time.After(time.Millisecond) {
		if err = os.Mkdir(d.path, 0o700); err == nil {
			made = true
		} else if !made || !errors.Is(err, fs.ErrExist) {
			break
		}
		d.lock, err = lockfile.Dir(d.path, unix.LOCK_EX)
		again := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK)
		if !again || time.Now().After(end) {
			break
		}
	}
	for _, path := range private {
		if err == nil {
			err = os.Mkdir(path, 0o700)
		}
	}
	if err != nil {
		err = caisson.Errorf(caisson.CodeInternal, "make the sandbox's directory: %w", err)
		if d.lock != nil {
			err = errors.Join(err, d.remove())
		}
		return nil, err
	}
	return d, nil
}

// home makes the engine's directory and sees that it is this user's alone.
func (e *Engine) home() error {
	if !filepath.IsAbs(e.opts.Dir) {
		return caisson.Errorf(caisson.CodeInternal, "the engine %s has no directory", Name)
	}
	if err := os.MkdirAll(e.opts.Dir, 0o700); err != nil {
		return caisson.Errorf(caisson.CodeInternal, "make %s: %w", e.opts.Dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(e.opts.Dir, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return caisson.Errorf(caisson.CodePathInvalid, "%s is not a directory of this user alone", e.opts.Dir).WithHint("Remove it, or `chmod 700` it.")
	}
	return nil
}

// lockBound is how long others may look at the lock of a new directory, one
// after another, before its maker gives up.
const lockBound = 5 * time.Second

// remove removes it, whatever programs inside have made of it.
func (d *dir) remove() error {
	err := removeAll(d.path)
	if d.lock != nil {
		d.lock.Close()
	}
	return err
}

// removeAll follows no link. A directory that its owner may not look into is
// opened first. Nothing of the box's runs any more.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(at string, d fs.DirEntry, _ error) error { // what cannot be helped is told below
		if d == nil || !d.IsDir() {
			return nil
		}
		fd, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700) //nolint:gosec // it is a directory
			unix.Close(fd)
		}
		return nil
	})
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove the sandbox's directory: %w", err)
	}
	return nil
}

// removeDir removes the directory of a sandbox whose maker has ended.
func (e *Engine) removeDir(id caisson.SandboxID) error {
	if _, err := sandbox.Check(caisson.SandboxSpec{ID: id}); err != nil || !filepath.IsAbs(e.opts.Dir) {
		return err
	}
	path := e.dirOf(id)
	lock, err := lockfile.Dir(path, unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil // its maker lives, and removes it
	case err != nil:
		return err
	}
	return (&dir{path, lock}).remove()
}

// dirs lists the directories that are there.
func (e *Engine) dirs() ([]caisson.Remnant, error) {
	entries, err := os.ReadDir(e.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) || e.opts.Dir == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for directories of sandboxes: %w", err)
	}
	var found []caisson.Remnant
	for _, entry := range entries {
		path := filepath.Join(e.opts.Dir, entry.Name())
		r := caisson.Remnant{Kind: "directory", Name: path, Sandbox: caisson.SandboxID(entry.Name()), Why: "nobody holds its lock"}
		lock, err := lockfile.Dir(path, unix.LOCK_SH)
		if err == nil {
			lock.Close()
		} else {
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			r.Live, r.Why = true, "its lock is held"
		}
		found = append(found, r)
	}
	return found, nil
}
