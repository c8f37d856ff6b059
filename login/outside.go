package login

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/fault"
)

// exchanges bounds how often a copy that others write meanwhile is put back.
const exchanges = 100

// errChanged is a copy that somebody else wrote since it was looked at.
var errChanged = &problem{"was changed meanwhile, and stays as it is now"}

// owner is whose a file is.
type owner struct{ uid, gid int }

// outside is the person's copy. The directory that it is in is held open, so
// that what is looked at and what is replaced are in one and the same.
type outside struct {
	home string
	path string
	dir  *os.File // nil: it is not there
	name string
}

// openOutside opens the directory that the copy is in, if there is one.
func openOutside(home, path string) (*outside, error) {
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		return nil, fmt.Errorf("find your home: %w", err)
	}
	o := &outside{home: home, path: path, name: filepath.Base(path)}
	return o, o.enter(false)
}

// enter opens the directory step by step, and makes those that are missing if
// that is wanted. A link is not followed.
func (o *outside) enter(create bool) error {
	at, err := openAt(unix.AT_FDCWD, o.home)
	if err != nil {
		return fmt.Errorf("open your home: %w", err)
	}
	steps := strings.Split(o.path, "/")
	for _, step := range steps[:len(steps)-1] {
		if create {
			if err := unix.Mkdirat(int(at.Fd()), step, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				return errors.Join(fmt.Errorf("make directory %s: %w", step, err), at.Close())
			}
		}
		below, err := openAt(int(at.Fd()), step)
		if closing := at.Close(); closing != nil {
			return closing
		}
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			return problemf("your copy is left alone: ", step, " is a link, or no directory")
		case err != nil:
			return fmt.Errorf("open directory %s: %w", step, err)
		}
		at = below
	}
	o.dir = at
	return nil
}

