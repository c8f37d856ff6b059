package host

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/task/flow"
)

// Tasks returns the tasks of this machine.
func (h *Host) Tasks() *task.Tasks {
	t := taskHost{h}
	return task.New(task.Options{Ledger: h.Ledger, Work: t, Outside: t, Workflow: h.Workflow})
}

// Me is a change of a task by the person who runs this process, now.
func (h *Host) Me() task.By { return task.Person(Person(), h.Ledger.Now()) }

// Repository returns the repository that the person stands in, as tasks and
// workspaces name it.
func (h *Host) Repository(ctx context.Context) (string, error) {
	return h.workspaces.Repository(ctx, h.dir)
}

// ListTasks lists the tasks of the repository that the person stands in, or of
// all; outside any, those of all.
func (h *Host) ListTasks(ctx context.Context, everywhere bool) ([]caisson.Task, error) {
	var filter caisson.TaskFilter
	if !everywhere {
		common, err := h.Repository(ctx)
		if err != nil && caisson.CodeOf(err) != caisson.CodeNoRepository {
			return nil, err
		}
		filter.Repository = common
	}
	return h.Ledger.Tasks(ctx, filter)
}

// FindTask returns the task that ref means where the person stands; one of
// another repository by its whole id.
func (h *Host) FindTask(ctx context.Context, ref string) (caisson.Task, error) {
	list, err := h.ListTasks(ctx, false)
	if err != nil {
		return caisson.Task{}, err
	}
	t, err := task.Find(list, ref)
	if caisson.CodeOf(err) == caisson.CodeNotFound && task.ValidID(caisson.TaskID(ref)) {
		if other, e := h.Ledger.Task(ctx, caisson.TaskID(ref)); e == nil {
			return other, nil
		}
	}
	return t, err
}

// TaskNext says what comes next for a task.
func (h *Host) TaskNext(ctx context.Context, t caisson.Task) (task.Prospect, error) {
	_, step, err := h.taskStep(ctx, t)
	p := task.Prospect{Task: t.ID, Step: step, Missing: []string{}}
	if err != nil || task.Over(t.State) {
		return p, err
	}
	standing, err := task.Look(ctx, taskHost{h}, t)
	if err != nil {
		return p, err
	}
	p.Missing = append(p.Missing, task.Missing(t, standing)...)
	return p, h.delivery(ctx, t, &p, standing.Merged)
}

// TaskTree returns the git tree of what a task's workspace holds now; "" where
// it has none.
func (h *Host) TaskTree(ctx context.Context, t caisson.Task) (string, error) {
	ws, there, err := h.taskWorkspace(ctx, t)
	if err != nil || !there {
		return "", err
	}
	return h.workspaces.Tree(ctx, ws, nil)
}

// maxWorkflow bounds a workflow file of a repository.
const maxWorkflow = 256 << 10

// Workflow returns a task's workflow: the user's file of that name, else the
// repository's as the commit has it that the work started from, else the one
// that ships. Where a run has named what to start from, that is not where it is
// read: it is at what a person has checked out, when the work begins.
func (h *Host) Workflow(ctx context.Context, t caisson.Task) (flow.Workflow, error) {
	name := flow.For(t)
	if !task.ValidName(name) {
		return flow.Workflow{}, caisson.Errorf(caisson.CodeWorkflowInvalid, "%q is no name of a workflow", name)
	}
	own := filepath.Join(h.Paths.Config, "workflows", name+".yaml")
	raw, err := readOwn(own)
	if err != nil {
		return flow.Workflow{}, err
	}
	if raw != nil {
		return flow.Load(own, raw)
	}
	ws, there, err := h.taskWorkspace(ctx, t)
	if err != nil {
		return flow.Workflow{}, err
	}
	rev := t.Base
	switch {
	case there && (ws.Settings != "" || !task.ForeignBase(t)):
		rev = settingsAt(ws)
	case task.ForeignBase(t):
		rev = "HEAD"
	}
	theirs := repoWorkflows + "/" + name + ".yaml"
	files, err := h.workspaces.FilesAt(ctx, t.Repository, rev, maxWorkflow, theirs)
	if err != nil {
		return flow.Workflow{}, err
	}
	if raw := files[theirs]; raw != nil {
		return flow.Load(theirs, raw)
	}
	shipped, err := flow.Shipped()
	if err != nil {
		return flow.Workflow{}, err
	}
	for _, w := range shipped {
		if w.Name == name {
			return w, nil
		}
	}
	names, err := h.workflowNames(ctx, t, rev, shipped)
	if err != nil {
		return flow.Workflow{}, err
	}
	return flow.Workflow{}, caisson.Errorf(caisson.CodeNotFound, "there is no workflow %s", name).With("known", names).
		WithHint("Known are %s. Write another as %s, or into the repository as %s.", fewer(names, fewWorkflows), own, theirs)
}

