package workspace

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// fileMarks are the marks of a workspace's own files, and what they take on
// disk. What cannot be marked has a mark of its own, and a reason.
type fileMarks struct {
	tree, shadow caisson.Digest
	size         int64
	err          error
}

// take marks a directory.
func (m *fileMarks) take(ctx context.Context, dir string, skip func(string) bool) caisson.Digest {
	mark, n, err := markTree(ctx, dir, skip)
	m.size += n
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "none"
	case err != nil:
		m.err = errors.Join(m.err, err)
		return "unread"
	}
	return mark
}

// markFiles marks the tree, the shadow and the trees of submodules.
func (w *Workspaces) markFiles(ctx context.Context, ws caisson.Workspace, at spot) (m fileMarks) {
	if at.shadow(ws) != filepath.Join(at.private, "git") {
		m.tree = m.take(ctx, at.tree, func(rel string) bool { return rel == ".git/objects" })
		m.shadow = "none"
	} else {
		m.tree = m.take(ctx, at.tree, nil)
		m.shadow = m.take(ctx, at.shadow(ws), func(rel string) bool { return rel == "objects" })
	}
	m.shadow += " " + m.take(ctx, modulesAt(at), nil)
	return m
}

// beginMarkFiles is markFiles beside other work. What it returns must be read.
func (w *Workspaces) beginMarkFiles(ctx context.Context, ws caisson.Workspace, at spot) <-chan fileMarks {
	marks := make(chan fileMarks, 1)
	go func() { marks <- w.markFiles(ctx, ws, at) }() // ends with the walk, which ctx ends
	return marks
}

// modulesAt is where the trees of submodules are.
func modulesAt(at spot) string { return filepath.Join(at.private, "modules") }

// markOutside marks the worktree's record in the repository, and the branch.
func (w *Workspaces) markOutside(ctx context.Context, ws caisson.Workspace) (m fileMarks, err error) {
	m.tree = "none"
	if admin := w.ownAdmin(ws); admin != "" {
		m.tree = m.take(ctx, admin, nil)
	}
	if !is(ws.Binding.CommonDir, ws.Binding.Device, ws.Binding.Inode) {
		return m, m.err
	}
	tip := refAsData(ws.Binding.CommonDir, "refs/heads/"+ws.Branch)
	if tip != "" && !isObjectID(tip) { // another reference stands for it
		repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
		if err == nil {
			tip, err = w.branchTip(ctx, repo, ws.Branch)
		}
		m.err = errors.Join(m.err, err)
	}
	m.tree += caisson.Digest(" " + tip)
	return m, m.err
}

// mark takes the marks of a workspace where it is now. What cannot be marked
// has a mark of its own, and the first reason is returned.
func (w *Workspaces) mark(ctx context.Context, i Inspection, at spot) (Marks, int64, error) {
	files := w.markFiles(ctx, i.Workspace, at)
	outside, err := w.markOutside(ctx, i.Workspace)
	marks, size, otherErr := w.joinMarks(ctx, i, at, files, outside)
	return marks, size, errors.Join(otherErr, err)
}

// joinMarks adds to the marks of files those of what would be lost, and of who
// has what open.
func (w *Workspaces) joinMarks(ctx context.Context, i Inspection, at spot, files, outside fileMarks) (Marks, int64, error) {
	ws := i.Workspace
	m := Marks{Tree: files.tree, Shadow: files.shadow, Outside: outside.tree}
	reasons := []error{files.err}
	var err error
	if m.Contents, err = markContents(at.tree, i.Changed); err != nil {
		reasons, m.Contents = append(reasons, err), "unread"
	}
	var unseen []string
	m.Open, unseen, err = holders(ctx, ws.Created, at.tree, at.shadow(ws), filepath.Join(at.private, "home"), modulesAt(at))
	if err != nil {
		reasons, m.Open = append(reasons, err), []string{"unread"}
	}
	for _, process := range unseen {
		m.Open = append(m.Open, unseenMark+process)
	}
	mounted, err := mountedIn(at.tree, at.private)
	if err != nil {
		reasons, m.Open = append(reasons, err), append(m.Open, "unread")
	}
	for _, path := range mounted {
		m.Open = append(m.Open, mountedMark+path)
	}
	if m.Open == nil {
		m.Open = []string{}
	}
	return m, files.size + outside.size, errors.Join(reasons...)
}

const (
	unseenMark  = "?" // begins the mark of a process that cannot be looked at
	mountedMark = "/" // begins that of a path at which something is mounted
)

// since says for a person what is not as it was before.
func (m Marks) since(before Marks) string {
	var what []string
	for _, part := range []struct {
		name    string
		differs bool
	}{
		{"files in it", m.Tree != before.Tree || m.Contents != before.Contents},
		{"its git directory", m.Shadow != before.Shadow},
		{"its branch, or its record in the repository", m.Outside != before.Outside},
	} {
		if part.differs {
			what = append(what, part.name)
		}
	}
	for _, mark := range m.Open {
		if slices.Contains(before.Open, mark) {
			continue
		}
		if path, mounted := strings.CutPrefix(mark, mountedMark); mounted {
			mark = "something is mounted at " + path
		} else if process, unseen := strings.CutPrefix(mark, unseenMark); unseen {
			mark = process + " has begun, and cannot be looked at"
		}
		what = append(what, mark)
	}
	for _, mark := range before.Open {
		if !slices.Contains(m.Open, mark) {
			what = append(what, "not any more: "+strings.TrimPrefix(mark, unseenMark))
		}
	}
	if len(what) == 0 {
		return "what has it open" // as often, or in another order
	}
	return strings.Join(what, "; ")
}
