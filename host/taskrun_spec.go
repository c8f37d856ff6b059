package host

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/sandbox/landlock"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/task/flow"
)

// verbsInWords tells the run of a stage how it hands in what it was asked for.
const verbsInWords = `
You ask for verbs with the program caisson-guest, as

  caisson-guest ctl task.artifact --json '{"name": "plan", "content": "…"}' --text

The input is JSON; --json @FILE takes it from a file. "caisson-guest ctl verbs --text" lists all verbs,
"caisson-guest ctl task.next --text" tells what is still wanted of you. End when nothing is.
`

// stageSpec says what the run of a stage is.
func (h *Host) stageSpec(ctx context.Context, t caisson.Task, w flow.Workflow, name string, run caisson.RunID, ws caisson.Workspace, o TaskRunOptions) (caisson.RunSpec, error) {
	stage, there := w.Stage(name)
	if !there {
		return caisson.RunSpec{}, caisson.Errorf(caisson.CodeWorkflowInvalid, "the workflow %s has no stage %s", w.Name, name)
	}
	prompt, err := stage.Render(flow.PromptOf(stage, t))
	if err != nil {
		return caisson.RunSpec{}, err
	}
	repo, err := h.settingsOf(ctx, ws)
	if err != nil {
		return caisson.RunSpec{}, err
	}
	c, err := h.configWith(repo)
	if err != nil {
		return caisson.RunSpec{}, err
	}
	want := roleRequest(c.Tasks, stage.Role, prompt+verbsInWords, o.Model)
	if err := want.check(); err != nil {
		return caisson.RunSpec{}, err
	}
	spec, isolation, err := h.spec(ctx, want, c)
	if err != nil {
		return spec, err
	}
	if spec.Engine == landlock.Name { // where a channel is at a place of its own
		spec.Prompt = strings.ReplaceAll(spec.Prompt, caisson.ControlDir, "$"+caisson.ControlEnv)
		for i, arg := range spec.Argv {
			spec.Argv[i] = caisson.Bytes(bytes.ReplaceAll([]byte(arg), []byte(caisson.ControlDir), []byte("$"+caisson.ControlEnv)))
		}
	}
	spec.Workspace, spec.RepoPolicy, spec.Root = ws.ID, repo.digest(), run
	// A clone's git directory, which git inside writes to, is in its tree.
	spec.ReadOnly = stage.Role == flow.Reviewer && ws.Mode != caisson.WorkspaceClone
	if err := h.checkSpec(ctx, spec, c, repo); err != nil {
		return spec, err
	}
	if err := h.admit(c, spec.Limits, h.Paths.State); err != nil {
		return spec, err
	}
	return spec, h.prepareEngine(ctx, spec.Engine, isolation)
}

// roleRequest asks for a run of who has a role.
func roleRequest(tasks config.Tasks, role flow.Role, prompt, model string) RunRequest {
	who := tasks.Executor
	if role == flow.Reviewer {
		who = tasks.Review()
	}
	switch {
	case model != "":
		return RunRequest{Model: model, Prompt: prompt}
	case len(who.Agent) > 0:
		return RunRequest{Argv: who.Argv(prompt)}
	default:
		return RunRequest{Model: who.Model, Prompt: prompt}
	}
}

// taskStep says what a task's workflow wants now.
func (h *Host) taskStep(ctx context.Context, t caisson.Task) (w flow.Workflow, step flow.Step, err error) {
	if w, err = h.Workflow(ctx, t); err != nil {
		return w, step, err
	}
	var facts flow.Facts
	if n := len(t.Steps); n > 0 && t.Steps[n-1].After != "" {
		if facts.Tree, err = h.TaskTree(ctx, t); err != nil {
			return w, step, err
		}
	}
	step = flow.Next(w, t, facts)
	return w, step, nil
}

// delivery turns a step that says that all is done into what is left for a
// person: with a tree on the branch that is not the reviewed one, a pause. It is
// to be called when what was committed inside has been brought home.
func (h *Host) delivery(ctx context.Context, t caisson.Task, p *task.Prospect, merged bool) error {
	if p.Kind != flow.Done {
		return nil
	}
	tip, err := h.workspaces.BranchTree(ctx, t.Repository, t.Branch)
	switch {
	case err != nil:
		return err
	case merged: // the branch may be gone
		p.Ways = []string{"caisson task complete " + string(t.ID)}
	case tip != p.Tree:
		p.Step = flow.Step{
			Kind: flow.Paused, Why: fmt.Sprintf("branch %s does not hold the tree that was reviewed: not all of it is committed", t.Branch),
			Ways: []string{fmt.Sprintf("caisson sandbox exec %s -- git commit -a", t.Branch), fmt.Sprintf("caisson workspace merge %s --commit", t.Branch)},
		}
	default:
		p.Ways = []string{"caisson workspace merge " + t.Branch, "caisson task complete " + string(t.ID)}
	}
	return nil
}