// repoWorkflows is where a repository has its workflows.
const repoWorkflows = ".caisson/workflows"

// fewWorkflows is how many are named to who has named another.
const fewWorkflows = 20

// workflowNames returns what workflows a task can have that is worked on from rev:
// the names, and not whether each is right.
func (h *Host) workflowNames(ctx context.Context, t caisson.Task, rev string, shipped []flow.Workflow) ([]string, error) {
	var names []string
	for _, w := range shipped {
		names = append(names, w.Name)
	}
	own, err := os.ReadDir(filepath.Join(h.Paths.Config, "workflows"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, caisson.Errorf(caisson.CodeConfigInvalid, "list your workflows: %w", err)
	}
	files, err := h.workspaces.NamesAt(ctx, t.Repository, rev, repoWorkflows)
	if err != nil {
		return nil, err
	}
	for _, entry := range own {
		files = append(files, entry.Name())
	}
	for _, file := range files {
		if name, is := strings.CutSuffix(file, ".yaml"); is && task.ValidName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// taskWorkspace returns the workspace of a task: the one on record, or one on its
// branch where a person has named that.
func (h *Host) taskWorkspace(ctx context.Context, t caisson.Task) (ws caisson.Workspace, there bool, err error) {
	all, err := h.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: t.Repository})
	if err != nil {
		return ws, false, err
	}
	for _, w := range all {
		switch {
		case w.ID == t.Workspace:
			return w, true, nil
		case task.NamesWork(t, w.Branch):
			ws, there = w, true
		}
	}
	return ws, there, nil
}

// taskHost is what tasks need of a host.
type taskHost struct{ h *Host }

// Clean implements task.Work. What was committed inside is brought into the
// repository first, so that the branch outside is what is compared with.
func (s taskHost) Clean(ctx context.Context, t caisson.Task) (clean bool, err error) {
	ws, there, err := s.h.taskWorkspace(ctx, t)
	if err != nil || !there {
		return err == nil, err
	}
	box, err := s.h.boxFor(ctx, ws)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	if err := s.h.bringHome(ctx, ws, box); err != nil {
		return false, err
	}
	return s.h.unchanged(ctx, ws, box)
}

// Merged implements task.Work. A branch that is gone with its workspace is one
// whose commits were on another when that was removed.
func (s taskHost) Merged(ctx context.Context, t caisson.Task) (bool, error) {
	all, err := s.h.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: t.Repository, Removed: true})
	if err != nil {
		return false, err
	}
	into, had := t.Base, false
	for _, ws := range all { // the newest first
		if ws.Branch == t.Branch {
			had = true
			if ws.BaseRef != "" {
				into = "refs/heads/" + ws.BaseRef
			}
			break
		}
	}
	merged, there, err := s.h.workspaces.Merged(ctx, t.Repository, t.Branch, cmp.Or(into, "HEAD"))
	if err != nil {
		return false, err
	}
	return merged || !there && had, nil
}

// Settle implements task.Outside: the runs of a task that is cancelled are asked
// to end, which is recorded and done by whoever drives them. Those are its steps
// and all in its workspace, where a person gives it up or one of them does.
func (s taskHost) Settle(ctx context.Context, t caisson.Task) error {
	if t.State != caisson.TaskCancelled || t.Moving == nil {
		return nil
	}
	ids := map[caisson.RunID]bool{}
	for _, step := range t.Steps {
		ids[step.Run] = step.After == ""
	}
	ws, there, err := s.h.taskWorkspace(ctx, t)
	if err != nil {
		return err
	}
	switch mover, err := s.h.Ledger.Run(ctx, caisson.RunID(t.Moving.By)); {
	case err == nil:
		there = there && mover.Spec.Workspace == ws.ID
	case caisson.CodeOf(err) != caisson.CodeNotFound:
		return err
	}
	runs, err := s.h.Ledger.Runs(ctx, caisson.RunFilter{States: []caisson.RunState{
		caisson.RunPending, caisson.RunRunning, caisson.RunWaiting, caisson.RunPaused,
	}})
	if err != nil {
		return err
	}
	var failed error
	for _, r := range runs {
		if ids[r.ID] || there && r.Spec.Workspace == ws.ID {
			_, err := s.h.Ledger.AskCancel(ctx, r.ID, caisson.CauseUser, t.Moving.By)
			if caisson.CodeOf(err) != caisson.CodeStateInvalid { // it has just ended
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

// Show implements task.Outside. Mirrors are below the sandboxes that see them,
// and whoever keeps a sandbox's channel writes its mirror: the commit of an
// edit wakes it in this process; others look each few seconds.
func (s taskHost) Show(context.Context, caisson.Task) error {
	s.h.mirrors.wake(false)
	return nil
}
