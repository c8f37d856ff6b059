package host

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/task/flow"
	"github.com/caisson-run/caisson/workspace"
)

// taskVerbs are the verbs by which the sandbox of a session acts on tasks of its
// repository.
func (s *session) taskVerbs() []caisson.Tool {
	work := insideWork{taskHost{s.host}, s}
	return task.Verbs(task.VerbOptions{
		Ledger: s.host.Ledger, Work: work, Repository: s.ws.Binding.CommonDir, Task: s.mirror.bound(),
		Tree: work.tree, Workflow: work.workflow,
	})
}

// insideWork looks at work through the box that is open, where it is done in
// there; at that of other tasks as the host does.
type insideWork struct {
	taskHost
	s *session
}

// own tells whether a task's work is done in the session's workspace.
func (w insideWork) own(ctx context.Context, t caisson.Task) (bool, error) {
	ws, there, err := w.h.taskWorkspace(ctx, t)
	return there && ws.ID == w.s.ws.ID, err
}

// Clean implements task.Work.
func (w insideWork) Clean(ctx context.Context, t caisson.Task) (clean bool, err error) {
	err = w.s.looks.do(ctx, func() (err error) {
		clean, err = w.cleanNow(ctx, t)
		return err
	})
	return clean, err
}

func (w insideWork) cleanNow(ctx context.Context, t caisson.Task) (bool, error) {
	own, err := w.own(ctx, t)
	if err != nil || !own {
		if err == nil {
			return w.taskHost.Clean(ctx, t)
		}
		return false, err
	}
	if err := w.s.importWork(ctx); err != nil {
		return false, err
	}
	return w.h.unchanged(ctx, *w.s.ws, w.s.box)
}

// unchanged tells whether a workspace holds nothing but what its branch has.
func (h *Host) unchanged(ctx context.Context, ws caisson.Workspace, box workspace.Box) (bool, error) {
	var changed bytes.Buffer
	err := h.workspaces.Diff(ctx, ws, box, workspace.DiffOptions{From: "refs/heads/" + ws.Branch, Stat: true, Out: &limited{to: &changed, left: 1}})
	return changed.Len() == 0, err
}

// Merged implements task.Work.
func (w insideWork) Merged(ctx context.Context, t caisson.Task) (merged bool, err error) {
	err = w.s.looks.do(ctx, func() (err error) {
		merged, err = w.taskHost.Merged(ctx, t)
		return err
	})
	return merged, err
}

func (w insideWork) workflow(ctx context.Context, t caisson.Task) (is flow.Workflow, err error) {
	err = w.s.looks.do(ctx, func() (err error) {
		is, err = w.h.Workflow(ctx, t)
		return err
	})
	return is, err
}

func (w insideWork) tree(ctx context.Context, t caisson.Task) (tree string, err error) {
	err = w.s.looks.do(ctx, func() (err error) {
		tree, err = w.treeNow(ctx, t)
		return err
	})
	return tree, err
}

func (w insideWork) treeNow(ctx context.Context, t caisson.Task) (string, error) {
	own, err := w.own(ctx, t)
	switch {
	case err != nil:
		return "", err
	case own:
		return w.h.workspaces.Tree(ctx, *w.s.ws, w.s.box)
	}
	return w.h.TaskTree(ctx, t)
}

// seeTasks has what a request did to a task shown, and a move brought to its end.
func (s *session) seeTasks(n airlock.Notice) {
	if n.Kind == airlock.NoticeSettled && n.Record != nil && strings.HasPrefix(n.Record.Call.Tool.Name, "task.") {
		s.host.mirrors.wake(true)
	}
}

// taskGuide is what an agent in the sandbox should know of the task it is for.
func (s *session) taskGuide() string {
	if s.mirror == nil || s.mirror.bound() == "" {
		return ""
	}
	id := s.mirror.bound()
	return fmt.Sprintf(`
The work here is that of task %s: tasks/%s/task.md beside this file, with what was
handed in for it in tasks/%s/artifacts. Verbs that begin with "task." act on it
where none is named; task.next tells what is wanted.
`, id, id, id)
}
