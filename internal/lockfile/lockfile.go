// Package lockfile holds files that one process at a time may hold. The kernel
// lets go of a lock when its holder ends, however it ends. A lock file is never
// removed: a second one of the same name would be a second lock.
//
// What is not promised: anything across machines. On a network file system a
// lock may be nobody's or everybody's; Local tells.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// poll is how often a lock that is held is tried again. flock can wait by
// itself, but not for a context.
const poll = 10 * time.Millisecond

// maxNote bounds what is read of an owner's note.
const maxNote = 64 << 10

const (
	// lookBound is how long others may look at a lock, one after another, before
	// it is taken for held. A look takes microseconds, and as long as the machine
	// likes where who looks is not given a processor meanwhile.
	lookBound = 5 * time.Second
	lookPause = time.Millisecond
	// removedAtMost is how often in a row a lock may be removed before it is had.
	removedAtMost = 100
)

// Lock is a lock that is held.
type Lock struct {
	path string
	lock io.Closer
}

// Acquire waits for the lock until ctx ends, and leaves note in the file for
// people and programs that ask who holds it.
func Acquire(ctx context.Context, path string, note []byte) (*Lock, error) {
	l := open(path)
	locked, err := l.TryLockContext(ctx, poll)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !locked {
		return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
	}
	return own(path, l, note)
}

// Try takes the lock if it is free; held says that it is not.
func Try(path string, note []byte) (lock *Lock, held bool, err error) {
	for range removedAtMost {
		f, err := os.OpenFile(path, openFlags, openMode)
		if err != nil {
			return nil, false, err
		}
		if held, err = Take(int(f.Fd())); err != nil || held {
			return nil, held, errors.Join(err, f.Close())
		}
		if there(path, f) {
			lock, err = own(path, exclusive{f}, note)
			return lock, false, err
		}
		if err := f.Close(); err != nil { // it was removed meanwhile: a lock on it excludes nobody
			return nil, false, err
		}
	}
	return nil, true, nil // others have it, one after another
}

// Dir locks a directory that is still the one of its name, and follows no link to
// it. Who only looks takes it shared (unix.LOCK_SH): two that look are no holder to
// each other, and who takes it for itself (unix.LOCK_EX) waits for them. EWOULDBLOCK
// where it is held, fs.ErrNotExist where there is none, or it went away.
func Dir(path string, how int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if how == unix.LOCK_EX {
		var held bool
		if held, err = Take(fd); held {
			err = unix.EWOULDBLOCK
		}
	} else {
		err = unix.Flock(fd, how|unix.LOCK_NB)
	}
	if err == nil && !there(path, f) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

// there tells whether an open file is still the one of its name.
func there(path string, f *os.File) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(ours, now)
}

// exclusive is a locked file that is this process's alone. Closed and no more, it
// would stay locked while a program is just being started here, which has all open
// that this process has until it is one.
type exclusive struct{ *os.File }

func (f exclusive) Close() error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
	if errors.Is(err, unix.EBADF) {
		return nil // it is closed
	}
	return errors.Join(err, f.File.Close())
}

// Take takes the lock of an open file or directory if it is free, until that is
// closed; held says that it is not. Who looks at a lock has it too, shared and for
// a moment: that is no holder, and is waited for.
func Take(fd int) (held bool, err error) {
	for end := time.Now().Add(lookBound); ; <-time.After(lookPause) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return false, err
		}
		err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true, nil
		}
		if err == nil {
			err = unix.Flock(fd, unix.LOCK_UN)
		}
		if err != nil || time.Now().After(end) {
			return err == nil, err
		}
	}
}

// Shared is a lock that may be handed to other processes: it is held until all
// that have its file open, which a child inherits, have closed it or ended.
type Shared struct {
	*os.File
	path string
}

// Create makes a lock file with a note and takes its lock. fs.ErrExist where
// there is one of that name.
func Create(path string, note []byte) (*Shared, error) {
	s, held, err := shared(path, os.O_CREATE|os.O_EXCL)
	if err == nil && held {
		err = fmt.Errorf("lock %s: another has it already", path)
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.Write(note); err != nil {
		return nil, errors.Join(fmt.Errorf("note owner of %s: %w", path, err), os.Remove(path), s.Close())
	}
	return s, nil
}

// TryExisting takes the lock of a file that is there, and leaves its note; held
// says that it is not free. fs.ErrNotExist where there is none, or it went away.
func TryExisting(path string) (lock *Shared, held bool, err error) {
	s, held, err := shared(path, 0)
	if err != nil || held {
		return nil, held, err
	}
	if !there(path, s.File) {
		return nil, false, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: fs.ErrNotExist}, s.Close())
	}
	return s, false, nil
}

func shared(path string, how int) (lock *Shared, held bool, err error) {
	f, err := os.OpenFile(path, how|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	held, err = Take(int(f.Fd()))
	switch {
	case held:
		return nil, true, f.Close()
	case err != nil:
		return nil, false, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, f.Close())
	}
	return &Shared{f, path}, false, nil
}

// Path returns the path of the file.
func (s *Shared) Path() string { return s.path }

const (
	openFlags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW | unix.O_CLOEXEC
	openMode  = 0o600
)

func open(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(openFlags), flock.SetPermissions(openMode))
}

func own(path string, l io.Closer, note []byte) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err == nil {
		_, err = f.Write(note)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("note owner of %s: %w", path, err), l.Close())
	}
	return &Lock{path, l}, nil
}

// Path returns the path of the file.
func (l *Lock) Path() string { return l.path }

// Close lets go of the lock. The file and its note stay.
func (l *Lock) Close() error { return l.lock.Close() }

// Held tells whether a process holds the lock now. It takes the lock, shared,
// for a moment where it is free. fs.ErrNotExist where there is no file.
func Held(path string) (bool, error) {
	l := flock.New(path, flock.SetFlag(os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC))
	free, err := l.TryRLock()
	if err != nil {
		return false, fmt.Errorf("look at lock %s: %w", path, err)
	}
	return !free, l.Close()
}

// Note returns what the last holder left in the file.
func Note(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxNote))
}

// remote are the file systems whose locks another machine may hold, by the
// numbers of statfs(2).
var remote = [...]int64{
	unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, 0xff534d42 /* CIFS */, unix.SMB2_SUPER_MAGIC,
	unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC,
	unix.CODA_SUPER_MAGIC, 0x01161970 /* GFS2 */, 0x7461636f /* OCFS2 */, 0x0bd00bd0 /* Lustre */, 0x786f4256, /* vboxsf */
}

// Local tells whether locks on this file system are this kernel's alone.
func Local(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	for _, magic := range remote {
		if int64(uint32(st.Type)) == magic { //nolint:gosec,unconvert // the field's type differs by architecture
			return false, nil
		}
	}
	return true, nil
}
