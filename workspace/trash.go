package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// Trash lists what is in the trash, newest first; with common only of that
// repository. Where a note cannot be read, what can is returned with the error.
func (w *Workspaces) Trash(common string) ([]Trashed, error) {
	dirs, err := w.trashDirs()
	errs := []error{err}
	found := []Trashed{}
	for _, id := range dirs {
		t, err := w.readTrashed(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it is being made, or goes
		case err != nil:
			errs = append(errs, err)
		case t.Stage == stageKept && (common == "" || t.Workspace.Binding.CommonDir == common):
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b Trashed) int { return b.At.Compare(a.At) })
	if err := errors.Join(errs...); err != nil {
		return found, failed("read the trash", err)
	}
	return found, nil
}

// TrashOf lists what is in the trash of the repository that dir is in, or of
// all where it is in none.
func (w *Workspaces) TrashOf(ctx context.Context, dir string) ([]Trashed, error) {
	place, err := w.discover(ctx, dir)
	if caisson.CodeOf(err) == caisson.CodeNoRepository {
		return w.Trash("")
	}
	if err != nil {
		return nil, err
	}
	return w.Trash(place.common)
}

// FindTrash returns the one that ref means, of all repositories: an id, a name,
// a branch or a run; else the beginning of an id. Of several with one name, the
// one that was removed last is meant.
func (w *Workspaces) FindTrash(ref string) (Trashed, error) {
	all, unread := w.Trash("")
	var begin []Trashed
	for _, t := range all {
		ws := t.Workspace
		if string(ws.ID) == ref || ws.Name == ref || ws.Branch == ref || ws.Run != "" && string(ws.Run) == ref {
			return t, nil
		}
		if ref != "" && strings.HasPrefix(string(ws.ID), ref) {
			begin = append(begin, t)
		}
	}
	if len(begin) == 1 {
		return begin[0], nil
	}
	if len(begin) > 1 {
		return Trashed{}, caisson.Errorf(caisson.CodeAmbiguous, "%q fits %d workspaces in the trash", ref, len(begin))
	}
	if unread != nil { // it may be that one
		return Trashed{}, unread
	}
	return Trashed{}, caisson.Errorf(caisson.CodeNotFound, "there is no workspace %q in the trash", printable(ref)).WithHint("`caisson workspace trash ls --all` shows what there is.")
}

