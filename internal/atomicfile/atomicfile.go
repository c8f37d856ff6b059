// Package atomicfile writes files so that a reader, or a later life after a
// crash, sees either what was there before or the whole new content.
//
// The content is written to a temporary file in the same directory, synced,
// put in place, and the directory is synced. When a function returns nil the
// file is durable; when it returns an error the file is as it was, except that
// an error of the last step (the directory's sync) leaves the new content in
// place without the promise that it outlives a power cut.
//
// Not promised: anything about file systems that do not keep renames atomic,
// or about the parent directories' own durability when the caller has just
// made them (use [SyncDir]).
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/caisson-run/caisson/internal/fault"
)

// Write replaces the file at path, or creates it, with exactly these
// permission bits, whatever the umask. A link at path is replaced, never followed.
func Write(path string, data []byte, mode fs.FileMode) error {
	return put(path, data, mode, os.Rename)
}

// Create makes the file at path and fails with fs.ErrExist where anything,
// a dangling link too, is in its place. Of several writers exactly one succeeds.
func Create(path string, data []byte, mode fs.FileMode) error {
	return put(path, data, mode, func(made, path string) error {
		if err := os.Link(made, path); err != nil {
			return err
		}
		return os.Remove(made)
	})
}

func put(path string, data []byte, mode fs.FileMode, place func(made, path string) error) error {
	dir := filepath.Dir(path)
	made, err := writeTemporary(dir, filepath.Base(path), data, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fault.Point("atomicfile.place.before"); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(made))
	}
	if err := place(made, path); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), RemoveIfThere(made))
	}
	_ = fault.Point("atomicfile.place.after")
	return SyncDir(dir)
}

// temporary are the names that writeTemporary gives.
var temporary = regexp.MustCompile(`^\..+\.[0-9]+\.tmp$`)

// IsTemporary tells whether a file of that name is one that was not written to
// its end, where nothing but this package writes such names.
func IsTemporary(name string) bool { return temporary.MatchString(name) }

// writeTemporary leaves a synced file that no other writer knows.
func writeTemporary(dir, base string, data []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, "."+base+".*.tmp")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = fault.Point("atomicfile.sync")
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// RemoveIfThere removes the file at path. That it is not there is no error.
func RemoveIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir makes what was created, renamed or removed in a directory durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
