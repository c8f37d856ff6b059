package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Kind is what a step is.
type Kind string

// Kinds of steps.
const (
	Begin   Kind = "begin"   // a run of a stage is to be begun
	Running Kind = "running" // one is at work
	Done    Kind = "done"    // the reviewed tree is there; it can be merged
	Paused  Kind = "paused"  // a person has to look
)

// Verdicts of a review.
const (
	approve = "approve"
	changes = "changes"
)

// Decisions by which a person ends a pause.
const (
	retry      = "retry"
	acceptTree = "accept-tree" // its text is the tree
)

// Facts are what is looked at beside the task's record.
type Facts struct {
	Tree string // digest of what the task's workspace holds; "" where it has none
}

// Step is what comes next.
type Step struct {
	Kind  Kind          `json:"kind"`
	Stage string        `json:"stage,omitempty"` // with Begin and Running
	Role  Role          `json:"role,omitempty"`
	Run   caisson.RunID `json:"run,omitempty"` // with Running
	N     int           `json:"n,omitempty"`   // of the step, from 1
	Tree  string        `json:"tree,omitempty"`
	Why   string        `json:"why"`
	// Ways are commands by which a person goes on from a pause, best first.
	Ways []string `json:"ways,omitempty"`
}

// Says is the step in a sentence.
func (s Step) Says() string {
	switch s.Kind {
	case Begin:
		return fmt.Sprintf("Next is step %d, %s by the %s: %s.", s.N, s.Stage, s.Role, s.Why)
	case Running:
		return fmt.Sprintf("Run %s is at work on %s.", s.Run, s.Stage)
	case Done:
		return "The workflow is done: " + s.Why + "."
	default:
		return "Paused: " + s.Why + "."
	}
}

// Next says what comes next for a task in its workflow. It is a pure function of
// what is recorded: the same facts always give the same step. It promises that
// no more than TaskSteps runs are begun, that a run which delivers begins only
// on exactly the tree that the last review approved, with no blocker or major
// finding open, and that Done means that this tree is what is there.
func Next(w Workflow, t caisson.Task, facts Facts) Step {
	n := len(t.Steps)
	switch {
	case t.Moving != nil:
		return paused("the task is being moved to %s", t.Moving.To).by(t, "show %s")
	case t.State != caisson.TaskActive:
		return paused("the task is %s", t.State).by(t, out(t.State))
	case n == 0:
		return begin(w, t, facts, w.Stages[0].Name, "it is the first")
	}
	last := t.Steps[n-1]
	if last.After == "" {
		return Step{Kind: Running, Stage: last.Stage, Role: Role(last.Role), Run: last.Run, N: n, Why: "its run has not ended"}
	}
	if facts.Tree == "" {
		step := paused("the task has steps and no workspace")
		step.Ways = []string{"caisson workspace trash ls"}
		return step
	}
	if facts.Tree != last.After && !decided(t, last, acceptTree, facts.Tree) {
		return paused("the tree is not the one that %s (run %s) left", last.Stage, last.Run).by(t, "decide %s accept-tree")
	}
	stage, ok := w.Stage(last.Stage)
	if !ok {
		return paused("the workflow %s has no stage %s, which was the last", w.Name, last.Stage).by(t, "cancel %s")
	}
	if decided(t, last, retry, "") {
		return begin(w, t, facts, stage.Name, "a person wants it again")
	}
	if why := fault(stage, t, last); why != "" {
		step := paused("%s", why).by(t, "decide %s retry")
		if last.State == caisson.RunSucceeded && stage.Artifact != "" && !stage.HandedIn(t, last) {
			step = step.by(t, "artifact %s "+stage.Artifact+" FILE")
		}
		return step
	}
	target, why := stage.Next, stage.Name+" has ended"
	if stage.Role == Reviewer {
		target, why = stage.Verdicts[last.Result], "the review says "+last.Result
	}
	return begin(w, t, facts, target, why)
}

func paused(format string, args ...any) Step {
	return Step{Kind: Paused, Why: fmt.Sprintf(format, args...)}
}

// by adds commands by which a person goes on: what comes after "caisson task",
// with the task's place as %s.
func (s Step) by(t caisson.Task, ways ...string) Step {
	for _, way := range ways {
		s.Ways = append(s.Ways, "caisson task "+strings.Replace(way, "%s", string(t.ID), 1))
	}
	return s
}

// out are the commands that lead out of a state in which nothing is done.
func out(s caisson.TaskState) string {
	switch s {
	case caisson.TaskBlocked:
		return "activate %s"
	case caisson.TaskArchived:
		return "new TITLE"
	default:
		return "restore %s"
	}
}

// decided tells whether a person has decided that since the last step ended.
func decided(t caisson.Task, last caisson.TaskStep, what, text string) bool {
	return slices.ContainsFunc(t.Decisions, func(d caisson.TaskDecision) bool {
		return d.What == what && !d.At.Before(last.Ended) && (text == "" || d.Text == text)
	})
}

