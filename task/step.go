package task

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
)

// Verdicts of a review.
const (
	Approve = "approve"
	Changes = "changes"
)

// Take records which workspace the work on a task is done in. One that it had
// before is gone, or the caller would not have made another.
func Take(id caisson.TaskID, by By, ws caisson.WorkspaceID) caisson.TaskEdit {
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if ws == "" {
				return invalid("workspace", "is empty")
			}
			if err := workable(t); err != nil {
				return err
			}
			t.Workspace = ws
			return nil
		},
		Activity: by.activity("workspace", string(ws)),
	}
}

// Begin records that a run of a stage begins: its stage, role, run, and the tree
// that it begins with. admit, if given, is asked in the same transaction whether
// the step is still the one that is due.
func Begin(id caisson.TaskID, by By, step caisson.TaskStep, admit func(caisson.Task) error) caisson.TaskEdit {
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if step.Stage == "" || step.Run == "" || step.Before == "" {
				return invalid("step", "it names no stage, run or tree")
			}
			if t.State != caisson.TaskActive || t.Moving != nil {
				return leads(t, caisson.Errorf(caisson.CodeStateInvalid, "task %s is %s", t.ID, t.State))
			}
			if n := len(t.Steps); n > 0 {
				if t.Steps[n-1].Run == step.Run {
					return nil
				}
				if t.Steps[n-1].After == "" {
					return caisson.Errorf(caisson.CodeTaskConflict, "run %s is at work on task %s", t.Steps[n-1].Run, t.ID)
				}
				if n >= caisson.TaskSteps {
					return full(t, "steps", caisson.TaskSteps)
				}
			}
			if admit != nil {
				if err := admit(*t); err != nil {
					return err
				}
			}
			t.Stage = step.Stage
			t.Steps = append(slices.Clone(t.Steps), caisson.TaskStep{
				Stage: step.Stage, Role: step.Role, Run: step.Run, Before: step.Before, State: caisson.RunPending, Began: by.At,
			})
			return nil
		},
		Activity: by.activity("step", fmt.Sprintf("%s begins as run %s", step.Stage, step.Run)),
	}
}

// End records how a run of a stage ended, and the tree that it left.
func End(id caisson.TaskID, by By, run caisson.RunID, state caisson.RunState, after string) caisson.TaskEdit {
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if after == "" || !state.Terminal() {
				return invalid("step", "it has not ended")
			}
			i := slices.IndexFunc(t.Steps, func(s caisson.TaskStep) bool { return s.Run == run })
			if i < 0 {
				return caisson.Errorf(caisson.CodeNotFound, "run %s is no step of task %s", run, t.ID)
			}
			t.Steps = slices.Clone(t.Steps)
			if s := &t.Steps[i]; s.After == "" {
				s.After, s.State, s.Ended = after, state, by.At
			}
			return nil
		},
		Activity: by.activity("step", fmt.Sprintf("run %s %s", run, state)),
	}
}

// giveVerdict records the verdict of the review that by, a run, is.
func giveVerdict(t *caisson.Task, by By, verdict string) error {
	n := len(t.Steps)
	if by.Person || n == 0 || string(t.Steps[n-1].Run) != by.Name || t.Steps[n-1].Role != "reviewer" || t.Steps[n-1].After != "" {
		return caisson.Errorf(caisson.CodeTaskConflict, "%s is not a review of task %s that is under way", by.Name, t.ID).
			WithHint("Only the run of a review gives a verdict, before it ends.")
	}
	t.Steps = slices.Clone(t.Steps)
	t.Steps[n-1].Result = verdict
	return nil
}
