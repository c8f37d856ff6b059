package mask

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
)

// FixedOptions say what to hide in a box that can be given no mount once it runs.
type FixedOptions struct {
	// Engine is its name, for messages.
	Engine string
	// Workspace is the tree, at the same absolute path on the host and inside.
	Workspace string
	// Patterns are matched as those of Options.
	Patterns []string
	// Mark is when the empty file and the empty directory that are shown in place
	// of others were last changed, in seconds. They are known by it inside, and by
	// nobody having a right to them.
	Mark int64
}

// Fixed hides what was there when a box was made, and lets nothing run in it once
// there is more. Its maker masks what Found names. Safe for concurrent use.
//
// A mask is known by what the guest sees at its place. A program inside could
// make a file look like one, though only a file that it can read anyway.
type Fixed struct {
	opts  FixedOptions
	found []Match

	mu     sync.Mutex
	finder *finder
	again  []string // what was not seen to be hidden yet
	closed bool
}

// Match is something to be hidden.
type Match struct {
	Path string // relative to the workspace; no component is a link
	Dir  bool
}

// Look finds what is to be hidden.
func Look(ctx context.Context, opts FixedOptions) (*Fixed, error) {
	f := &Fixed{opts: opts}
	var err error
	if f.finder, err = newFinder(opts.Workspace, opts.Patterns); err != nil {
		return nil, err
	}
	if f.again, err = f.finder.find(ctx); err != nil {
		f.finder.close()
		return nil, err
	}
	slices.Sort(f.again)
	f.again = slices.Compact(f.again)
	for _, at := range f.again {
		info, err := os.Lstat(filepath.Join(opts.Workspace, at))
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			continue // gone, or one whose target is hidden
		}
		within := slices.ContainsFunc(f.found, func(m Match) bool { return m.Dir && strings.HasPrefix(at, m.Path+"/") })
		if !within {
			f.found = append(f.found, Match{at, info.IsDir()})
		}
	}
	return f, nil
}

// Found lists what is to be masked, nothing that lies in something else of it.
func (f *Fixed) Found() []Match {
	if f == nil {
		return nil
	}
	return slices.Clone(f.found)
}

// In returns what hides it in an open box, of which client is the client.
func (f *Fixed) In(client Client) Renewer { return inside{f, client.Files()} }

type inside struct {
	*Fixed
	files caisson.Files
}

// Renew implements Renewer: it fails where something matches and is not hidden.
func (f inside) Renew(ctx context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errEnded()
	}
	for range rounds {
		found, err := f.finder.find(ctx)
		found = append(found, f.again...)
		slices.Sort(found)
		f.again = slices.Compact(found) // until they are seen to be hidden
		if err != nil {
			return nil, err
		}
		gone := false
		for _, at := range f.again {
			went, err := f.look(ctx, at)
			if err != nil {
				return nil, err
			}
			gone = gone || went
		}
		if hidden := f.again; !gone {
			f.again = nil
			return hidden, nil
		}
		f.again = slices.DeleteFunc(f.again, func(at string) bool { return !f.there(at) })
		// What was moved meanwhile is found where it is now.
	}
	return nil, errMoved()
}

func (f *Fixed) there(at string) bool {
	_, err := os.Lstat(filepath.Join(f.opts.Workspace, at))
	return err == nil
}

// look fails unless what is at a path of the host is hidden, or has gone.
func (f inside) look(ctx context.Context, at string) (gone bool, _ error) {
	info, err := os.Lstat(filepath.Join(f.opts.Workspace, at))
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return false, nil // what it leads to is looked at by itself
	}
	for dir := at; dir != "." && err == nil; dir = path.Dir(dir) {
		seen, err := f.files.Stat(ctx, dir)
		if err == nil && f.isMask(seen) {
			return false, nil
		}
		if ctx.Err() != nil {
			return false, errLook(at, context.Cause(ctx))
		}
	}
	if !f.there(at) {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, errLook(at, err)
	}
	return false, caisson.Errorf(caisson.CodeIsolationUnavailable, "%q is to be hidden and is not: the engine %s can hide only what was there when the sandbox was opened", at, f.opts.Engine).
		WithHint("Open the sandbox anew, and it is hidden in it; or move the file out of the workspace. Nothing runs in this one while `hide` names what can be read.")
}

func (f *Fixed) isMask(seen caisson.FileInfo) bool {
	return seen.Mode&0o777 == 0 && seen.ModTime.Unix() == f.opts.Mark && (seen.Kind == "dir" || seen.Kind == "file" && seen.Size == 0)
}

// MakeMasks makes the empty file and directory that Fixed and Mask show in place
// of others, with the mark.
func MakeMasks(file, dir string, mark int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0)
	if err == nil {
		err = errors.Join(f.Close(), os.Mkdir(dir, 0))
	}
	for _, name := range []string{file, dir} {
		if err == nil {
			err = os.Chtimes(name, time.Unix(mark, 0), time.Unix(mark, 0))
		}
	}
	return err
}

// Close releases what Look opened; a nil one has nothing.
func (f *Fixed) Close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.finder.close()
	}
}