// fault says why what a step left is not enough to go on from.
func fault(stage Stage, t caisson.Task, last caisson.TaskStep) string {
	switch {
	case last.State != caisson.RunSucceeded:
		return fmt.Sprintf("run %s of %s %s", last.Run, last.Stage, last.State)
	case Role(last.Role) != stage.Role:
		return fmt.Sprintf("run %s of %s was its %s, and the workflow wants its %s", last.Run, last.Stage, last.Role, stage.Role)
	case stage.Artifact != "" && !stage.HandedIn(t, last):
		return fmt.Sprintf("run %s of %s handed in no %s", last.Run, last.Stage, stage.Artifact)
	case stage.Role != Reviewer:
		return ""
	case wrote(t, last.Run):
		return fmt.Sprintf("run %s reviewed what it had written", last.Run)
	case last.Before != last.After:
		return fmt.Sprintf("run %s changed the tree that it reviewed", last.Run)
	case last.Result != approve && last.Result != changes:
		return fmt.Sprintf("run %s of %s gave no verdict", last.Run, last.Stage)
	}
	return ""
}

// wrote tells whether a run was any step's executor.
func wrote(t caisson.Task, run caisson.RunID) bool {
	return slices.ContainsFunc(t.Steps, func(s caisson.TaskStep) bool { return s.Run == run && Role(s.Role) != Reviewer })
}

// HandedIn tells whether a step of the stage has the artifact that it is to
// produce: its run handed it in, or somebody did after it had ended.
func (s Stage) HandedIn(t caisson.Task, step caisson.TaskStep) bool {
	return slices.ContainsFunc(t.Artifacts, func(a caisson.TaskArtifacts) bool {
		return a.Name == s.Artifact && (a.By == string(step.Run) || (!step.Ended.IsZero() && !a.At.Before(step.Ended)))
	})
}

// begin is the step to a target, if nothing is in its way.
func begin(w Workflow, t caisson.Task, facts Facts, target, why string) Step {
	if target == stop {
		return paused("%s, and the workflow ends there", why).by(t, "decide %s retry")
	}
	if target == done || w.delivers(target) {
		if step, ok := reviewed(w, t, facts); !ok {
			return step
		}
	}
	if target == done {
		return Step{Kind: Done, Tree: facts.Tree, Why: "the tree was reviewed and approved"}
	}
	return stepTo(w, t, target, why)
}

func stepTo(w Workflow, t caisson.Task, target, why string) Step {
	stage, ok := w.Stage(target)
	if !ok {
		return paused("the workflow %s has no stage %s", w.Name, target).by(t, "cancel %s")
	}
	for _, need := range stage.Needs {
		if !slices.ContainsFunc(t.Artifacts, func(a caisson.TaskArtifacts) bool { return a.Name == need }) {
			return paused("%s needs the artifact %s, and there is none", target, need).by(t, "artifact %s "+need+" FILE")
		}
	}
	if len(t.Steps) >= caisson.TaskSteps {
		return paused("it has had %d steps, as many as a task may", len(t.Steps)).by(t, "new TITLE")
	}
	return Step{Kind: Begin, Stage: stage.Name, Role: stage.Role, N: len(t.Steps) + 1, Why: why}
}

// reviewed tells whether the tree that is there is the one that the last review
// approved, and no finding of weight is open. Where it is not, step is what
// comes instead: where a person accepted the tree, its review.
func reviewed(w Workflow, t caisson.Task, facts Facts) (step Step, ok bool) {
	for _, f := range t.Findings {
		if f.State == caisson.FindingOpen && f.Severity != caisson.Minor {
			return paused("finding %d (%s) is open", f.N, f.Severity).by(t, "decide %s retry", fmt.Sprintf("finding %%s --fixed %d", f.N), fmt.Sprintf("waive %%s --finding %d --reason TEXT", f.N)), false
		}
	}
	at := -1
	for i, s := range t.Steps {
		if Role(s.Role) == Reviewer {
			at = i
		}
	}
	if at < 0 {
		return paused("nothing was reviewed").by(t, "decide %s retry"), false
	}
	review := t.Steps[at]
	stage, known := w.Stage(review.Stage)
	switch {
	case !known || stage.Role != Reviewer:
		return paused("the workflow %s has no review %s, which was the last", w.Name, review.Stage).by(t, "cancel %s"), false
	case review.State != caisson.RunSucceeded || review.Result != approve || review.Before != review.After || wrote(t, review.Run):
		return paused("the last review, run %s, did not approve", review.Run).by(t, "decide %s retry"), false
	}
	same := facts.Tree == review.After
	for _, s := range t.Steps[at+1:] {
		same = same && s.Before == review.After && s.After == review.After
	}
	if same {
		return Step{}, true
	}
	if decided(t, t.Steps[len(t.Steps)-1], acceptTree, facts.Tree) {
		return stepTo(w, t, review.Stage, "the tree is not the one that was reviewed, and a person accepted it"), false
	}
	return paused("the tree is not the one that %s (run %s) approved", review.Stage, review.Run).by(t, "decide %s accept-tree"), false
}
