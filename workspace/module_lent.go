package workspace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson"
)

// Lent is what a box is to be given of a workspace beside its tree.
type Lent struct {
	Objects []string        // to read
	Trees   []caisson.Mount // of submodules, to write
}

// Lend tells what of a workspace's objects and submodules can be shown in a box
// now: what a person has removed meanwhile, or an agent has moved away, is left
// out, so that the rest can be worked with.
func Lend(ws caisson.Workspace) Lent {
	var l Lent
	for i, dir := range ws.Objects {
		if _, _, err := directoryID(dir); err == nil || i == 0 {
			l.Objects = append(l.Objects, dir)
		}
	}
	if len(ws.Submodules) == 0 {
		return l
	}
	root, err := os.OpenRoot(ws.Path)
	if err != nil {
		return l
	}
	defer root.Close()
	for _, m := range ws.Submodules {
		if _, _, err := directoryID(m.Tree); err == nil && !m.Nested && isRealDir(root, m.Path) && isEmptyDir(root, m.Path) {
			l.Trees = append(l.Trees, caisson.Mount{Source: m.Tree, Target: filepath.Join(ws.Path, m.Path)})
		}
	}
	return l
}

// isRealDir tells whether a path below root is a directory, and no part of it a link.
func isRealDir(root *os.Root, at string) bool {
	for i := range len(at) + 1 {
		if i == len(at) || at[i] == '/' {
			if info, err := root.Lstat(at[:i]); err != nil || !info.IsDir() {
				return false
			}
		}
	}
	return true
}

// isEmptyDir tells whether nothing is in a directory: what an agent has put in
// the place of a submodule that it moved away is not covered.
func isEmptyDir(root *os.Root, at string) bool {
	f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.ReadDir(1)
	return errors.Is(err, io.EOF)
}
