package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// notes are what is noted beside the ledger of things under way: one file each,
// by the name of what it is about. A note is whole or not there, and durable when
// the call that wrote it returns.
//
// They are no rows of the ledger because they say what this machine's processes do
// to what lies beside it, and are over in minutes: what they led to is recorded
// there. Two processes that write one note are for the caller to keep apart.
type notes[T any] struct {
	dir   string
	noun  string         // of one, for people
	about func(T) string // the name of its file
	// hint says what to do about one that cannot be read.
	hint string
}

func (n notes[T]) path(about string) string { return filepath.Join(n.dir, about+".json") }

// make makes a note; fs.ErrExist where there is one.
func (n notes[T]) make(v T) error { return n.put(v, atomicfile.Create) }

// write makes a note, or puts it in the place of the one that is there.
func (n notes[T]) write(v T) error { return n.put(v, atomicfile.Write) }

func (n notes[T]) put(v T, how func(path string, data []byte, mode fs.FileMode) error) error {
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(n.dir, 0o700)
	}
	if err == nil {
		err = how(n.path(n.about(v)), raw, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = caisson.Errorf(caisson.CodeWriteFailed, "write the %s of %s: %w", n.noun, n.about(v), err)
	}
	return err
}

// drop removes a note, if there is one.
func (n notes[T]) drop(about string) error {
	err := atomicfile.RemoveIfThere(n.path(about))
	if err == nil {
		err = atomicfile.SyncDir(n.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return caisson.Errorf(caisson.CodeWriteFailed, "remove the %s of %s: %w", n.noun, about, err)
	}
	return nil
}

// read returns a note, if there is one.
func (n notes[T]) read(about string) (v T, there bool, err error) {
	raw, err := os.ReadFile(n.path(about))
	if errors.Is(err, fs.ErrNotExist) {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err == nil && n.about(v) != about {
		err = errors.New("it is about another")
	}
	if err != nil {
		return v, true, caisson.Errorf(caisson.CodeInternal, "the %s in %s cannot be read: %w", n.noun, n.path(about), err).WithHint("%s", n.hint)
	}
	return v, true, nil
}

// all returns the notes that can be read; an error tells of the others.
func (n notes[T]) all() ([]T, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []T
	var errs []error
	for _, entry := range entries {
		about, is := strings.CutSuffix(entry.Name(), ".json")
		if !is || atomicfile.IsTemporary(entry.Name()) {
			continue
		}
		v, there, err := n.read(about)
		if errs = append(errs, err); err == nil && there {
			all = append(all, v)
		}
	}
	return all, errors.Join(errs...)
}
