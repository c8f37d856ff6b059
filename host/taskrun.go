package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/task/flow"
	"github.com/caisson-run/caisson/workspace"
)

// TaskRunOptions say how the stages of a task are run.
type TaskRunOptions struct {
	Once  bool   // one stage, and no more
	Model string // in place of what the settings say of both roles
	// Drive drives a stage's run until it ends or cannot go on by itself.
	Drive func(ctx context.Context, r caisson.Run, step caisson.TaskStep) (caisson.Run, error)
}

// TaskOutcome is where a task stands when no more of it is run.
type TaskOutcome struct {
	task.Prospect
	Ran int `json:"ran"` // stages that ended
}

// RunTask runs a task's stages, one after the other, until its workflow is done
// or a person has to do something.
//
// All that it goes by is on record, so that it can be ended at any moment and
// called again: a stage whose run has ended is not run again, one whose run was
// under way is gone on with.
func (h *Host) RunTask(ctx context.Context, id caisson.TaskID, o TaskRunOptions) (TaskOutcome, error) {
	for ran := 0; ; {
		t, err := h.Ledger.Task(ctx, id)
		if err != nil {
			return TaskOutcome{Ran: ran}, err
		}
		w, step, err := h.taskStep(ctx, t)
		if err != nil {
			return TaskOutcome{Ran: ran}, err
		}
		switch {
		case step.Kind == flow.Begin && !(o.Once && ran > 0):
			err = h.beginStage(ctx, t, w, step, o)
		case step.Kind == flow.Running:
			var rests *flow.Step
			if rests, err = h.goOn(ctx, t, w, o); rests != nil {
				return TaskOutcome{task.Prospect{Task: t.ID, Step: *rests, Missing: []string{}}, ran}, err
			}
			ran++
		default:
			p, err := h.TaskNext(ctx, t)
			return TaskOutcome{p, ran}, err
		}
		if err != nil {
			return TaskOutcome{Ran: ran}, err
		}
	}
}

// beginStage records that a stage begins, and its run.
func (h *Host) beginStage(ctx context.Context, t caisson.Task, w flow.Workflow, step flow.Step, o TaskRunOptions) error {
	ws, err := h.takeWorkspace(ctx, t)
	if err != nil {
		return err
	}
	before, err := h.workspaces.Tree(ctx, ws, nil)
	if err != nil {
		return err
	}
	run := caisson.NewRunID()
	spec, err := h.stageSpec(ctx, t, w, step.Stage, run, ws, o)
	if err != nil {
		return err
	}
	admit := func(now caisson.Task) error {
		if due := flow.Next(w, now, flow.Facts{Tree: before}); due.Kind != flow.Begin || due.Stage != step.Stage || due.N != step.N {
			return caisson.Errorf(caisson.CodeTaskConflict, "task %s changed meanwhile: %s", now.ID, due.Says()).WithHint("Try again.")
		}
		return nil
	}
	begun := caisson.TaskStep{Stage: step.Stage, Role: string(step.Role), Run: run, Before: before}
	if _, err := h.Tasks().Edit(ctx, task.Begin(t.ID, h.Me(), begun, admit)); err != nil {
		return err
	}
	if err := fault.Point("task.run.begun"); err != nil {
		return err
	}
	if _, err := h.createStageRun(ctx, t.ID, run, spec); err != nil {
		return err
	}
	return fault.Point("task.run.created")
}

// createStageRun records the run of a step. One whose task was given up since the
// step began, when there was no run yet to be cancelled, is cancelled.
func (h *Host) createStageRun(ctx context.Context, id caisson.TaskID, run caisson.RunID, spec caisson.RunSpec) (caisson.Run, error) {
	r, err := h.Ledger.CreateRun(ctx, run, spec)
	if err != nil {
		return r, err
	}
	now, err := h.Ledger.Task(ctx, id)
	if err != nil || now.State != caisson.TaskCancelled {
		return r, err
	}
	return h.Ledger.AskCancel(ctx, run, caisson.CauseUser, Person())
}

// goOn drives the run of the step that is under way, and records its end. Where
// it cannot, rests says why.
func (h *Host) goOn(ctx context.Context, t caisson.Task, w flow.Workflow, o TaskRunOptions) (rests *flow.Step, err error) {
	step := t.Steps[len(t.Steps)-1]
	r, err := h.stageRun(ctx, t, w, o)
	if err == nil && !r.State.Terminal() {
		r, err = o.Drive(ctx, r, step)
	}
	if err != nil || !r.State.Terminal() {
		return resting(t, step, r), err
	}
	if err := fault.Point("task.run.driven"); err != nil {
		return nil, err
	}
	after, err := h.TaskTree(ctx, t)
	if err != nil {
		return nil, err
	}
	if after == "" {
		return &flow.Step{Kind: flow.Paused, Why: "the task's workspace is gone", Ways: []string{"caisson workspace trash ls", "caisson task run " + string(t.ID)}}, nil
	}
	if _, err := h.Tasks().Edit(ctx, task.End(t.ID, h.Me(), step.Run, r.State, after)); err != nil {
		return nil, err
	}
	return nil, fault.Point("task.run.ended")
}

