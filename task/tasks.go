package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// Outside does what belongs to a move and is not in the ledger. Both methods
// are idempotent: after a crash they are called again.
type Outside interface {
	// Settle brings what works on a task into line with its state: for one that
	// is cancelled it ends its runs. It returns when that is done or recorded
	// where it will be done.
	Settle(ctx context.Context, t caisson.Task) error
	// Show shows the task, as it is, wherever its mirror is shown.
	Show(ctx context.Context, t caisson.Task) error
}

// Options are what tasks are made of.
type Options struct {
	Ledger  caisson.Ledger
	Work    Work
	Outside Outside
	// Workflow tells of a new task's workflow. Nil: it is not looked for.
	Workflow Workflows
}

// Tasks are the tasks of a ledger. Safe for concurrent use, also by several
// processes.
type Tasks struct{ o Options }

// New returns the tasks of a ledger.
func New(o Options) *Tasks { return &Tasks{o} }

// Create makes a task, or returns the one that was made with that key.
func (s *Tasks) Create(ctx context.Context, n Draft, by By) (caisson.Task, error) {
	t, err := s.o.Ledger.EditTask(ctx, known(ctx, s.o.Workflow, Create(n, by)))
	if err != nil {
		return t, err
	}
	return t, s.o.Outside.Show(ctx, t)
}

// Edit does one edit and shows the task as it is then.
func (s *Tasks) Edit(ctx context.Context, edit caisson.TaskEdit) (caisson.Task, error) {
	t, err := s.o.Ledger.EditTask(ctx, edit)
	if err != nil {
		return t, err
	}
	if err := s.o.Outside.Show(ctx, t); err != nil {
		return t, fmt.Errorf("show task %s: %w", t.ID, err)
	}
	return t, nil
}

// Move moves a task and does all that belongs to it. When it returns an error
// of a later step the task has moved, and [Tasks.Resume] goes on.
func (s *Tasks) Move(ctx context.Context, id caisson.TaskID, w Wanted) (caisson.Task, error) {
	t, err := s.o.Ledger.Task(ctx, id)
	if err != nil {
		return t, err
	}
	if w.Move == Complete && !Over(t.State) {
		if w.Work, err = Look(ctx, s.o.Work, t); err != nil {
			return t, err
		}
	}
	if t, err = s.o.Ledger.EditTask(ctx, MoveTo(id, w)); err != nil {
		return t, err
	}
	if err := fault.Point("task.move.recorded"); err != nil {
		return t, err
	}
	return s.finish(ctx, t)
}

// finish does the steps outside the ledger of the move that is under way, if
// one is, and shows the task.
func (s *Tasks) finish(ctx context.Context, t caisson.Task) (caisson.Task, error) {
	if t.Moving != nil {
		if err := s.o.Outside.Settle(ctx, t); err != nil {
			return t, fmt.Errorf("move task %s to %s: %w", t.ID, t.Moving.To, err)
		}
		if err := fault.Point("task.move.settled"); err != nil {
			return t, err
		}
	}
	if err := s.o.Outside.Show(ctx, t); err != nil {
		return t, fmt.Errorf("show task %s: %w", t.ID, err)
	}
	if err := fault.Point("task.move.shown"); err != nil {
		return t, err
	}
	if t.Moving == nil {
		return t, nil
	}
	closed, err := s.o.Ledger.EditTask(ctx, closeMove(t.ID, *t.Moving))
	if err != nil {
		return t, err
	}
	return closed, fault.Point("task.move.closed")
}

// Resume goes on with all moves that a process which ended left under way. One
// that cannot be finished does not keep the others from it.
func (s *Tasks) Resume(ctx context.Context) error {
	moving, err := s.o.Ledger.Tasks(ctx, caisson.TaskFilter{Moving: true})
	if err != nil {
		return err
	}
	var failed error
	for _, t := range moving {
		_, err := s.finish(ctx, t)
		failed = errors.Join(failed, err)
	}
	return failed
}
