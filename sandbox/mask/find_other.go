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
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone meanwhile
		case errors.Is(err, fs.ErrPermission) && d != nil && at != ".":
			// Its owner inside can open it later, and then read what is in it.
			found = append(found, at)
			return skip(d)
		case err != nil:
			return errLook(at, err)
		case strings.Count(at, "/") > maxDepth:
			return errTooMany("has directories to look through that are deep", maxDepth)
		case at == "." || path.Base(at) == ".git" || !f.patterns.match(at):
			// What is called .git stays for git. What is in it is looked through as
			// all else is: a program inside can give a directory that name.
			return nil
		case len(found) > maxFound: // how much there is, is for programs inside to say
			return errFound(len(found))
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