// resting says why a step's run does not go on by itself, and how it does.
func resting(t caisson.Task, step caisson.TaskStep, r caisson.Run) *flow.Step {
	again := "caisson task run " + string(t.ID)
	s := &flow.Step{Kind: flow.Paused, Stage: step.Stage, Role: flow.Role(step.Role), Run: step.Run, N: len(t.Steps)}
	if r.State == caisson.RunWaiting {
		s.Why = fmt.Sprintf("run %s of %s waits for a person", step.Run, step.Stage)
		s.Ways = []string{"caisson review ls --run " + string(step.Run), again}
		return s
	}
	s.Why = fmt.Sprintf("run %s of %s is %s", step.Run, step.Stage, cmp.Or(string(r.State), "not to be told of"))
	if r.Text != "" {
		s.Why += ": " + r.Text
	}
	s.Ways = []string{again, "caisson runs cancel " + string(step.Run)}
	return s
}

// stageRun returns the run of the step that is under way. One of which only the
// step is on record is made now.
func (h *Host) stageRun(ctx context.Context, t caisson.Task, w flow.Workflow, o TaskRunOptions) (caisson.Run, error) {
	step := t.Steps[len(t.Steps)-1]
	r, err := h.Ledger.Run(ctx, step.Run)
	if caisson.CodeOf(err) != caisson.CodeNotFound {
		return r, err
	}
	ws, err := h.takeWorkspace(ctx, t)
	if err != nil {
		return r, err
	}
	spec, err := h.stageSpec(ctx, t, w, step.Stage, step.Run, ws, o)
	if err != nil {
		return r, err
	}
	return h.createStageRun(ctx, t.ID, step.Run, spec)
}

// takeWorkspace returns the workspace of a task, which it makes where there is
// none: on the task's branch, from its base. It is on record in the task then.
// Of several that run the task at once one makes it, and the others take that one.
func (h *Host) takeWorkspace(ctx context.Context, t caisson.Task) (ws caisson.Workspace, err error) {
	ws, there, err := h.taskWorkspace(ctx, t)
	if err != nil || there && t.Workspace == ws.ID {
		return ws, err
	}
	release, err := h.lockTask(ctx, t.ID)
	if err != nil {
		return ws, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if t, err = h.Ledger.Task(ctx, t.ID); err != nil {
		return ws, err
	}
	ws, there, err = h.taskWorkspace(ctx, t)
	if err == nil && !there {
		ws, err = h.makeWorkspace(ctx, t)
	}
	if err != nil || t.Workspace == ws.ID {
		return ws, err
	}
	if err := fault.Point("task.run.workspace"); err != nil {
		return ws, err
	}
	_, err = h.Tasks().Edit(ctx, task.Take(t.ID, h.Me(), ws.ID))
	return ws, err
}

// taskLocks is how many locks there are for all tasks: a lock's file stays, and tasks
// are many. Two that share one wait for each other, which does no harm.
const taskLocks = 16

// lockTask keeps others from making the workspace of a task, for as long as that
// takes. No other lock of a task may be asked for meanwhile.
func (h *Host) lockTask(ctx context.Context, id caisson.TaskID) (release func() error, err error) {
	dir := filepath.Join(h.Paths.State, "tasks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "make a directory for locks: %w", err)
	}
	which := fnv.New32a()
	_, _ = which.Write([]byte(id)) // it never fails
	lock, err := lockfile.Acquire(ctx, filepath.Join(dir, fmt.Sprintf("%x.lock", which.Sum32()%taskLocks)), nil)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "lock task %s: %w", id, err)
	}
	return lock.Close, nil
}

func (h *Host) makeWorkspace(ctx context.Context, t caisson.Task) (caisson.Workspace, error) {
	dir := t.Repository
	if common, err := h.Repository(ctx); err == nil && common == t.Repository {
		dir = h.dir // whose HEAD is meant where the task names no base
	}
	settings := ""
	if task.ForeignBase(t) {
		settings = "HEAD"
	}
	repo, err := h.repository(ctx, dir, cmp.Or(settings, t.Base))
	if err != nil {
		return caisson.Workspace{}, err
	}
	c, err := h.configWith(repo)
	if err != nil {
		return caisson.Workspace{}, err
	}
	look := caisson.RunSpec{Require: slices.Clone(c.Require)}
	isolation, err := h.chooseEngine(ctx, &look, RunRequest{}, c)
	if err != nil {
		return caisson.Workspace{}, err
	}
	if err := h.admit(c, c.Limits, h.Paths.State); err != nil {
		return caisson.Workspace{}, err
	}
	if err := h.prepareEngine(ctx, look.Engine, isolation); err != nil {
		return caisson.Workspace{}, err
	}
	ws, err := h.workspaces.Create(ctx, workspace.CreateSpec{Dir: dir, Name: string(t.ID), Mode: modeOf(RunRequest{}, c, isolation), Branch: t.Branch, Base: t.Base, Settings: settings, By: Person()})
	if e := (*caisson.Error)(nil); errors.As(err, &e) && e.Code == caisson.CodeBaseUnusable {
		err = e.WithHint("%s A task is given its base by `caisson task new --base`.", e.HintText())
	}
	return ws, err
}
