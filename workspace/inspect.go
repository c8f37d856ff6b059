package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

const (
	// maxListed bounds how many losses of one kind are listed one by one.
	maxListed = 500
	// maxChanged bounds how many changed files are looked at.
	maxChanged = 200_000
)

// InspectOptions say what the caller knows.
type InspectOptions struct {
	Driver  string          // run that works in it now; then nothing is looked at
	Runs    []caisson.RunID // that are not over and could go on in it
	Unknown []string        // what the caller could not find out
	Import  ImportOptions
}

// look is one inspection.
type look struct {
	w     *Workspaces
	ws    caisson.Workspace
	at    spot
	repo  *repository // nil: it is gone, or cannot be used
	found *Inspection
	count map[LossKind]int

	inside     gitState
	refs       shadowRefs
	staged     bool              // something is, inside, or it is not known
	index      string            // commit that holds what is staged inside
	there      map[string]string // references of the repository: branches, tags, remotes, and what is kept of this workspace
	types      map[string]string // of objects that the repository was asked for; "" it has not
	outer      map[string]string // references that the worktree's record has
	outside    []string          // objects that it names
	kept       []string          // objects that imports keep of what was made inside
	outerIndex string            // commit that holds what is staged outside
}

// spot is where a workspace's parts are at the moment.
type spot struct{ tree, private string }

// shadow is where the git directory inside is.
func (s spot) shadow(ws caisson.Workspace) string {
	if rest, in := strings.CutPrefix(ws.Shadow, ws.Path+"/"); in {
		return filepath.Join(s.tree, rest)
	}
	return filepath.Join(s.private, "git")
}

func (w *Workspaces) home(ws caisson.Workspace) spot { return spot{ws.Path, w.private(ws.ID)} }

func (l *look) lose(kind LossKind, what, how string) {
	if l.count[kind]++; l.count[kind] <= maxListed {
		l.found.Losses = append(l.found.Losses, Loss{kind, caisson.Bytes(what), caisson.Bytes(how)})
	}
}

// unknown keeps the workspace for want of an answer.
func (l *look) unknown(what string, err error) {
	l.lose(LossUnknown, what, caisson.AsError(err).Error())
}

// Inspect looks at all that a workspace has: the tree and the shadow from inside
// a box, after an import, and from outside its references, logs and processes.
// All files are marked before anything looks at them and after all has; marks
// that do not agree make it unstable. The marks of what is outside are from
// before it was looked at, so that no later change is permitted. What cannot be
// had is a loss of kind unknown. An error is returned only where ctx ended.
func (w *Workspaces) Inspect(ctx context.Context, ws caisson.Workspace, opts InspectOptions) (Inspection, error) {
	found := Inspection{Workspace: ws, Driver: opts.Driver, Losses: []Loss{}, Changed: []caisson.Bytes{}, Pins: []Pin{}}
	if opts.Driver != "" {
		return found, nil
	}
	l := &look{w: w, ws: ws, at: w.home(ws), found: &found, count: map[LossKind]int{}, types: map[string]string{}}
	for _, what := range opts.Unknown {
		l.lose(LossUnknown, what, "")
	}
	for _, run := range opts.Runs {
		l.lose(LossRun, "run "+string(run), "it could be taken up again; `caisson runs cancel "+string(run)+"` ends it")
	}
	there := l.identity(ctx)
	if found.Foreign {
		return found, nil
	}
	var before fileMarks
	if there {
		before = l.box(ctx, opts)
	}
	after := w.beginMarkFiles(ctx, ws, l.at)
	outside, outsideErr := w.markOutside(ctx, ws)
	l.fromOutside(ctx)
	l.commits(ctx)
	files := <-after
	if there && (before.tree != files.tree || before.shadow != files.shadow) {
		found.Unstable = true
	}
	var err error
	found.Marks, found.Size, err = w.joinMarks(ctx, found, l.at, files, outside)
	if err = errors.Join(err, outsideErr); err != nil {
		l.unknown("the files", err)
	}
	l.processes()
	l.closeList()
	return found, ctx.Err()
}

// closeList says what is not listed, and brings the rest into order.
func (l *look) closeList() {
	for kind, n := range l.count {
		if n > maxListed {
			l.found.Losses = append(l.found.Losses, Loss{kind, caisson.Bytes(fmt.Sprintf("and %d more", n-maxListed)), ""})
		}
	}
	kinds := Losses()
	slices.SortStableFunc(l.found.Losses, func(a, b Loss) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
}

// identity compares the workspace with its record. It tells whether there is a
// tree and a shadow to look at.
func (l *look) identity(ctx context.Context) bool {
	ws, b := l.ws, l.ws.Binding
	dev, ino, err := directoryID(ws.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.lose(LossDamage, "tree", "its directory is gone")
	case err != nil || dev != b.TreeDevice || ino != b.TreeInode:
		l.found.Foreign = true
		return false
	}
	there := err == nil
	if err := l.w.Check(ctx, ws); err != nil && there {
		l.lose(LossDamage, "binding", caisson.AsError(err).Error())
	}
	if dev, ino, err := directoryID(b.CommonDir); err != nil || dev != b.Device || ino != b.Inode {
		l.lose(LossDamage, "repository", "it is gone, or is another")
	} else if l.repo, err = l.w.repository(ctx, b.CommonDir, true); err != nil {
		l.unknown("the repository", err)
	}
	if _, _, err := directoryID(l.at.shadow(ws)); err != nil {
		l.lose(LossDamage, "shadow", "its git directory is gone")
		there = false
	}
	return there
}

// processes lists the processes of the marks, and what is mounted.
func (l *look) processes() {
	for _, mark := range l.found.Marks.Open {
		if path, is := strings.CutPrefix(mark, mountedMark); is {
			l.lose(LossUnknown, path, "something is mounted there, and would be moved along")
			continue
		}
		if process, unseen := strings.CutPrefix(mark, unseenMark); unseen {
			l.lose(LossUnknown, process, "it cannot be looked at")
			continue
		}
		process, how, _ := strings.Cut(mark, ": ")
		l.lose(LossOpen, process, how)
	}
}

// ownAdmin returns the worktree's record in the repository; "" where there is
// none, or where it is not this workspace's.
func (w *Workspaces) ownAdmin(ws caisson.Workspace) string {
	b := ws.Binding
	if b.AdminDir == "" || filepath.Dir(b.AdminDir) != filepath.Join(b.CommonDir, "worktrees") {
		return ""
	}
	if back, err := pointer(filepath.Join(b.AdminDir, "gitdir"), ""); err == nil && absolute(back, b.AdminDir) == filepath.Join(ws.Path, ".git") {
		return b.AdminDir
	}
	if why, err := readInside(b.AdminDir, "locked", 4096); err == nil && strings.Contains(string(why), "("+string(ws.ID)+")") {
		return b.AdminDir
	}
	return ""
}