func (w *Workspaces) trashDirs() ([]caisson.WorkspaceID, error) {
	entries, err := os.ReadDir(filepath.Join(w.opts.StateDir, "trash"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []caisson.WorkspaceID
	for _, entry := range entries {
		if entry.IsDir() {
			ids = append(ids, caisson.WorkspaceID(entry.Name()))
		}
	}
	return ids, err
}

// Prune removes a workspace from the trash for good: its files, and the
// references that kept its commits.
func (w *Workspaces) Prune(ctx context.Context, id caisson.WorkspaceID) error {
	if _, err := w.trashed(id); caisson.CodeOf(err) == caisson.CodeNotFound {
		return err
	}
	release, err := w.lockTrash(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	t, err := w.trashed(id)
	if err != nil {
		return err
	}
	t.Stage = stagePruning
	if err := w.writeTrashed(t); err != nil {
		return failed("note that it is removed for good", err)
	}
	if err := w.prune(ctx, t); err != nil {
		return failed("remove workspace "+t.Workspace.Name+" for good", err)
	}
	return nil
}

// trashed returns what is in the trash of a workspace; to rely on it, hold the lock.
func (w *Workspaces) trashed(id caisson.WorkspaceID) (Trashed, error) {
	t, err := w.readTrashed(id)
	if errors.Is(err, fs.ErrNotExist) {
		return t, caisson.Errorf(caisson.CodeNotFound, "workspace %s is not in the trash", id)
	}
	if err == nil && t.Stage != stageKept {
		return t, caisson.Errorf(caisson.CodeStateInvalid, "workspace %s is on its way", t.Workspace.Name).WithHint("Try again: the next command ends what was begun.")
	}
	return t, err
}

func (w *Workspaces) prune(ctx context.Context, t Trashed) error {
	ws := t.Workspace
	for _, do := range []func() error{
		func() error { return w.DropSnapshots(ctx, ws) },
		func() error {
			return w.unpin(ctx, ws, trashRefs, insideRefs, workspaceRefs)
		},
		func() error { return removeTree(ctx, w.aside(ws, "tree")) },
		func() error { return removeTree(ctx, w.aside(ws, "private")) },
		func() error { return w.emptyTrash(ctx, ws.ID) },
		func() error { return w.dropUnnoted(ctx, ws.ID) },
	} {
		if err := errors.Join(step(), ctx.Err()); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// resumeTrash brings to an end what a killed process had begun with a workspace.
// Its lock is held.
func (w *Workspaces) resumeTrash(ctx context.Context, id caisson.WorkspaceID) error {
	t, err := w.readTrashed(id)
	if errors.Is(err, fs.ErrNotExist) {
		return w.dropUnnoted(ctx, id)
	}
	if err != nil {
		return err
	}
	r := &removal{w: w, t: t}
	switch t.Stage {
	case stageKept:
		return nil
	case stageTaking:
		return r.back(ctx)
	case stageKeeping:
		return r.keep(ctx)
	case stageRestoring:
		return w.restore(ctx, t)
	case stagePruning:
		return w.prune(ctx, t)
	default:
		return fmt.Errorf("the trash's note of %s says %q", id, t.Stage)
	}
}

// dropUnnoted removes a directory in which nothing is, or nothing yet but a note
// that was not written to its end. The lock goes with it, where the workspace is
// removed for good: who waits for it will find nothing to do.
func (w *Workspaces) dropUnnoted(ctx context.Context, id caisson.WorkspaceID) error {
	entries, err := os.ReadDir(w.trash(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if atomicfile.IsTemporary(entry.Name()) {
			if err := atomicfile.RemoveIfThere(filepath.Join(w.trash(id), entry.Name())); err != nil {
				return err
			}
		}
	}
	ws, err := w.opts.Ledger.Workspace(ctx, id)
	if err != nil && caisson.CodeOf(err) != caisson.CodeNotFound {
		return err
	}
	if err != nil || ws.Removed {
		if err := atomicfile.RemoveIfThere(w.trash(id) + ".lock"); err != nil {
			return err
		}
	}
	return errors.Join(atomicfile.RemoveIfThere(w.trash(id)), atomicfile.SyncDir(filepath.Dir(w.trash(id))))
}

// trashRemains lists what killed processes left on its way to the trash or from
// it. What is in the trash is none.
func (w *Workspaces) trashRemains() ([]remain, error) {
	ids, err := w.trashDirs()
	if err != nil {
		return nil, err
	}
	var found []remain
	for _, id := range ids {
		t, err := w.readTrashed(id)
		if err == nil && t.Stage == stageKept {
			continue
		}
		r := remain{Remnant: caisson.Remnant{Kind: "directory", Name: w.trash(id), Live: true}}
		r.remove = func(ctx context.Context) error { return w.tidyTrash(ctx, id) }
		held, heldErr := lockfile.Held(w.trash(id) + ".lock")
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			r.Why = "what it is cannot be told: " + err.Error()
		case heldErr != nil && !errors.Is(heldErr, fs.ErrNotExist):
			r.Why = "whether it is held cannot be told: " + heldErr.Error()
		case held:
			r.Why = "a process that removes or restores this workspace holds it"
		default:
			r.Live, r.Why = false, "the process that removed or restored this workspace was ended"
		}
		found = append(found, r)
	}
	return found, nil
}

func (w *Workspaces) tidyTrash(ctx context.Context, id caisson.WorkspaceID) error {
	lock, held, err := lockfile.Try(w.trash(id)+".lock", nil)
	if err != nil || held {
		return err
	}
	return errors.Join(w.resumeTrash(ctx, id), lock.Close())
}