func openAt(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (o *outside) close() {
	if o.dir != nil {
		_ = o.dir.Close() // only read
	}
}

func (o *outside) fd() int { return int(o.dir.Fd()) }

// beside is the name of what is written before it takes the copy's place. There
// is one at a time, and only one that was killed leaves it.
func (o *outside) beside() string { return "." + o.name + ".caisson-login" }

// look reads the copy.
func (o *outside) look(judge func([]byte) content) (content, error) {
	if o.dir == nil {
		return content{}, nil
	}
	raw, whose, err := o.readAt(o.name)
	if errors.Is(err, unix.ENOENT) {
		return content{}, nil
	}
	if err != nil {
		return content{}, err
	}
	if me := os.Geteuid(); me != 0 && whose.uid != me {
		return content{}, problemf("belongs to another user")
	}
	c := judge(raw)
	c.owner = whose
	return c, nil
}

// readAt reads a regular file. It waits for nobody and follows no link.
func (o *outside) readAt(name string) (raw []byte, whose owner, err error) {
	fd, err := unix.Openat(o.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, whose, problemf("is a link")
	case errors.Is(err, unix.ENXIO): // a socket, or a pipe
		return nil, whose, problemf("is no regular file")
	case err != nil:
		return nil, whose, fmt.Errorf("open %s: %w", o.path, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, whose, fmt.Errorf("look at %s: %w", o.path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, whose, problemf("is no regular file")
	case st.Size > maxSize:
		return nil, whose, problemf("is larger than 1 MiB")
	}
	raw, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	return raw, owner{int(st.Uid), int(st.Gid)}, err
}

// settle removes what a process that was killed left beside the copy. It may be
// what was to take its place, or what was taken out of it: the newer one stays.
func (o *outside) settle(judge func([]byte) content) error {
	if o.dir == nil {
		return nil
	}
	raw, _, err := o.readAt(o.beside())
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		left := judge(raw)
		now, err := o.look(judge)
		switch {
		case err != nil || !left.valid() || !left.dated || !now.valid():
		case now.until.Before(left.until) && maps.Equal(left.keys, now.keys):
			err := o.exchange(now)
			if errors.Is(err, errChanged) {
				err = nil // the person has just made one
			}
			return o.tidy(err)
		}
	}
	return o.remove()
}

// rename gives what is beside the copy its place.
func (o *outside) rename() error {
	if err := unix.Renameat(o.fd(), o.beside(), o.fd(), o.name); err != nil {
		return fmt.Errorf("rename beside %s: %w", o.path, err)
	}
	return o.sync()
}

func (o *outside) remove() error {
	if err := unix.Unlinkat(o.fd(), o.beside(), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove beside %s: %w", o.path, err)
	}
	return o.sync()
}

func (o *outside) sync() error {
	if err := o.dir.Sync(); err != nil {
		return fmt.Errorf("sync directory of %s: %w", o.path, err)
	}
	return nil
}

// put puts raw in the place of the copy that was seen, if that is still there.
func (o *outside) put(raw []byte, seen content) error {
	if o.dir == nil {
		if err := o.enter(true); err != nil {
			return err
		}
		if o.dir == nil {
			return errChanged
		}
	}
	if err := o.write(raw, seen); err != nil {
		return errors.Join(err, o.remove())
	}
	var err error
	if seen.there() {
		err = o.exchange(seen)
	} else if err = unix.Linkat(o.fd(), o.beside(), o.fd(), o.name, 0); errors.Is(err, unix.EEXIST) {
		err = errChanged
	}
	return o.tidy(err)
}

// tidy removes what is beside the copy after an attempt to replace that, unless err
// says that it stays.
func (o *outside) tidy(err error) error {
	var kept *keptError
	if errors.As(err, &kept) {
		return err
	}
	return errors.Join(err, o.remove())
}

// write makes the file beside the copy.
func (o *outside) write(raw []byte, seen content) error {
	fd, err := unix.Openat(o.fd(), o.beside(), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write beside %s: %w", o.path, err)
	}
	f := os.NewFile(uintptr(fd), o.beside())
	_, err = f.Write(raw)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil && seen.there() && seen.owner != (owner{os.Geteuid(), os.Getegid()}) {
		err = f.Chown(seen.owner.uid, seen.owner.gid)
	}
	if err == nil {
		err = fault.Point("login.write")
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write beside %s: %w", o.path, err)
	}
	return nil
}

// exchange exchanges the two files and looks at what came out. Where that is not
// what was seen, somebody wrote it in between, and it goes back.
func (o *outside) exchange(seen content) error {
	if !o.holds(o.name, seen.raw) {
		return errChanged
	}
	if err := fault.Point("login.exchange.before"); err != nil {
		return fmt.Errorf("exchange %s: %w", o.path, err)
	}
	last, err := o.hold(o.beside())
	if err != nil {
		return err
	}
	defer last.let()
	err = o.swap()
	switch {
	case errors.Is(err, unix.ENOENT): // the person has logged out
		return errChanged
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		if !o.holds(o.name, seen.raw) {
			return errChanged
		}
		return o.rename()
	case err != nil:
		return fmt.Errorf("exchange %s: %w", o.path, err)
	}
	_ = fault.Point("login.exchange.after")
	if o.holds(o.beside(), seen.raw) {
		return nil
	}
	return o.restore(last)
}

// restore exchanges back what came out, and also what is written meanwhile: what
// comes out must be the file that went in last, or it is newer still.
func (o *outside) restore(last held) error {
	for range exchanges {
		out, err := o.hold(o.beside())
		if err == nil {
			defer out.let()
			err = o.swap()
		}
		if errors.Is(err, unix.ENOENT) {
			return errChanged // it was removed after it was written
		}
		if err != nil {
			return &keptError{fmt.Errorf("put %s back from %s: %w", o.path, o.beside(), err)}
		}
		if o.is(o.beside(), last) {
			return errChanged
		}
		last = out
	}
	return &keptError{fmt.Errorf("put %s back: it is written without end", o.path)}
}

// keptError says that what is beside the copy may be the person's and stays.
type keptError struct{ error }

// held is a file, by its number. As long as it is held nothing else has that
// number: else a new login could be taken for one that was written over.
type held struct {
	device, inode uint64
	fd            int
}

func (o *outside) hold(name string) (held, error) {
	fd, err := unix.Openat(o.fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return held{}, fmt.Errorf("look at %s: %w", o.path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return held{}, errors.Join(fmt.Errorf("look at %s: %w", o.path, err), unix.Close(fd))
	}
	return held{uint64(st.Dev), st.Ino, fd}, nil
}

func (h held) let() { _ = unix.Close(h.fd) }

// is tells whether a name is that of a file that is held.
func (o *outside) is(name string, file held) bool {
	var st unix.Stat_t
	err := unix.Fstatat(o.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && uint64(st.Dev) == file.device && st.Ino == file.inode
}

func (o *outside) swap() error {
	return unix.Renameat2(o.fd(), o.beside(), o.fd(), o.name, unix.RENAME_EXCHANGE)
}

// holds tells whether a file has exactly this content.
func (o *outside) holds(name string, raw []byte) bool {
	now, _, err := o.readAt(name)
	return err == nil && bytes.Equal(now, raw)
}
