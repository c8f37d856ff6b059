// Package task keeps pieces of work wanted: what a task may hold, how it moves,
// what it takes to be complete, and what agents see of it.
//
// Every change is a [caisson.TaskEdit], a pure function of the task as it is,
// done in the ledger's transaction; the verbs by which a sandbox changes tasks
// are such edits and nothing else, so none of them is ever half done. A move
// that has more to do than that (ending runs, showing the task elsewhere) is
// recorded first, its other steps are idempotent, and it is recorded as under
// way until they are done: whoever opens next goes on with it.
//
// Not promised: that a task which is complete stays what git says it was. That
// its work was merged is looked at before the move, not held by it.
package task

import (
	"time"

	"github.com/caisson-run/caisson"
)

// By is who changes a task, and when.
type By struct {
	Name   string // of a person, or a run's id
	Person bool   // only a person waives and decides
	At     time.Time
}

// Person is a change by a person.
func Person(name string, at time.Time) By { return By{name, true, at} }

// Run is a change by a run, from inside its sandbox.
func Run(id caisson.RunID, at time.Time) By { return By{string(id), false, at} }

// NamesWork tells whether a task is of the work on its branch, wherever that is
// done. One that a run has created is only of the workspace that was made for it:
// a sandbox could name the branch of another's.
func NamesWork(t caisson.Task, branch string) bool {
	return t.Branch == branch && !t.ByRun
}

// ForeignBase tells whether the base of a task is what a run has named: it may be
// a commit of its own, and is nothing to read rules of work from.
func ForeignBase(t caisson.Task) bool { return t.ByRun && t.Base != "" }

// activity is what the history says of a change.
func (b By) activity(kind, text string) caisson.TaskActivity {
	return caisson.TaskActivity{By: b.Name, Kind: kind, Text: text}
}

// Over tells whether nothing more is to be done for a task.
func Over(s caisson.TaskState) bool {
	return s != caisson.TaskActive && s != caisson.TaskBlocked
}

// Open are the states of tasks that are not over.
func Open() []caisson.TaskState {
	return []caisson.TaskState{caisson.TaskActive, caisson.TaskBlocked}
}

// workable refuses what is only for tasks that are not over.
func workable(t *caisson.Task) error {
	if !Over(t.State) {
		return nil
	}
	return leads(t, caisson.Errorf(caisson.CodeStateInvalid, "task %s is %s", t.ID, t.State))
}

// leads says beside a move or an edit that the task's state does not have what
// brings it to a state that does.
func leads(t *caisson.Task, err *caisson.Error) *caisson.Error {
	switch t.State {
	case caisson.TaskArchived:
		return err.WithHint("It was put away for good: `caisson task new TITLE` makes another.")
	case caisson.TaskBlocked:
		return err.WithHint("`caisson task activate %s` takes it up again.", t.ID)
	case caisson.TaskCompleted, caisson.TaskCancelled:
		return err.WithHint("`caisson task restore %s` takes it up again.", t.ID)
	case caisson.TaskActive:
	}
	return err
}
