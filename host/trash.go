package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/workspace"
)

// RemoveRequest says which workspaces are to be removed: those named, or all of
// the repository that the person stands in, or those of them whose run has ended.
type RemoveRequest struct {
	Refs         []string
	All, Unbound bool
	// Batch: nobody is asked. It is implied by more than one workspace.
	Batch bool
}

// Removal is a workspace that is to be removed, and what may be done with it.
type Removal struct {
	ID     caisson.WorkspaceID `json:"id"`
	Name   string              `json:"name"`
	Branch string              `json:"branch"`
	Path   string              `json:"path"`
	workspace.Decision

	inspection workspace.Inspection
}

// Discard is the removal after a person was shown its losses and said that they
// may go.
func (r Removal) Discard() Removal {
	r.Decision = workspace.Decide(r.inspection, workspace.Ask{Word: r.inspection.Digest()})
	return r
}

// InspectRemovals looks at the workspaces that are to be removed, each from
// inside a box, and decides. Nothing is changed but that commits are imported.
func (h *Host) InspectRemovals(ctx context.Context, want RemoveRequest) ([]Removal, error) {
	chosen, err := h.chosen(ctx, want)
	if err != nil {
		return nil, err
	}
	ask := workspace.Ask{Batch: want.Batch || want.All || want.Unbound || len(chosen) > 1}
	removals := make([]Removal, 0, len(chosen))
	for _, ws := range chosen {
		opts, err := h.users(ctx, ws)
		if err != nil {
			return nil, err
		}
		found, err := h.workspaces.Inspect(ctx, ws, opts)
		if err != nil {
			return nil, err
		}
		removals = append(removals, Removal{ws.ID, ws.Name, ws.Branch, ws.Path, workspace.Decide(found, ask), found})
	}
	return removals, nil
}

// chosen returns the workspaces that are meant.
func (h *Host) chosen(ctx context.Context, want RemoveRequest) ([]caisson.Workspace, error) {
	if !want.All && !want.Unbound {
		var chosen []caisson.Workspace
		seen := map[caisson.WorkspaceID]bool{}
		for _, ref := range want.Refs {
			ws, err := h.workspaceOf(ctx, ref)
			if err != nil {
				return nil, err
			}
			if !seen[ws.ID] {
				seen[ws.ID] = true
				chosen = append(chosen, ws)
			}
		}
		return chosen, nil
	}
	if err := h.inRepository(ctx); err != nil {
		return nil, err
	}
	list, err := h.workspaces.List(ctx, h.dir)
	if err != nil || want.All {
		return list, err
	}
	tasks, err := h.goingOn(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []caisson.Workspace
	for _, ws := range list {
		ended, err := h.unbound(ctx, ws, tasks)
		if err != nil {
			return nil, err
		}
		if ended {
			chosen = append(chosen, ws)
		}
	}
	return chosen, nil
}

// inRepository refuses what is meant for all of a repository where the person
// stands in none: there all would be those of all.
func (h *Host) inRepository(ctx context.Context) error {
	_, err := h.workspaces.Repository(ctx, h.dir)
	if caisson.CodeOf(err) == caisson.CodeNoRepository {
		return err
	}
	return nil
}

// unbound tells whether the run that made a workspace has ended, no other goes on
// in it, and it is bound to none of these tasks.
func (h *Host) unbound(ctx context.Context, ws caisson.Workspace, tasks []caisson.Task) (bool, error) {
	if ws.Run == "" {
		return false, nil
	}
	opts, err := h.users(ctx, ws)
	if err != nil {
		return false, err
	}
	r, err := h.Ledger.Run(ctx, ws.Run)
	if err != nil {
		return false, err
	}
	free := r.State.Terminal() && opts.Driver == "" && len(opts.Runs) == 0
	return free && !slices.ContainsFunc(tasks, func(t caisson.Task) bool { return bound(t, r, ws) }), nil
}

// users finds out who works in a workspace, or could go on to.
func (h *Host) users(ctx context.Context, ws caisson.Workspace) (workspace.InspectOptions, error) {
	opts := workspace.InspectOptions{Import: ofAgent}
	r, taken, err := h.occupant(ctx, ws)
	switch {
	case err != nil:
		opts.Unknown = append(opts.Unknown, "whether a run works in it: "+caisson.AsError(err).Error())
	case taken:
		opts.Driver = string(r.ID)
	}
	records, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{States: unremoved()})
	if err != nil {
		return opts, err
	}
	for _, record := range records {
		if record.Workspace != ws.ID {
			continue
		}
		holder, err := h.Ledger.Instance(ctx, record.Instance)
		switch {
		case err == nil && process.InstanceLiveness(holder) == caisson.Alive:
			opts.Driver = string(record.Run)
		default: // dead, it was swept when this process began: what is left could not be
			opts.Unknown = append(opts.Unknown, unsureBox(record.ID, record.Run))
		}
	}
	open, err := h.open(ctx)
	for _, r := range open {
		if r.Spec.Workspace == ws.ID && opts.Driver != string(r.ID) {
			opts.Runs = append(opts.Runs, r.ID)
		}
	}
	return opts, err
}

