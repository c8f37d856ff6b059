package task

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
)

// VerbOptions are what the verbs of one sandbox act on.
type VerbOptions struct {
	Ledger     caisson.Ledger
	Work       Work
	Repository string         // tasks of others are not found
	Task       caisson.TaskID // that the sandbox is bound to; "" where it is to none
	// Tree returns the digest of the tree in a task's workspace, "" where it has
	// none; nil where nobody can tell.
	Tree     func(ctx context.Context, t caisson.Task) (string, error)
	Workflow Workflows
}

// Verbs returns the verbs by which a sandbox creates tasks and changes them. The
// whole effect of each is an edit in the transaction that settles its call. They
// act on the sandbox's own task unless one is named, in the name of the run
// that asks: any may be looked at, and changed those that this run has created.
// What only a person may do is in none of them.
func Verbs(o VerbOptions) []caisson.Tool {
	s := &sandbox{o}
	verbs := []caisson.Tool{
		&verb[createInput]{s, "task.create", "Create a task: a piece of work for later, or for another. With the key of an earlier one it returns that one.", createSchema, checkCreate, create},
		&verb[noteInput]{s, "task.note", "Add a note to the task's history.", noteSchema, nil, note},
		&verb[findingInput]{s, "task.finding", "Record something that a review found (severity and text), or say that a finding (n) is fixed or open again (state).", findingSchema, checkFinding, finding},
		&verb[artifactInput]{s, "task.artifact", "Hand in a text that a stage is to produce. A review gives its verdict with it.", artifactSchema, nil, artifact},
		&verb[criteriaInput]{s, "task.criteria", "Mark acceptance criteria as met, or as not met.", criteriaSchema, nil, criteriaMark},
		&verb[moveInput]{s, "task.block", "Say that something is in the way of the task, and what.", blockSchema, nil, move(Block)},
		&verb[moveInput]{s, "task.activate", "Take up a task that was blocked.", moveSchema, nil, move(Activate)},
		&verb[moveInput]{s, "task.cancel", "Give up a task that is no longer wanted.", moveSchema, nil, move(Cancel)},
		&verb[moveInput]{s, "task.complete", "Complete a task. What is missing for that is told.", moveSchema, nil, move(Complete)},
		&verb[moveInput]{s, "task.restore", "Take up a task again that was completed or cancelled.", moveSchema, nil, move(Restore)},
		&verb[nextInput]{s, "task.next", "Tell what the task's workflow wants now, and what is missing for the task to be complete.", nextSchema, nil, next},
	}
	return verbs
}

// sandbox is what the verbs of one sandbox share.
type sandbox struct{ o VerbOptions }

// verb is one of them. do only reads; what it returns is done by the ledger.
type verb[In any] struct {
	s       *sandbox
	name    string
	says    string
	schema  string
	check   func(In) error
	prepare func(ctx context.Context, s *sandbox, call caisson.Call, by By, in In) (caisson.Result, error)
}

// Spec implements caisson.Tool.
func (v *verb[In]) Spec() caisson.ToolSpec {
	effect := caisson.EffectIdempotent
	if v.name == "task.next" {
		effect = caisson.EffectRead
	}
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: v.name}, Description: v.says, Schema: json.RawMessage(v.schema),
		Effect: effect, Reach: caisson.ReachLedger, Timeout: time.Minute,
	}
}

// Facets implements caisson.Tool: a verb uses no file and runs nothing.
func (v *verb[In]) Facets(input json.RawMessage) (caisson.Facets, error) {
	var in In
	if err := json.Unmarshal(input, &in); err != nil {
		return caisson.Facets{}, fmt.Errorf("read input: %w", err)
	}
	if v.check == nil {
		return caisson.Facets{}, nil
	}
	return caisson.Facets{}, v.check(in)
}

// Hold implements caisson.Tool.
func (v *verb[In]) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	var in In
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "%s: %w", v.name, err)
	}
	by := Run(call.Run, v.s.o.Ledger.Now())
	return &asked{func(ctx context.Context) (caisson.Result, error) { return v.prepare(ctx, v.s, call, by, in) }}, nil
}

// asked is one verb about to be done.
type asked struct {
	prepare func(ctx context.Context) (caisson.Result, error)
}

// Identity implements caisson.Executor: nothing of it outlives this process.
func (*asked) Identity() *caisson.ProcessIdentity { return nil }

// Open implements caisson.Executor.
func (a *asked) Open(ctx context.Context) (caisson.Result, error) { return a.prepare(ctx) }

// Drop implements caisson.Executor.
func (*asked) Drop() {}

// task returns the task that is named, or else the sandbox's own.
func (s *sandbox) task(ctx context.Context, named caisson.TaskID) (caisson.Task, error) {
	id := named
	if id == "" {
		id = s.o.Task
	}
	if id == "" {
		return caisson.Task{}, caisson.Errorf(caisson.CodeCallInvalid, "this sandbox has no task of its own").WithHint("Name one.")
	}
	t, err := s.o.Ledger.Task(ctx, id)
	if err != nil {
		return t, err
	}
	if t.Repository != s.o.Repository {
		return caisson.Task{}, caisson.Errorf(caisson.CodeNotFound, "there is no task %q", id)
	}
	return t, nil
}

// own returns the task that is named, or else the sandbox's own, to be changed by
// a run. What others work on is theirs and the person's: a move ends runs, and a
// finding or an artifact leads who comes next.
func (s *sandbox) own(ctx context.Context, named caisson.TaskID, by By) (caisson.Task, error) {
	t, err := s.task(ctx, named)
	if err != nil {
		return t, err
	}
	if t.ID != s.o.Task && t.CreatedBy != by.Name {
		return caisson.Task{}, caisson.Errorf(caisson.CodeRefused, "task %s is not this sandbox's own, and was not created by it", t.ID).
			WithHint("Ask the person you work for.")
	}
	return t, nil
}

// MostKept is what the verbs of one tree of runs may have the record keep of tasks,
// in bytes. Each version of a task is kept as a whole, and a request of a few bytes,
// repeated, has half a megabyte kept again each time.
const MostKept = 256 << 20

// edit is a result whose effect is an edit.
func (s *sandbox) edit(e caisson.TaskEdit, says string) caisson.Result {
	e.Most = MostKept
	return caisson.Result{Edit: &caisson.LedgerEdit{Task: &e, Result: func(t caisson.Task) caisson.Result { return told(t, says) }}}
}

// told tells what a task is now.
func told(t caisson.Task, says string) caisson.Result {
	text := fmt.Sprintf("Task %s, %s: %s.", t.ID, t.Branch, says)
	raw, err := json.Marshal(map[string]any{"task": t.ID, "branch": t.Branch, "state": t.State, "stage": t.Stage, "version": t.Version})
	if err != nil { // strings and a number always marshal
		panic(err)
	}
	return caisson.Result{Text: text, Summary: fmt.Sprintf("%s %s", t.ID, says), Data: raw}
}

func move(m Move) func(context.Context, *sandbox, caisson.Call, By, moveInput) (caisson.Result, error) {
	return func(ctx context.Context, s *sandbox, _ caisson.Call, by By, in moveInput) (caisson.Result, error) {
		t, err := s.own(ctx, in.Task, by)
		if err != nil {
			return caisson.Result{}, err
		}
		w := Wanted{Move: m, By: by, Text: in.Reason}
		if m == Complete && !Over(t.State) {
			if w.Work, err = Look(ctx, s.o.Work, t); err != nil {
				return caisson.Result{}, err
			}
		}
		return s.edit(MoveTo(t.ID, w), m.done()), nil
	}
}
