package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/kernel"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/workspace"
)

// RunRequest is what a person asks for. Empty fields are the config's.
type RunRequest struct {
	Prompt      string
	Argv        []string // of a foreign agent; excludes Prompt
	Served      bool     // a sandbox that is kept open, and no agent
	Model       string
	Engine      string
	Require     []caisson.Control
	Preset      string
	Branch      string // of one that is kept open also what else means a workspace
	Base        string
	NoWorkspace bool
	// Mode is how the workspace is made; one that the engine cannot keep safe is
	// refused when the sandbox is opened.
	Mode    caisson.WorkspaceMode
	Budget  caisson.Budget
	Env     []string // names
	Network []string // hosts beside those of the config; "none" alone closes those too
}

// NewRun checks everything that can be checked, makes the workspace, and
// records the run. Nothing is left where it returns an error, but a workspace that
// was made for a task, which has it then. One that is kept open is put around a
// workspace that is there, where Branch means one.
func (h *Host) NewRun(ctx context.Context, want RunRequest) (caisson.Run, error) {
	if err := want.check(); err != nil {
		return caisson.Run{}, err
	}
	if want.Served {
		if ws, there, err := h.existing(ctx, want.Branch); err != nil || there {
			if err != nil {
				return caisson.Run{}, err
			}
			return h.newAround(ctx, want, ws)
		}
	}
	var repo repoFiles
	var err error
	if !want.NoWorkspace {
		if repo, err = h.repository(ctx, h.dir, want.Base); err != nil {
			return caisson.Run{}, err
		}
	}
	c, err := h.configWith(repo)
	if err != nil {
		return caisson.Run{}, err
	}
	spec, isolation, err := h.spec(ctx, want, c)
	if err != nil {
		return caisson.Run{}, err
	}
	spec.RepoPolicy = repo.digest()
	if err := h.checkSpec(ctx, spec, c, repo); err != nil {
		return caisson.Run{}, err
	}
	if err := h.admit(c, spec.Limits, h.Paths.State); err != nil {
		return caisson.Run{}, err
	}
	if err := h.prepareEngine(ctx, spec.Engine, isolation); err != nil {
		return caisson.Run{}, err
	}
	id := caisson.NewRunID()
	spec.Root = id
	if want.NoWorkspace {
		return h.Ledger.CreateRun(ctx, id, spec)
	}
	var created caisson.Run
	_, err = h.workspaces.Create(ctx, workspace.CreateSpec{
		Dir: h.dir, Name: string(id), Mode: modeOf(want, c, isolation), Branch: want.Branch, Base: want.Base, Run: id, By: Person(),
		Made: func(ctx context.Context, ws caisson.Workspace) (err error) {
			spec.Workspace = ws.ID
			created, err = h.Ledger.CreateRun(ctx, id, spec)
			return err
		},
	})
	return created, h.whatToDo(ctx, want, err)
}

// whatToDo adds to an error of making a workspace what the person can do about it
// with the command that they gave.
func (h *Host) whatToDo(ctx context.Context, want RunRequest, err error) error {
	var e *caisson.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == caisson.CodeNoRepository:
		if e.Hint == "" {
			return e.WithHint("Run it in one, or with `--no-workspace`.")
		}
	case e.Code == caisson.CodeBaseUnusable:
		if want.Served {
			return e.WithHint("%s The base is the second argument: `caisson sandbox create BRANCH BASE`.", e.HintText())
		}
		return e.WithHint("%s The base is named with `--base`.", e.HintText())
	case e.Code == caisson.CodeBranchCheckedOut:
		if id, is := e.Detail["workspace"].(caisson.WorkspaceID); is {
			return h.worksOn(ctx, want, e, id)
		}
	}
	return err
}

// worksOn says how to go on with a branch that has a workspace.
func (h *Host) worksOn(ctx context.Context, want RunRequest, e *caisson.Error, id caisson.WorkspaceID) error {
	ws, err := h.Ledger.Workspace(ctx, id)
	if err != nil {
		return errors.Join(e, err)
	}
	runs, err := h.servedOpen(ctx)
	if err != nil {
		return errors.Join(e, err)
	}
	r, kept := servedAround(runs, id)
	switch {
	case kept && r.State == caisson.RunPaused:
		return e.WithHint("Its sandbox is stopped: `caisson sandbox start %s` opens it again.", r.ID)
	case kept:
		return e.WithHint("Its sandbox is open: `caisson sandbox exec %s COMMAND` works in it.", r.ID)
	}
	from := "`--base THIS-BRANCH`"
	if want.Served {
		from = "`caisson sandbox create NEW-BRANCH THIS-BRANCH`"
	}
	return e.WithHint("`caisson sandbox exec %s COMMAND` works in it; a new branch can start from it: %s. "+
		"To begin anew, move it to the trash first: `caisson workspace rm %s`.", ws.Name, from, ws.Name)
}