// RemoveWorkspaces moves workspaces to the trash. Where one of them is refused,
// nothing is done with any.
func (h *Host) RemoveWorkspaces(ctx context.Context, removals []Removal) ([]workspace.Trashed, error) {
	var kept []Removal
	for _, r := range removals {
		if r.Err() != nil {
			kept = append(kept, r)
		}
	}
	if len(kept) > 0 {
		if len(removals) == 1 {
			return nil, kept[0].Err()
		}
		return nil, caisson.Errorf(kept[0].Code, "nothing was removed: %d of %d workspaces are kept, the first as %s", len(kept), len(removals), kept[0].Why).
			WithHint("%s", kept[0].Hint).With("kept", kept)
	}
	var trashed []workspace.Trashed
	for _, r := range removals {
		t, err := h.removeOne(ctx, r)
		if err != nil {
			return trashed, err
		}
		trashed = append(trashed, t)
	}
	return trashed, nil
}

// removeOne holds the workspace, so that no run begins to work in it meanwhile.
func (h *Host) removeOne(ctx context.Context, r Removal) (t workspace.Trashed, err error) {
	ws := r.inspection.Workspace
	if _, err := os.Lstat(filepath.Dir(usePath(ws))); err == nil {
		var use *lockfile.Lock
		if use, err = h.occupy(ctx, ws, ""); err != nil {
			return t, err
		}
		defer func() { err = errors.Join(err, use.Close()) }()
	}
	return h.workspaces.Remove(ctx, r.Permit, Person())
}

// Trash is a workspace in the trash.
type Trash struct {
	workspace.Trashed
	Until time.Time `json:"until"` // it is kept, unless the disk is full before
}

// ListTrash lists the trash of the repository that the person stands in, or of
// all, newest first.
func (h *Host) ListTrash(ctx context.Context, all bool) ([]Trash, error) {
	list, err := h.workspaces.Trash("")
	if !all {
		list, err = h.workspaces.TrashOf(ctx, h.dir)
	}
	trash := make([]Trash, len(list))
	for i, t := range list {
		trash[i] = Trash{t, t.At.Add(h.trashTime())}
	}
	return trash, err
}

func (h *Host) trashTime() time.Duration { return time.Duration(h.Config.TrashDays) * 24 * time.Hour }

// AllTrash is ListTrash of the repository that the person stands in, and refuses
// where there is none.
func (h *Host) AllTrash(ctx context.Context) ([]Trash, error) {
	if err := h.inRepository(ctx); err != nil {
		return nil, err
	}
	return h.ListTrash(ctx, false)
}

// FindTrash returns what ref means in the trash.
func (h *Host) FindTrash(ref string) (Trash, error) {
	t, err := h.workspaces.FindTrash(ref)
	return Trash{t, t.At.Add(h.trashTime())}, err
}

// RestoreWorkspace brings a workspace back from the trash.
func (h *Host) RestoreWorkspace(ctx context.Context, t Trash) (caisson.Workspace, error) {
	return h.workspaces.Restore(ctx, t.Workspace.ID)
}

// PruneTrash removes workspaces from the trash for good.
func (h *Host) PruneTrash(ctx context.Context, list []Trash) error {
	for _, t := range list {
		if err := h.workspaces.Prune(ctx, t.Workspace.ID); err != nil {
			return err
		}
	}
	return nil
}

// Expired are those of list whose time in the trash is over.
func Expired(list []Trash) []Trash {
	var over []Trash
	for _, t := range list {
		if !t.Until.After(time.Now()) {
			over = append(over, t)
		}
	}
	return over
}
