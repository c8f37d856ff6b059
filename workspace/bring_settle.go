package workspace

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// settle brings a checkout whose files are each as from or as to has them to
// what to has. Files that are neither were changed by a person, and are not
// written; where others would have to be, all are left as they are.
func (w *Workspaces) settle(ctx context.Context, repo *repository, b bringing, held *heldIndex, from, to string) error {
	s := &unsettled{w: w, repo: repo, held: held}
	if err := s.look(ctx, from, to); err != nil {
		return err
	}
	root, err := os.OpenRoot(b.Tree)
	if err != nil {
		return failed("look at "+b.Tree, err)
	}
	defer root.Close()
	behind, strange := s.sort(root)
	switch {
	case len(behind) == 0 && s.staged != s.from:
		return nil // all is there, or the person has gone on
	case len(behind) > 0 && len(strange) > 0:
		return b.unfinished("files were changed since: " + strings.Join(strange[:min(10, len(strange))], ", "))
	case len(behind) > 0 && s.staged != s.from && s.staged != s.to:
		return b.unfinished("something else is staged since")
	}
	if found := inTheWay(root, behind); len(found) > 0 {
		return b.unfinished("files that git does not track are in the way, which are to be moved away first: " + strings.Join(found[:min(10, len(found))], ", "))
	}
	if err := s.write(ctx, root, behind); err != nil {
		return failed("bring "+b.Tree+" along", err)
	}
	return held.install()
}

// unsettled is a checkout between two commits, as it was found.
type unsettled struct {
	w    *Workspaces
	repo *repository
	held *heldIndex

	staged         string          // tree of the index; "" where a merge is under way
	from, to       string          // trees
	notFrom, notTo map[string]bool // files that differ from them
	changed        []difference    // between them
}

func (s *unsettled) git(ctx context.Context, stdin string, args ...string) (string, error) {
	inv := s.held.on(s.repo, args...)
	inv.stdin = strings.NewReader(stdin)
	out, err := s.w.git.run(ctx, inv)
	return string(out), err
}

// look finds out what is there. The index is of the tree of to then.
func (s *unsettled) look(ctx context.Context, from, to string) (err error) {
	staged, _ := s.git(ctx, "", "write-tree")
	s.staged = strings.TrimSpace(staged)
	for _, side := range []struct {
		commit string
		tree   *string
		differ *map[string]bool
	}{{from, &s.from, &s.notFrom}, {to, &s.to, &s.notTo}} {
		if *side.tree, err = s.w.git.line(ctx, s.repo.in("rev-parse", "--verify", "--end-of-options", side.commit+"^{tree}")); err != nil {
			return failed("look at the commits", err)
		}
		if *side.differ, err = s.differ(ctx, *side.tree); err != nil {
			return failed("look at "+s.held.b.Tree, err)
		}
	}
	s.changed, err = s.w.differences(ctx, s.repo, from, to)
	return err
}

// differ returns the files that differ from a tree, of which the index is then.
func (s *unsettled) differ(ctx context.Context, tree string) (map[string]bool, error) {
	if _, err := s.git(ctx, "", "read-tree", tree); err != nil {
		return nil, err
	}
	if _, err := s.git(ctx, "", "update-index", "-q", "--refresh"); err != nil && statusOf(err) != 1 {
		return nil, err
	}
	out, err := s.git(ctx, "", "diff-files", "-z", "--name-only", "--ignore-submodules=all")
	set := map[string]bool{}
	for _, path := range splitZ([]byte(out)) {
		set[path] = true
	}
	return set, err
}

// sort tells which files are still as from has them, and which are as neither.
func (s *unsettled) sort(root *os.Root) (behind []difference, strange []string) {
	for _, d := range s.changed {
		switch {
		case d.mode == gitlink || d.oldMode == gitlink:
		case isAs(root, d.path, d.mode, s.notTo):
		case isAs(root, d.path, d.oldMode, s.notFrom):
			behind = append(behind, d)
		default:
			strange = append(strange, printable(d.path))
		}
	}
	return behind, strange
}

// write brings files along.
func (s *unsettled) write(ctx context.Context, root *os.Root, behind []difference) error {
	var write strings.Builder
	for _, d := range behind {
		if d.mode == noMode {
			removeUp(root, d.path)
		} else {
			write.WriteString(d.path + "\x00")
		}
	}
	_, err := s.git(ctx, write.String(), "checkout-index", "-f", "-u", "-q", "-z", "--stdin")
	return err
}

// isAs tells whether a file is as a tree has it: not there, or not among those
// that differ from it.
func isAs(root *os.Root, path, mode string, differ map[string]bool) bool {
	if mode != noMode {
		return !differ[path]
	}
	info, err := root.Lstat(path)
	return err != nil || info.IsDir()
}

// removeUp removes a file and the directories that are empty then.
func removeUp(root *os.Root, path string) {
	for path != "." && root.Remove(path) == nil {
		path = filepath.Dir(path)
	}
}