// spec fills in what the person left to the config, and tells what the engine that
// was chosen enforces.
func (h *Host) spec(ctx context.Context, want RunRequest, c config.Config) (caisson.RunSpec, caisson.Isolation, error) {
	spec := caisson.RunSpec{
		Prompt: strings.TrimSpace(want.Prompt), Preset: cmp.Or(want.Preset, c.Preset), Require: want.Require,
		Env: want.Env, Network: want.Network, Limits: c.Limits, OnUnknown: c.OnUnknown, Dir: h.dir, By: Person(),
	}
	for _, arg := range want.Argv {
		spec.Argv = append(spec.Argv, caisson.Bytes(arg))
	}
	agent := len(spec.Argv) == 0 && !want.Served
	if want.Served {
		spec.Session = caisson.SessionServed
	}
	if agent && spec.Prompt == "" {
		return spec, caisson.Isolation{}, caisson.Errorf(caisson.CodePromptEmpty, "the prompt is empty")
	}
	if agent {
		spec.Model = h.scriptPath(cmp.Or(want.Model, c.Model))
	}
	var err error
	if spec.Require, err = h.required(want.Require, c); err != nil {
		return spec, caisson.Isolation{}, err
	}
	for _, name := range want.Env {
		if h.env(name) == "" {
			return spec, caisson.Isolation{}, caisson.Errorf(caisson.CodeUsage, "there is no variable %s to pass on", name).WithHint("Set it, or leave it out.")
		}
	}
	if len(spec.Env) == 0 {
		spec.Env = c.Env
	}
	spec.Hide = c.Hide
	if spec.Budget = want.Budget; !want.Served { // those of the config are for agents
		spec.Budget = fill(want.Budget, c.Budget)
	}
	isolation, err := h.chooseEngine(ctx, &spec, want, c)
	return spec, isolation, err
}

// modeOf tells how a workspace is made for an engine that enforces isolation.
func modeOf(want RunRequest, c config.Config, isolation caisson.Isolation) caisson.WorkspaceMode {
	mode := cmp.Or(want.Mode, c.WorkspaceMode)
	if mode == "" && isolation.NoCover != "" {
		mode = caisson.WorkspaceClone
	}
	return mode
}

// prepareEngine has the engine make what it found that a sandbox must wait for,
// which is the image of boxes where that is not there: one that cannot be had is
// found before anything is made for it.
func (h *Host) prepareEngine(ctx context.Context, name string, isolation caisson.Isolation) error {
	if isolation.Pending == "" {
		return nil
	}
	engine, err := h.engine(name)
	if err != nil {
		return err
	}
	made, is := engine.(*container.Engine)
	if !is {
		return nil
	}
	return made.Prepare(ctx)
}

// required are the controls of a run: those of the config, or those that the person
// named for it, and then what the repository adds to the person's own config.
func (h *Host) required(named []caisson.Control, c config.Config) ([]caisson.Control, error) {
	if len(named) == 0 {
		return c.Require, nil
	}
	own, err := h.configWith(repoFiles{})
	if err != nil {
		return nil, err
	}
	all := slices.Clone(named)
	for _, control := range c.Require {
		if !slices.Contains(own.Require, control) && !slices.Contains(all, control) {
			all = append(all, control)
		}
	}
	return all, nil
}

func (h *Host) chooseEngine(ctx context.Context, spec *caisson.RunSpec, want RunRequest, c config.Config) (caisson.Isolation, error) {
	if _, err := h.guest(); err != nil {
		return caisson.Isolation{}, err
	}
	engine, isolation, err := sandbox.Choose(ctx, h.engines, cmp.Or(want.Engine, c.Engine), spec.Require)
	if err != nil {
		return isolation, err
	}
	spec.Engine = engine.Name()
	return isolation, nil
}

// fill puts the bounds of defaults where budget has none.
func fill(budget, defaults caisson.Budget) caisson.Budget {
	for _, pair := range []struct{ to, from *int64 }{
		{&budget.Tokens, &defaults.Tokens},
		{&budget.Cost, &defaults.Cost},
		{&budget.Turns, &defaults.Turns},
		{&budget.Calls, &defaults.Calls},
		{&budget.Output, &defaults.Output},
	} {
		if *pair.to == 0 {
			*pair.to = *pair.from
		}
	}
	if budget.Wall == 0 {
		budget.Wall = defaults.Wall
	}
	return budget
}

// checkSpec finds what would stop the run at once, before anything is made.
func (h *Host) checkSpec(ctx context.Context, spec caisson.RunSpec, c config.Config, repo repoFiles) error {
	if _, err := h.policyWith(spec.Preset, repo, c.Verbs); err != nil {
		return err
	}
	if len(spec.Argv) > 0 || spec.Session == caisson.SessionServed {
		return nil
	}
	m, err := h.openModel(ctx, spec, c)
	if err != nil {
		return err
	}
	return kernel.Check(spec.Budget, m)
}
