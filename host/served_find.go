package host

import (
	"cmp"
	"context"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

// servedOpen returns the served runs that have not ended, newest first.
func (h *Host) servedOpen(ctx context.Context) ([]caisson.Run, error) {
	runs, err := h.open(ctx)
	return slices.DeleteFunc(runs, func(r caisson.Run) bool { return !isServed(r) }), err
}

// FindServed returns the sandbox that is kept open and that ref means: its run,
// its id, or its workspace. CodeNotFound where there is none of that name.
func (h *Host) FindServed(ctx context.Context, ref string) (caisson.Run, error) {
	v, err := h.FindBox(ctx, ref)
	if err == nil && v.Session == caisson.SessionServed {
		return h.Ledger.Run(ctx, v.Run)
	}
	if err == nil || caisson.CodeOf(err) == caisson.CodeNotFound {
		// One that was never opened has no sandbox yet; and another's may be named so.
		in, found, findErr := h.servedNamed(ctx, ref)
		if findErr != nil || found {
			return in, findErr
		}
		err = caisson.Errorf(caisson.CodeNotFound, "no sandbox %q is kept open", ref).
			WithHint("`caisson sandbox create` makes one; `caisson sandbox ls` lists what there is.")
	}
	return caisson.Run{}, err
}

// FindGuest returns the session in a sandbox that is kept open whose run ref means,
// where it goes on.
func (h *Host) FindGuest(ctx context.Context, ref string) (r caisson.Run, is bool, err error) {
	r, err = h.FindRun(ctx, ref)
	if caisson.CodeOf(err) == caisson.CodeNotFound {
		return r, false, nil
	}
	if err == nil {
		_, is, err = h.isGuest(ctx, r)
	}
	if err == nil && is && r.State.Terminal() {
		err = caisson.Errorf(caisson.CodeStateInvalid, "session %s has ended: %s", r.ID, r.State)
	}
	return r, is, err
}

// servedNamed finds a served run that has not ended by the run's id, its
// sandbox's, or its workspace.
func (h *Host) servedNamed(ctx context.Context, ref string) (caisson.Run, bool, error) {
	runs, err := h.servedOpen(ctx)
	if err != nil || len(runs) == 0 || ref == "" {
		return caisson.Run{}, false, err
	}
	for _, r := range runs {
		if string(r.ID) == ref {
			return r, true, nil
		}
		boxes, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: r.ID})
		if err != nil {
			return r, false, err
		}
		if slices.ContainsFunc(boxes, func(b caisson.SandboxRecord) bool { return string(b.ID) == ref }) {
			return r, true, nil
		}
	}
	ws, err := h.placeOf(ctx, ref)
	if err != nil {
		return caisson.Run{}, false, nil //nolint:nilerr // it names no workspace; who asks says so
	}
	r, found := servedAround(runs, ws.ID)
	return r, found, nil
}

// servedAround returns the served run around a workspace.
func servedAround(runs []caisson.Run, ws caisson.WorkspaceID) (caisson.Run, bool) {
	i := slices.IndexFunc(runs, func(r caisson.Run) bool { return r.Spec.Workspace == ws && ws != "" })
	if i < 0 {
		return caisson.Run{}, false
	}
	return runs[i], true
}

// servedFor returns the served sandbox that a command of a person's is for, nil
// where it gets one of its own.
func (h *Host) servedFor(ctx context.Context, want ExecRequest) (*caisson.Run, error) {
	if want.NoWorkspace {
		return nil, nil
	}
	runs, err := h.servedOpen(ctx)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	in, found, err := h.servedNamed(ctx, want.Ref)
	if err == nil && !found && want.Ref == "" {
		if ws, none := h.workspaceOf(ctx, ""); none == nil {
			in, found = servedAround(runs, ws.ID)
		}
	}
	if err != nil || !found {
		return nil, err
	}
	if err := h.unheld(ctx, in.Spec.Workspace); err != nil {
		return nil, err
	}
	switch {
	case in.State == caisson.RunPaused:
		return nil, caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is stopped: %s", in.ID, cmp.Or(in.Text, string(in.Cause))).
			WithHint("`caisson sandbox start %s` starts it again.", in.ID)
	case in.CancelAsked != "":
		return nil, caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is being removed", in.ID)
	case want.boundary():
		return nil, caisson.Errorf(caisson.CodeUsage, "the sandbox of run %s stands: its engine, what it requires and its network were said when it was created", in.ID).
			WithHint("Leave out --engine, --require and --network.")
	}
	return &in, nil
}

// newGuest records a session in a served sandbox.
func (h *Host) newGuest(ctx context.Context, want ExecRequest, in caisson.Run) (caisson.Run, error) {
	request := RunRequest{Argv: want.Argv, Env: want.Env, Preset: string(gate.Sandboxed), Budget: caisson.Budget{Wall: want.Deadline}, NoWorkspace: true}
	if err := request.check(); err != nil {
		return caisson.Run{}, err
	}
	for _, name := range want.Env {
		if h.env(name) == "" {
			return caisson.Run{}, caisson.Errorf(caisson.CodeUsage, "there is no variable %s to pass on", name).WithHint("Set it, or leave it out.")
		}
	}
	id := caisson.NewRunID()
	spec := caisson.RunSpec{
		Preset: request.Preset, Env: want.Env, Budget: request.Budget, Session: want.Session, Parent: in.ID, Root: in.Spec.Root,
		Workspace: in.Spec.Workspace, Engine: in.Spec.Engine, Require: in.Spec.Require, Limits: in.Spec.Limits, Hide: in.Spec.Hide,
		Network: in.Spec.Network, OnUnknown: in.Spec.OnUnknown, RepoPolicy: in.Spec.RepoPolicy, Dir: h.dir, By: Person(),
	}
	for _, arg := range want.Argv {
		spec.Argv = append(spec.Argv, caisson.Bytes(arg))
	}
	// A session that could not begin would stay on record, to be taken up again.
	if err := h.checkGuest(ctx, spec); err != nil {
		return caisson.Run{}, err
	}
	return h.Ledger.CreateRun(ctx, id, spec)
}

// checkGuest reads the settings that a session in a served sandbox would be under.
func (h *Host) checkGuest(ctx context.Context, spec caisson.RunSpec) error {
	var repo repoFiles
	if spec.Workspace != "" {
		ws, err := h.Ledger.Workspace(ctx, spec.Workspace)
		if err != nil {
			return err
		}
		if repo, err = h.settingsOf(ctx, ws); err != nil {
			return err
		}
	}
	c, err := h.configWith(repo)
	if err != nil {
		return err
	}
	return h.checkSpec(ctx, spec, c, repo)
}
