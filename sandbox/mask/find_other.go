//go:build !linux

package mask

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// finder finds what matches in a tree; all of it each time.
type finder struct {
	top      string
	patterns patterns
}

func newFinder(top string, patterns []string) (*finder, error) {
	compiled, err := compile(patterns)
	return &finder{top, compiled}, err
}

func (*finder) close() {}

// find returns what matches, and what links that match lead to.
func (f *finder) find(ctx context.Context) ([]string, error) {
	root, err := os.OpenRoot(f.top)
	if err != nil {
		return nil, errLook(f.top, err)
	}
	defer root.Close()
	var found []string
	links, seen := map[string]bool{}, 0
	err = fs.WalkDir(root.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if seen++; seen > maxEntries {
			return errTooMany("has many files to look through", maxEntries)
		}
		switch {
		case ctx.Err() != nil:
			return errLook(at, context.Cause(ctx))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission) && d != nil:
			return nil // gone meanwhile, or one that nobody of the box can enter either
		case err != nil:
			return errLook(at, err)
		case strings.Count(at, "/") > maxDepth:
			return errTooMany("has directories to look through that are deep", maxDepth)
		case path.Base(at) == ".git":
			return skip(d)
		case at == "." || !f.patterns.match(at):
			return nil
		}
		if found = append(found, at); d.Type()&fs.ModeSymlink != 0 {
			links[at] = true
		}
		return skip(d)
	})
	if err != nil {
		return nil, err
	}
	if found = append(found, behind(f.top, links)...); len(found) > maxFound {
		return nil, errFound(len(found))
	}
	return found, nil
}

// skip passes over what is in a directory.
func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}
