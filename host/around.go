package host

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson"
)

// existing returns the workspace around which a sandbox that is kept open is wanted,
// where ref means one that is there, exactly: its branch or its name, its id, the run
// that made it, or a task whose work it is. That of a task which has none yet is made
// as for its first step.
func (h *Host) existing(ctx context.Context, ref string) (ws caisson.Workspace, there bool, err error) {
	if ref == "" {
		return ws, false, nil
	}
	ws, err = h.workspaces.Find(ctx, h.dir, ref)
	switch code := caisson.CodeOf(err); {
	case err == nil && slices.Contains([]string{string(ws.ID), string(ws.Run), ws.Name}, ref):
		return ws, true, nil
	case err == nil && ws.Branch == ref:
		// One that is damaged may have left the branch to be made anew.
		return ws, h.workspaces.Check(ctx, ws) == nil, nil
	case err != nil && code != caisson.CodeNotFound && code != caisson.CodeAmbiguous && code != caisson.CodeNoRepository:
		return ws, false, err
	}
	t, err := h.Ledger.Task(ctx, caisson.TaskID(ref))
	if caisson.CodeOf(err) == caisson.CodeNotFound {
		return caisson.Workspace{}, false, nil // it is a new branch
	}
	if err != nil {
		return caisson.Workspace{}, false, err
	}
	if t.State != caisson.TaskActive && t.State != caisson.TaskBlocked {
		return caisson.Workspace{}, false, caisson.Errorf(caisson.CodeStateInvalid, "task %s is %s", t.ID, t.State).
			WithHint("Name the branch of its work, %s, or take the task up again: `caisson task restore %s`.", t.Branch, t.ID)
	}
	ws, err = h.takeWorkspace(ctx, t)
	return ws, err == nil, err
}

// newAround records a sandbox that is kept open around a workspace that is there, and
// in which nobody works. Nothing of the workspace is changed.
func (h *Host) newAround(ctx context.Context, want RunRequest, ws caisson.Workspace) (r caisson.Run, err error) {
	if want.Base != "" || want.Mode != "" {
		return r, caisson.Errorf(caisson.CodeUsage, "workspace %s on branch %s is there: a base and --workspace-mode are of a new one", ws.Name, ws.Branch).
			WithHint("Leave them out, or name a branch that is not there.")
	}
	if err := h.workspaces.Check(ctx, ws); err != nil {
		return r, err
	}
	id := caisson.NewRunID()
	use, err := h.occupyNew(ctx, ws, id)
	if err != nil {
		return r, err
	}
	defer func() { _ = use() }() // the kernel lets go of it at the latest with this process
	repo, err := h.settingsOf(ctx, ws)
	if err != nil {
		return r, err
	}
	c, err := h.configWith(repo)
	if err != nil {
		return r, err
	}
	spec, isolation, err := h.spec(ctx, want, c)
	if err != nil {
		return r, err
	}
	spec.Workspace, spec.RepoPolicy, spec.Root = ws.ID, repo.digest(), id
	if err := h.checkSpec(ctx, spec, c, repo); err != nil {
		return r, err
	}
	if err := h.admit(c, spec.Limits, h.Paths.State); err != nil {
		return r, err
	}
	if err := h.prepareEngine(ctx, spec.Engine, isolation); err != nil {
		return r, err
	}
	return h.Ledger.CreateRun(ctx, id, spec)
}

// occupyNew keeps others from working in a workspace, and from having another sandbox
// kept open around it, until its own is on record. One that has one already is
// refused, with the way into that.
func (h *Host) occupyNew(ctx context.Context, ws caisson.Workspace, id caisson.RunID) (release func() error, err error) {
	has := func() error {
		runs, err := h.servedOpen(ctx)
		if err != nil {
			return err
		}
		if _, kept := servedAround(runs, ws.ID); !kept {
			return nil
		}
		e := caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is that of workspace %s", ws.Branch, ws.Name).With("workspace", ws.ID)
		return h.worksOn(ctx, RunRequest{Served: true}, e, ws.ID)
	}
	if err := has(); err != nil { // which has it occupied where it is open
		return nil, err
	}
	use, err := h.occupy(ctx, ws, id)
	if err != nil {
		return nil, err
	}
	if err := has(); err != nil {
		_ = use.Close() // as above
		return nil, err
	}
	return use.Close, nil
}
