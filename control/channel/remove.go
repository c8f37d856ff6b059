package channel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeMany is how many entries of a directory are read at once.
const removeMany = 1024

// Remove removes the channel below dir, whatever its sandbox made of its part
// and of the rights to it. No link is followed. What it has not removed when ctx
// ends, or cannot remove, is left to another call; the error says so. No error:
// nothing is at dir.
func Remove(ctx context.Context, dir string) error {
	in, err := os.OpenFile(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer in.Close()
		err = (&removal{ctx: ctx, prefix: gonePrefix + rand.Text()[:10] + "."}).remove(in, filepath.Base(dir))
	}
	if err != nil {
		return failed("remove the control channel "+dir, err)
	}
	return nil
}

type removal struct {
	ctx    context.Context //nolint:containedctx // of one call of Remove
	prefix string          // of the directories that were moved to the top
	moved  int
}

// remove removes an entry of in.
func (r *removal) remove(in *os.File, name string) error {
	if err := unlinked(in, name); err == nil {
		return nil
	}
	top, err := openDir(in, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	// What does not go at one pass may at the next: the passes end when one gets
	// nowhere.
	for {
		did, err := r.each(top, func(inner string) (bool, error) { return r.flatten(top, inner) })
		if r.ctx.Err() != nil {
			return fmt.Errorf("it is large: %w", context.Cause(r.ctx))
		}
		if did {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Unlinkat(at(in), name, unix.AT_REMOVEDIR)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
}

// flatten removes an entry of top. Directories in it are moved to top, so that
// depth costs neither stack nor descriptors. did: there is less than before.
func (r *removal) flatten(top *os.File, name string) (did bool, err error) {
	if err := unlinked(top, name); err == nil {
		return true, nil
	}
	dir, err := openDir(top, name)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	did, err = r.each(dir, func(inner string) (bool, error) {
		if err := unlinked(dir, inner); err == nil {
			return true, nil
		}
		if d, err := openDir(dir, inner); err == nil { // to be moved it must be ours to write
			d.Close()
		}
		r.moved++
		err := unix.Renameat(at(dir), inner, at(top), r.prefix+strconv.Itoa(r.moved))
		return err == nil, err
	})
	if unix.Unlinkat(at(top), name, unix.AT_REMOVEDIR) == nil {
		return true, nil
	}
	return did, err
}

// each does something with each entry of a directory, until the call's end.
func (r *removal) each(dir *os.File, do func(name string) (bool, error)) (did bool, first error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	for r.ctx.Err() == nil {
		names, err := dir.Readdirnames(removeMany)
		for _, name := range names {
			if r.ctx.Err() != nil {
				return did, first
			}
			some, err := do(name)
			did = did || some
			if first == nil && err != nil {
				first = &fs.PathError{Op: "remove", Path: name, Err: err}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return did, first
		case err != nil:
			return did, errors.Join(first, err)
		}
	}
	return did, first
}

// unlinked removes what is no directory.
func unlinked(in *os.File, name string) error {
	err := unix.Unlinkat(at(in), name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
