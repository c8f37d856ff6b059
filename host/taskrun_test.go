package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
)

// late is a ledger that does something just before a run is on record.
type late struct {
	caisson.Ledger
	before func()
}

func (l late) CreateRun(ctx context.Context, id caisson.RunID, spec caisson.RunSpec) (caisson.Run, error) {
	l.before()
	return l.Ledger.CreateRun(ctx, id, spec)
}

// A task that is cancelled between the record of a step and that of its run leaves
// no run that waits to be driven.
func TestCancelledBetweenStepAndRun(t *testing.T) {
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
	h.Ledger = late{h.Ledger, func() {
		if _, err := h.Tasks().Move(t.Context(), one.ID, task.Wanted{Move: task.Cancel, By: h.Me()}); err != nil {
			t.Error(err)
		}
	}}
	made, err := h.createStageRun(t.Context(), one.ID, run, caisson.RunSpec{Argv: []caisson.Bytes{"true"}, Root: run})
	if err != nil {
		t.Fatal(err)
	}
	now, err := h.Ledger.Run(t.Context(), run)
	if err != nil || now.CancelAsked != caisson.CauseUser || made.CancelAsked != now.CancelAsked {
		t.Errorf("the run is %s, asked to end by %q, %v", now.State, now.CancelAsked, err)
	}
}

// The locks of tasks are one small set of files, however many tasks there are; of
// those who lock one task only one has it.
func TestTaskLocksStayFew(t *testing.T) {
	h := opened(t, "", nil)
	for n := range 20 * taskLocks {
		release, err := h.lockTask(t.Context(), caisson.TaskID(fmt.Sprint("t", n)))
		if err != nil {
			t.Fatal(err)
		}
		if err := release(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(filepath.Join(h.Paths.State, "tasks"))
	if err != nil || len(files) > taskLocks {
		t.Errorf("%d files are left, %v", len(files), err)
	}
	release, err := h.lockTask(t.Context(), "t1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.lockTask(ctx, "t1"); err == nil {
		t.Error("two have the lock of one task")
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
