package task

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
)

// Move is a way of moving a task.
type Move string

// Moves.
const (
	Block    Move = "block"
	Activate Move = "activate"
	Cancel   Move = "cancel"
	Complete Move = "complete"
	Restore  Move = "restore"
	Archive  Move = "archive"
)

// Moves returns all of them.
func Moves() []Move { return []Move{Block, Activate, Cancel, Complete, Restore, Archive} }

// to is the state that a move leads to, and from those that it leads from where
// the table of states alone does not say.
func (m Move) to() (to caisson.TaskState, from []caisson.TaskState) {
	switch m {
	case Block:
		return caisson.TaskBlocked, nil
	case Activate:
		return caisson.TaskActive, []caisson.TaskState{caisson.TaskBlocked}
	case Cancel:
		return caisson.TaskCancelled, nil
	case Complete:
		return caisson.TaskCompleted, nil
	case Restore:
		return caisson.TaskActive, []caisson.TaskState{caisson.TaskCompleted, caisson.TaskCancelled}
	case Archive:
		return caisson.TaskArchived, nil
	default:
		return "", nil
	}
}

// journaled tells whether a move has steps outside the ledger: those that begin
// or end that a task is over.
func (m Move) journaled() bool { return m != Block && m != Activate }

// Wanted is a move that somebody wants.
type Wanted struct {
	Move Move
	By   By
	Text string   // why; needed to block
	Work Standing // for Complete: looked at just before
}

// MoveTo moves a task. Repeating a move changes nothing; while another one is
// under way it is CodeTaskConflict; what the table of states does not have is
// CodeStateInvalid; a task that is not finished is not completed
// (CodeTaskUnfinished, with all that is missing in detail "missing").
func MoveTo(id caisson.TaskID, w Wanted) caisson.TaskEdit {
	to, from := w.Move.to()
	text, err := checkReason("reason", w.Text, w.Move == Block)
	if to == "" {
		err = invalid("move", "%q is none", string(w.Move))
	}
	said := string(to)
	if text != "" {
		said += ": " + text
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			if t.Moving != nil && t.Moving.To != to {
				return caisson.Errorf(caisson.CodeTaskConflict, "task %s is being moved to %s", t.ID, t.Moving.To).
					WithHint("Any `caisson task` command goes on with that move; try again then.")
			}
			if t.State == to {
				return nil
			}
			if from != nil && !slices.Contains(from, t.State) {
				return leads(t, caisson.Errorf(caisson.CodeStateInvalid, "a task that is %s cannot be %s", t.State, w.Move.done()))
			}
			if err := caisson.TaskStates().Move(string(t.State), string(to)); err != nil {
				if w.Move == Archive {
					return caisson.AsError(err).WithHint("Only one that is over is archived: `caisson task complete %s`, or `cancel`, comes first.", t.ID)
				}
				return leads(t, caisson.AsError(err))
			}
			if w.Move == Complete {
				if err := finished(t, w.Work); err != nil {
					return err
				}
			}
			w.apply(t, to, text)
			return nil
		},
		Activity: w.By.activity("moved", said),
	}
}

// done is the participle of a move.
func (m Move) done() string {
	if m == Activate || m == Archive || m == Complete || m == Restore {
		return string(m) + "d"
	}
	if m == Cancel {
		return "cancelled"
	}
	return string(m) + "ed"
}

func (w Wanted) apply(t *caisson.Task, to caisson.TaskState, text string) {
	t.State = to
	if w.Move != Archive || text != "" { // why it was over stays
		t.Reason = text
	}
	if w.Move.journaled() {
		t.Moving = &caisson.TaskMoving{To: to, By: w.By.Name, At: w.By.At, Text: text}
	}
	if w.Move == Restore {
		// What was waived was waived for what had been done until then.
		t.Decisions = slices.DeleteFunc(slices.Clone(t.Decisions), func(d caisson.TaskDecision) bool {
			return d.What == WaiveMerge || d.What == WaiveCriteria
		})
	}
}

// closeMove records that all steps of the move that began at m are done.
func closeMove(id caisson.TaskID, m caisson.TaskMoving) caisson.TaskEdit {
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if t.Moving != nil && t.Moving.To == m.To && t.Moving.At.Equal(m.At) {
				t.Moving = nil
			}
			return nil
		},
		Activity: caisson.TaskActivity{By: m.By, Kind: "moved", Text: fmt.Sprintf("%s, with all that belongs to it", m.To)},
	}
}
