package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/workspace"
)

// BoxRemoveRequest says which sandboxes are to be removed: those named, or all
// that are kept open and bound to no task that goes on.
type BoxRemoveRequest struct {
	Refs    []string
	Unbound bool
	// Purge moves the workspaces to the trash too, and refuses where something
	// would be lost with one.
	Purge bool
}

// BoxRemoval is a sandbox that is to be removed, and what speaks against it.
type BoxRemoval struct {
	Sandbox  caisson.SandboxID    `json:"sandbox,omitempty"`
	Run      caisson.RunID        `json:"run"`
	Branch   string               `json:"branch,omitempty"`
	State    caisson.SandboxState `json:"state,omitempty"`
	Task     caisson.TaskID       `json:"task,omitempty"` // that it is bound to
	Sessions []caisson.RunID      `json:"sessions"`       // that are ended with it
	Purge    *Removal             `json:"purge,omitempty"`
	Hold     *Hold                `json:"hold,omitempty"` // that is over, waits for a person, and is given up with it
	// Why it is kept; empty: it can go.
	Why  string       `json:"why,omitempty"`
	Code caisson.Code `json:"code,omitempty"`
	Hint string       `json:"hint,omitempty"` // what to do about that
}

// Removed is a sandbox that was removed.
type Removed struct {
	Sandbox caisson.SandboxID  `json:"sandbox,omitempty"`
	Run     caisson.RunID      `json:"run"`
	Branch  string             `json:"branch,omitempty"`
	Trashed *workspace.Trashed `json:"trashed,omitempty"`
	// Kept says why the workspace was not moved to the trash though that was asked for.
	Kept string `json:"kept,omitempty"`
}

