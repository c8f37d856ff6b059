//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
