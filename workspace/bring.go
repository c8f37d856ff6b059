package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// A branch and the checkout of it cannot be moved in one step. What is to be
// done is noted before anything is, under a lock that lives as long as who does
// it; a note without a holder is of a merge that was killed, which the next
// command brings to its end, to whichever side the branch is.

// bringing is a branch being moved together with the checkout of it.
type bringing struct {
	ID     string `json:"id"`
	Common string `json:"common"`
	GitDir string `json:"git_dir"` // of the checkout
	Tree   string `json:"tree"`
	Branch string `json:"branch"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// lookAgain bounds the look for what a git did that was killed.
const lookAgain = 30 * time.Second

func (w *Workspaces) bringings() string { return filepath.Join(w.opts.StateDir, "merging") }

// pass is a point at which a test may end the process.
func pass(point string) { _ = fault.Point(point) }

// advance moves a branch and, where at is not nil, the clean checkout of it. On
// an error both are as they were, or noted to be brought there.
func (w *Workspaces) advance(ctx context.Context, repo *repository, at *checkout, branch, old, commit, message string) error {
	if at == nil {
		return w.moveRef(ctx, repo, branch, old, commit, message)
	}
	b := bringing{string(caisson.NewWorkspaceID()), repo.common, at.gitDir, at.tree, branch, old, commit}
	raw, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.bringings(), 0o700); err != nil {
		return failed("note the merge", err)
	}
	note, held, err := lockfile.Try(filepath.Join(w.bringings(), b.ID), raw)
	if err != nil || held {
		return failed("note the merge", err)
	}
	settled, err := w.bring(ctx, repo, b, message)
	if !settled {
		return errors.Join(err, note.Close())
	}
	return errors.Join(err, forget(note))
}

func (w *Workspaces) moveRef(ctx context.Context, repo *repository, branch, old, commit, message string) error {
	if err := w.updateRefs(ctx, repo, message, refUpdate{"refs/heads/" + branch, commit, old}); err != nil {
		return failed("move branch "+branch+", which may have been moved meanwhile", err)
	}
	return nil
}

// bring does what is noted. settled: branch and checkout are both where they
// are to be, or both where they were.
func (w *Workspaces) bring(ctx context.Context, repo *repository, b bringing, message string) (settled bool, err error) {
	held, err := takeIndex(ctx, b)
	if err != nil {
		return true, err
	}
	defer held.release()
	move := func(extra ...string) error {
		inv := held.on(repo, append(append([]string{"read-tree", "-m", "-u"}, extra...), b.Old, b.New)...)
		_, err := w.git.run(ctx, inv)
		return err
	}
	if err := w.nothingInTheWay(ctx, repo, b); err != nil {
		return true, err
	}
	if err := move("-n"); err != nil {
		return true, caisson.Errorf(caisson.CodeWorkspaceDirty, "%s cannot be brought along: %w", b.Tree, err).WithHint("Move the files that are in the way, then merge again.")
	}
	if err := w.roomFor(ctx, repo, b); err != nil {
		return true, err
	}
	pass("merge.noted")
	if err := w.moveRef(ctx, repo, b.Branch, b.Old, b.New, message); err != nil {
		// A git that was killed may have moved it before.
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookAgain)
		defer cancel()
		switch tip, lookErr := w.branchTip(look, repo, b.Branch); {
		case lookErr != nil:
			return false, errors.Join(err, lookErr)
		case tip != b.New:
			return true, err
		}
		ctx = context.WithoutCancel(ctx) // the checkout follows, whoever has left
	}
	pass("merge.moved")
	if err = move(); err == nil {
		pass("merge.written")
		err = held.install()
		pass("merge.installed")
	}
	if err == nil {
		return true, nil
	}
	ctx = context.WithoutCancel(ctx)
	back := w.moveRef(ctx, repo, b.Branch, b.New, b.Old, message+": taken back")
	if back == nil {
		if back = held.renew(); back == nil {
			back = w.settle(ctx, repo, b, held, b.New, b.Old)
		}
	}
	return back == nil, failed("bring "+b.Tree+" along", errors.Join(err, back))
}

// finish brings a merge that was killed to its end.
func (w *Workspaces) finish(ctx context.Context, path string) error {
	raw, err := lockfile.Note(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // another has done it
	}
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && len(raw) == 0 && time.Since(info.ModTime()) < young {
		return nil // it is being written
	}
	note, taken, err := lockfile.TryExisting(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // another has done it
	}
	if err != nil || taken {
		return err
	}
	var b bringing
	if json.Unmarshal(raw, &b) != nil || b.ID != filepath.Base(path) {
		return forget(note) // nothing was done before it was written
	}
	if err := w.finishNoted(ctx, b); err != nil {
		return errors.Join(err, note.Close())
	}
	return forget(note)
}

func (w *Workspaces) finishNoted(ctx context.Context, b bringing) error {
	if _, _, err := directoryID(b.GitDir); err != nil {
		return nil //nolint:nilerr // the checkout is gone
	}
	held, err := retakeIndex(ctx, b)
	if err != nil {
		return err
	}
	defer held.release()
	repo, err := w.repository(ctx, b.Common, false)
	if err != nil {
		return err
	}
	at := repo.checkedOut(b.Branch)
	if at == nil || at.gitDir != b.GitDir {
		return nil // something else is checked out by now
	}
	if tree, err := filepath.EvalSymlinks(at.tree); err != nil || tree != b.Tree || w.treeOf(tree) != "" {
		return nil //nolint:nilerr // it is elsewhere by now
	}
	tip, err := w.branchTip(ctx, repo, b.Branch)
	switch {
	case err != nil:
		return err
	case tip == b.New:
		return w.settle(ctx, repo, b, held, b.Old, b.New)
	case tip == b.Old:
		return w.settle(ctx, repo, b, held, b.New, b.Old)
	}
	return nil // the branch went on
}

// finishAll brings what was killed in a repository to its end; the error tells
// of what cannot be.
func (w *Workspaces) finishAll(ctx context.Context, common string) error {
	var errs []error
	for _, r := range w.bringRemains() {
		if b, err := readBringing(r.Name); !r.Live && err == nil && b.Common == common {
			errs = append(errs, r.remove(ctx))
		}
	}
	return errors.Join(errs...)
}

func readBringing(path string) (b bringing, err error) {
	raw, err := lockfile.Note(path)
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	return b, err
}

// bringRemains lists merges that are under way, or were killed.
func (w *Workspaces) bringRemains() []remain {
	entries, err := os.ReadDir(w.bringings())
	if err != nil {
		return nil // none was begun
	}
	var found []remain
	for _, entry := range entries {
		path := filepath.Join(w.bringings(), entry.Name())
		r, there := noteRemain(path, noteWords{
			young: "the process that merges holds it", held: "the process that merges holds it",
			left: "the process that merged was ended before the checkout was brought along",
		})
		if there {
			r.remove = func(ctx context.Context) error { return w.finish(ctx, path) }
			found = append(found, r)
		}
	}
	return found
}

// Unfinished tells of merges that were killed and could not be brought to their
// end, what a person can do.
func (w *Workspaces) Unfinished() []string {
	var told []string
	for _, r := range w.bringRemains() {
		if b, err := readBringing(r.Name); !r.Live && err == nil {
			e := b.unfinished("it could not be brought along")
			told = append(told, e.Error()+". "+e.HintText())
		}
	}
	return told
}

// unfinished says how a person brings the checkout along.
func (b bringing) unfinished(why string) *caisson.Error {
	return caisson.Errorf(caisson.CodeWorkspaceDirty, "a merge into %s was killed between the branch and its checkout %s, and %s", b.Branch, b.Tree, why).
		WithHint("The branch is complete. Look with `git -C %s status`; `git -C %s checkout HEAD -- PATH` brings a file along, `git -C %s reset --hard` all of them.", quoted(b.Tree), quoted(b.Tree), quoted(b.Tree))
}