// InspectBoxRemovals looks at the sandboxes that are to be removed. Nothing is
// changed but that, with Purge, commits are imported.
func (h *Host) InspectBoxRemovals(ctx context.Context, want BoxRemoveRequest) ([]BoxRemoval, error) {
	tasks, err := h.goingOn(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := h.removable(ctx, want)
	if err != nil {
		return nil, err
	}
	list := []BoxRemoval{}
	for _, r := range runs {
		one, err := h.inspectBox(ctx, r, tasks, want)
		if err != nil {
			return nil, err
		}
		if want.Unbound && one.Task != "" {
			continue
		}
		list = append(list, one)
	}
	return list, nil
}

// removable returns the runs whose sandboxes are meant.
func (h *Host) removable(ctx context.Context, want BoxRemoveRequest) ([]caisson.Run, error) {
	if want.Unbound {
		return h.servedOpen(ctx)
	}
	var runs []caisson.Run
	for _, ref := range want.Refs {
		r, err := h.FindServed(ctx, ref)
		if caisson.CodeOf(err) == caisson.CodeNotFound {
			if v, findErr := h.FindBox(ctx, ref); findErr == nil && v.State != caisson.SandboxRemoved {
				err = caisson.Errorf(caisson.CodeStateInvalid, "sandbox %s goes with its run %s", v.ID, v.Run).WithHint("End that: `caisson runs cancel %s`.", v.Run)
			}
		}
		if err == nil {
			err = h.removedAlready(ctx, r)
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(runs, func(o caisson.Run) bool { return o.ID == r.ID }) {
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// removedAlready says that a sandbox is gone for good.
func (h *Host) removedAlready(ctx context.Context, r caisson.Run) error {
	if !isServed(r) || !r.State.Terminal() {
		return nil
	}
	err := caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is gone: its run is over (%s)", r.ID, r.State).
		WithHint("`caisson sandbox create` makes another.")
	if r.Spec.Workspace == "" {
		return err
	}
	switch ws, wsErr := h.Ledger.Workspace(ctx, r.Spec.Workspace); {
	case wsErr != nil:
		return wsErr
	case ws.Removed:
		return err.WithHint("`caisson sandbox create` makes another. Its workspace is gone too; where it is still in the trash, `caisson workspace trash restore %s` brings it back.", ws.ID)
	default:
		return err.WithHint("`caisson sandbox create` makes another; `caisson sandbox exec %s COMMAND` works in its workspace without one.", r.ID)
	}
}

func (h *Host) inspectBox(ctx context.Context, r caisson.Run, tasks []caisson.Task, want BoxRemoveRequest) (BoxRemoval, error) {
	one := BoxRemoval{Run: r.ID, Sessions: []caisson.RunID{}}
	records, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: r.ID, States: unremoved()})
	if err != nil {
		return one, err
	}
	if n := len(records); n > 0 {
		one.Sandbox, one.State = records[n-1].ID, records[n-1].State
	}
	within, err := h.Ledger.Runs(ctx, caisson.RunFilter{Parent: r.ID, States: unended()})
	if err != nil {
		return one, err
	}
	for _, s := range within {
		one.Sessions = append(one.Sessions, s.ID)
	}
	var ws caisson.Workspace
	if r.Spec.Workspace != "" {
		if ws, err = h.Ledger.Workspace(ctx, r.Spec.Workspace); err != nil {
			return one, err
		}
		one.Branch = ws.Branch
	}
	for _, t := range tasks {
		if bound(t, r, ws) {
			one.Task = t.ID
		}
	}
	hold, held, err := h.HoldOn(ws.ID)
	if err == nil && held && h.waits(ctx, hold) {
		one.Hold = &hold
	} else if err == nil {
		err = h.unheld(ctx, ws.ID)
	}
	if err != nil {
		one.Why, one.Code, one.Hint = caisson.AsError(err).Error(), caisson.CodeOf(err), caisson.AsError(err).HintText()
		return one, nil
	}
	if want.Purge && ws.ID != "" && !ws.Removed {
		return one, h.inspectPurge(ctx, &one, r, ws)
	}
	return one, nil
}

// goingOn returns the tasks that go on.
func (h *Host) goingOn(ctx context.Context) ([]caisson.Task, error) {
	return h.Ledger.Tasks(ctx, caisson.TaskFilter{States: []caisson.TaskState{caisson.TaskActive, caisson.TaskBlocked}})
}

// bound tells whether a sandbox, or the workspace that a run made, is of a task: by its workspace, its branch, or a
// step of it.
func bound(t caisson.Task, r caisson.Run, ws caisson.Workspace) bool {
	return ws.ID != "" && (t.Workspace == ws.ID || t.Repository == ws.Binding.CommonDir && task.NamesWork(t, ws.Branch)) ||
		slices.ContainsFunc(t.Steps, func(s caisson.TaskStep) bool { return s.Run == r.ID || s.Run != "" && s.Run == r.Spec.Parent })
}

// inspectPurge looks whether a workspace could go with its sandbox. That the
// sandbox itself works in it is no reason against it; what works in that is.
func (h *Host) inspectPurge(ctx context.Context, one *BoxRemoval, r caisson.Run, ws caisson.Workspace) error {
	opts, err := h.users(ctx, ws)
	if err != nil {
		return err
	}
	if opts.Driver == string(r.ID) {
		opts.Driver = ""
	}
	opts.Unknown = slices.DeleteFunc(opts.Unknown, func(text string) bool { return text == unsureBox(one.Sandbox, r.ID) })
	opts.Runs = slices.DeleteFunc(opts.Runs, func(run caisson.RunID) bool { return run == r.ID || slices.Contains(one.Sessions, run) })
	found, err := h.workspaces.Inspect(ctx, ws, opts)
	if err != nil {
		return err
	}
	if found.Losses, err = h.notInside(ctx, r, found.Losses); err != nil {
		return err
	}
	decided := Removal{ws.ID, ws.Name, ws.Branch, ws.Path, workspace.Decide(found, workspace.Ask{Batch: true}), found}
	one.Purge = &decided
	if err := decided.Err(); err != nil {
		one.Why, one.Code, one.Hint = decided.Why, caisson.CodeOf(err), decided.Hint
		if one.Code == caisson.CodeWorkspaceDirty {
			one.Hint = workspace.Ending(found.Losses) + fmt.Sprintf("Without --purge the workspace stays, and `caisson workspace rm %s` asks about it.", ws.Name)
		}
	}
	return nil
}

// notInside leaves out what processes of the sandbox itself have open, or could,
// where they cannot be looked at as its guest cannot by an ordinary user: they end
// with it, and then the workspace is looked at again. They are below the process
// that keeps the sandbox open.
func (h *Host) notInside(ctx context.Context, r caisson.Run, losses []workspace.Loss) ([]workspace.Loss, error) {
	if r.Lease.Instance == "" {
		return losses, nil
	}
	holder, err := h.Ledger.Instance(ctx, r.Lease.Instance)
	if err != nil || process.Alive(holder.Process) != caisson.Alive {
		return losses, err
	}
	all, err := proctree.All()
	if err != nil {
		return losses, err
	}
	below := proctree.Below(all, holder.Process.PID, nil)
	return slices.DeleteFunc(losses, func(l workspace.Loss) bool {
		var pid int
		n, _ := fmt.Sscanf(string(l.What), "process %d", &pid) // of another kind it is none
		return (l.Kind == workspace.LossOpen || l.Kind == workspace.LossUnknown) && n == 1 && slices.ContainsFunc(below, func(p proctree.Process) bool { return p.PID == pid })
	}), nil
}

// unsureBox is how users says that a sandbox may be there.
func unsureBox(id caisson.SandboxID, run caisson.RunID) string {
	return fmt.Sprintf("whether sandbox %s of run %s is there", id, run)
}

// RemoveBoxes removes sandboxes: their runs end, with all that works in them,
// their boxes and channels go, and with purge their workspaces go to the trash.
// Where one of them is kept, nothing is done with any.
func (h *Host) RemoveBoxes(ctx context.Context, list []BoxRemoval, purge bool) ([]Removed, error) {
	removed := []Removed{}
	for _, one := range list {
		if one.Why != "" {
			return removed, caisson.Errorf(one.Code, "nothing was removed: the sandbox of run %s is kept: %s", one.Run, one.Why).WithHint("%s", one.Hint).With("kept", one)
		}
	}
	for _, one := range list {
		j := journal{Run: one.Run, Op: journalRemove, Purge: purge}
		if err := h.noteJournal(ctx, j); err != nil {
			return removed, err
		}
		pass("host.remove.noted")
		done, err := h.removeSteps(ctx, j)
		if err != nil {
			return removed, err
		}
		done.Sandbox = one.Sandbox
		removed = append(removed, done)
	}
	return removed, nil
}

// removeSteps takes each step of a removal that is not done yet. An engine that
// is another installation than the one on record is not believed that the box is
// gone: its sweep refuses, and the journal stays.
func (h *Host) removeSteps(ctx context.Context, j journal) (Removed, error) {
	done := Removed{Run: j.Run}
	r, err := h.Ledger.Run(ctx, j.Run)
	if err != nil {
		return done, err
	}
	if !r.State.Terminal() {
		if _, err := h.Ledger.AskCancel(ctx, j.Run, caisson.CauseUser, Person()); err != nil && caisson.CodeOf(err) != caisson.CodeStateInvalid {
			return done, err
		}
		pass("host.remove.asked")
		if r, err = h.Cancel(ctx, j.Run); err != nil {
			return done, err
		}
	}
	pass("host.remove.ended")
	records, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: j.Run})
	if err != nil {
		return done, err
	}
	for _, record := range records {
		if record.State != caisson.SandboxRemoved {
			if err := h.sweepOne(ctx, record); err != nil {
				return done, err
			}
		}
		h.dropChannel(ctx, record.ID)
	}
	pass("host.remove.swept")
	if err := h.giveUpHold(ctx, r.Spec.Workspace); err != nil {
		return done, err
	}
	if err := h.purge(ctx, j, r, &done); err != nil {
		return done, err
	}
	pass("host.remove.purged")
	return done, h.journals().drop(string(j.Run))
}

// giveUpHold ends a hold that waits for a person to put right what nobody goes on
// in: the run of its sandbox has ended.
func (h *Host) giveUpHold(ctx context.Context, ws caisson.WorkspaceID) error {
	hold, held, err := h.HoldOn(ws)
	if err != nil || !held || !h.waits(ctx, hold) {
		return err
	}
	return h.breakHold(ctx, hold)
}

// purge moves the workspace to the trash, where nothing is lost with it: it is
// looked at again, now that nobody works in it.
func (h *Host) purge(ctx context.Context, j journal, r caisson.Run, done *Removed) error {
	if r.Spec.Workspace == "" {
		return nil
	}
	ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace)
	if err != nil {
		return err
	}
	if done.Branch = ws.Branch; !j.Purge || ws.Removed {
		return nil
	}
	opts, err := h.users(ctx, ws)
	if err != nil {
		return err
	}
	found, err := h.workspaces.Inspect(ctx, ws, opts)
	if err != nil {
		return err
	}
	decided := Removal{ws.ID, ws.Name, ws.Branch, ws.Path, workspace.Decide(found, workspace.Ask{Batch: true}), found}
	if decided.Err() != nil {
		done.Kept = decided.Why
		return nil
	}
	trashed, err := h.removeOne(ctx, decided)
	if err == nil {
		done.Trashed = &trashed
	}
	return err
}

// Left is what nobody holds, as Prune removes it.
func (h *Host) Left(ctx context.Context) ([]Remnant, error) {
	found := h.residue(ctx)
	left := slices.DeleteFunc(found.Remnants, func(r Remnant) bool { return r.Live })
	var errs []error
	for _, place := range found.Unseen() {
		if !place.Absent {
			errs = append(errs, caisson.Errorf(caisson.CodeInternal, "%s could not be looked at: %s", place.Place, place.Unseen))
		}
	}
	return left, errors.Join(errs...)
}

// Prune removes what nobody holds, and returns what is gone now and what is not.
func (h *Host) Prune(ctx context.Context) (gone, stays []Remnant, err error) {
	before, err := h.Left(ctx)
	if err != nil {
		return nil, before, err
	}
	err = h.tidy(ctx)
	after := h.residue(ctx)
	for _, r := range before {
		still := slices.ContainsFunc(after.Remnants, func(o Remnant) bool { return o.Kind == r.Kind && o.Name == r.Name })
		if still {
			stays = append(stays, r)
		} else {
			gone = append(gone, r)
		}
	}
	return gone, stays, err
}
