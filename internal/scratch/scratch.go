// Package scratch makes directories for things of a moment in the user's
// temporary directory. Who makes one holds a lock on it, which the kernel lets
// go of when that process ends: one without a holder was left, and may be
// removed by whoever comes next.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

const (
	prefix = "caisson-scratch-"
	// young is what may be about to be locked.
	young = 10 * time.Second
)

// Dir is a directory that this process holds.
type Dir struct {
	path string
	lock *os.File
}

// New makes a directory that only this user can enter.
func New() (*Dir, error) {
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	lock, err := open(path)
	if err == nil {
		// Others have it for a moment, to look; nobody else can enter.
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		}
		if err == nil {
			return &Dir{path, lock}, nil
		}
		lock.Close()
	}
	return nil, errors.Join(fmt.Errorf("lock scratch directory: %w", err), os.Remove(path))
}

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Close removes the directory with all that is in it.
func (d *Dir) Close() error { return errors.Join(os.RemoveAll(d.path), d.lock.Close()) }

// Found is a directory that somebody of this user made.
type Found struct {
	Path   string
	Holder caisson.Liveness // unknown: it may be being made
}

// All returns this user's directories.
func All() ([]Found, error) {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, entry := range entries {
		if len(entry.Name()) < len(prefix) || entry.Name()[:len(prefix)] != prefix || !entry.IsDir() {
			continue
		}
		path := filepath.Join(os.TempDir(), entry.Name())
		if holder, ours := look(path); ours {
			found = append(found, Found{path, holder})
		}
	}
	return found, nil
}

// look tells who holds a directory, and whether it is this user's: in a
// directory that all write to, a name says nothing.
func look(path string) (caisson.Liveness, bool) {
	f, err := open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || int(st.Uid) != os.Geteuid() {
		return "", false
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return caisson.Alive, true
	case err != nil || time.Since(time.Unix(st.Mtim.Unix())) < young:
		return caisson.LivenessUnknown, true
	}
	return caisson.Dead, true
}

// Remove removes a directory that nobody holds.
func Remove(path string) error {
	if holder, ours := look(path); !ours || holder != caisson.Dead {
		return nil
	}
	if err := os.RemoveAll(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
