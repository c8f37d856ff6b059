//go:build linux

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A cgroup of a box is locked by the process that made it. The kernel lets go
// of the lock when that ends, however it ends: one that is not locked is
// nobody's, also where no record names its box.

// makeLocked makes a cgroup and locks it. It may be taken for one that was left
// in the moment between; then it is made again.
func makeLocked(dir string) (*os.File, error) {
	for range 10 {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		lock, err := lockDir(dir)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		<-time.After(time.Millisecond)
	}
	return nil, fmt.Errorf("lock cgroup %s: another process holds it", filepath.Base(dir))
}

// lockDir locks a directory that is still the one of its name.
func lockDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var held, there unix.Stat_t
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.Fstat(fd, &held)
	}
	if err == nil {
		err = unix.Lstat(dir, &there)
	}
	if err == nil && (held.Dev != there.Dev || held.Ino != there.Ino) {
		err = fs.ErrNotExist
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// Tidy removes the cgroups of this user's boxes whose makers have ended. What
// still runs in one is not ended: the guest of a maker that has ended ends by
// itself, and Sweep ends what is on record.
func (e *Engine) Tidy(ctx context.Context) error {
	h, err := e.hierarchies()
	if err != nil {
		return fmt.Errorf("look for cgroups: %w", err)
	}
	var errs []error
	for _, mount := range h.mounts {
		errs = append(errs, filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // a cgroup that went away meanwhile, or one that is not ours to look into
			}
			if !strings.HasPrefix(d.Name(), groupPrefix+"s") {
				return nil
			}
			if err := tidyGroup(path); err != nil {
				return err
			}
			return fs.SkipDir
		}))
	}
	return errors.Join(errs...)
}

func tidyGroup(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return nil //nolint:nilerr // gone meanwhile, or another's
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil //nolint:nilerr // gone meanwhile, or in use
	}
	defer lock.Close()
	if err := removeGroup(dir, time.Now().Add(emptyBound/10)); !errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}
