package channel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// trash are entries of private that are to be removed: directories can be large
// and deep, and whoever made one may still be in it and make more.
type trash struct {
	mu    sync.Mutex
	names []string
}

func (t *trash) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
}

func (t *trash) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.names) > 0
}

func (t *trash) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.names
	t.names = nil
	return names
}

// empty removes trash for as long as the budget lasts, and tells whether some is
// left that another call could remove.
func (f *Files) empty(budget *int) (rest bool) {
	var stuck []string
	for names := f.trash.take(); len(names) > 0; names = f.trash.take() {
		for _, name := range names {
			if *budget <= 0 {
				f.trash.add(name)
				rest = true
				continue
			}
			more, err := f.emptyOne(name, budget)
			switch {
			case err != nil:
				stuck = append(stuck, name)
			case more:
				f.trash.add(name)
			}
		}
		if rest {
			break
		}
	}
	for _, name := range stuck {
		f.scan.counts.Stuck++
		f.trash.add(name)
	}
	return rest
}

// emptyOne removes an entry of private. Directories in a directory become
// entries of private themselves, so that depth costs neither stack nor
// descriptors.
func (f *Files) emptyOne(name string, budget *int) (more bool, err error) {
	*budget--
	if err := unix.Unlinkat(at(f.private), name, 0); err == nil || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	dir, err := openDir(f.private, name)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(*budget + 1) // what cannot be read is told by the removal
	for _, inner := range names {
		if *budget <= 0 {
			return true, nil
		}
		*budget--
		if err := unix.Unlinkat(at(dir), inner, 0); err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if d, err := openDir(dir, inner); err == nil {
			d.Close()
		}
		gone := f.name(gonePrefix)
		if err := unix.Renameat(at(dir), inner, at(f.private), gone); err != nil {
			return false, err
		}
		f.trash.add(gone)
		more = true
	}
	err = unix.Unlinkat(at(f.private), name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) { // whoever is in it has made more
		return true, nil
	}
	return more, err
}

// openDir opens a directory of the sandbox's and takes the right to work in it,
// which its owner may have taken away. Nothing else is opened or changed.
func openDir(in *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(at(in), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	// By this name it is that directory and no other, whatever is at the path now.
	held := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Chmod(held, dirMode); err != nil {
		return nil, &fs.PathError{Op: "chmod", Path: name, Err: err}
	}
	return os.OpenFile(held, os.O_RDONLY|unix.O_DIRECTORY, 0)
}
