package host

import (
	"context"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
)

// quicker is a ledger in which a run ends just before it is asked to.
type quicker struct {
	caisson.Ledger
	end func()
}

func (l quicker) AskCancel(ctx context.Context, id caisson.RunID, cause caisson.Cause, by string) (caisson.Run, error) {
	l.end()
	return l.Ledger.AskCancel(ctx, id, cause, by)
}

// A task is cancelled also where its run ends by itself while that is done.
func TestCancelledAsItsRunEnds(t *testing.T) {
	h := opened(t, "", nil)
	n := task.Draft{Key: task.KeyOf("one"), Repository: "/repo/.git", Title: "One", Type: caisson.TaskChore}
	one, err := h.Tasks().Create(t.Context(), n, h.Me())
	if err != nil {
		t.Fatal(err)
	}
	run := caisson.NewRunID()
	step := caisson.TaskStep{Stage: "implement", Role: "executor", Run: run, Before: "tree"}
	if _, err := h.Tasks().Edit(t.Context(), task.Begin(one.ID, h.Me(), step, nil)); err != nil {
		t.Fatal(err)
	}
	r, err := h.Ledger.CreateRun(t.Context(), run, caisson.RunSpec{Argv: []caisson.Bytes{"true"}, Root: run})
	if err != nil {
		t.Fatal(err)
	}
	drive, err := h.take(t.Context(), r, false)
	if err != nil {
		t.Fatal(err)
	}
	under := h.Ledger
	h.Ledger = quicker{under, func() {
		for _, to := range []caisson.RunState{caisson.RunRunning, caisson.RunSucceeded} {
			if _, err := under.MoveRun(t.Context(), drive, caisson.RunMove{To: to}); err != nil {
				t.Error(err)
			}
		}
	}}
	moved, err := h.Tasks().Move(t.Context(), one.ID, task.Wanted{Move: task.Cancel, By: h.Me()})
	if err != nil || moved.State != caisson.TaskCancelled || moved.Moving != nil {
		t.Errorf("the task is %s, moving %v: %v", moved.State, moved.Moving, err)
	}
	if r, err = h.Ledger.Run(t.Context(), run); err != nil || r.State != caisson.RunSucceeded {
		t.Errorf("the run is %s: %v", r.State, err)
	}
}
