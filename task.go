package caisson

import (
	"slices"
	"time"
)

// TaskType says what kind of work a task is. A branch begins with it.
type TaskType string

// Types of task.
const (
	TaskFeature  TaskType = "feature"
	TaskBugfix   TaskType = "bugfix"
	TaskRefactor TaskType = "refactor"
	TaskDocs     TaskType = "docs"
	TaskChore    TaskType = "chore"
)

// TaskTypes returns all types.
func TaskTypes() []TaskType {
	return []TaskType{TaskFeature, TaskBugfix, TaskRefactor, TaskDocs, TaskChore}
}

// Bounds of a task.
const (
	TaskTitle       = 100     // characters
	TaskDescription = 8 << 10 // bytes
	TaskItems       = 50      // facts, constraints, acceptance criteria: of each
	TaskItem        = 2 << 10 // bytes of one
	TaskArtifact    = 1 << 20 // bytes of one
	TaskSteps       = 24      // of its workflow
)

// Task is a piece of work wanted.
type Task struct {
	ID          TaskID          `json:"id"`
	Key         string          `json:"key"` // the UUID that creating it is idempotent by
	Repository  string          `json:"repository"`
	Title       string          `json:"title"`
	Type        TaskType        `json:"type"`
	Branch      string          `json:"branch"` // <type>/<slug>, unique among those that are not over
	Base        string          `json:"base,omitempty"`
	State       TaskState       `json:"state"`
	Reason      string          `json:"reason,omitempty"` // of the last move, as given
	Priority    int             `json:"priority"`         // 1 is first, 3 usual, 5 last
	Description string          `json:"description,omitempty"`
	Facts       []string        `json:"facts,omitempty"`
	Constraints []string        `json:"constraints,omitempty"`
	Criteria    []TaskCriterion `json:"criteria,omitempty"` // of acceptance
	CreatedBy   string          `json:"created_by"`         // a person, or a run's id
	ByRun       bool            `json:"by_run,omitempty"`   // a run created it
	Source      string          `json:"source,omitempty"`   // reference of an issue elsewhere
	Workspace   WorkspaceID     `json:"workspace,omitempty"`
	Workflow    string          `json:"workflow,omitempty"`
	Stage       string          `json:"stage,omitempty"`
	Steps       []TaskStep      `json:"steps,omitempty"` // of its workflow, in order
	Artifacts   []TaskArtifacts `json:"artifacts,omitempty"`
	Findings    []TaskFinding   `json:"findings,omitempty"`
	Decisions   []TaskDecision  `json:"decisions,omitempty"`
	Notes       int             `json:"notes,omitempty"` // in its history, which has their text
	// Moving is a move whose steps outside the ledger are not all done. Until
	// they are, another move is refused.
	Moving  *TaskMoving `json:"moving,omitempty"`
	Created time.Time   `json:"created"`
	Updated time.Time   `json:"updated"`
	Version int64       `json:"version"` // rises by one with each write
}

// Clone returns a task that shares no list with t. A list that has nothing in it
// is nil, as one is that was read from the record.
func (t Task) Clone() Task {
	t.Facts, t.Constraints, t.Criteria = listOf(t.Facts), listOf(t.Constraints), listOf(t.Criteria)
	t.Steps, t.Artifacts = listOf(t.Steps), listOf(t.Artifacts)
	t.Findings, t.Decisions = listOf(t.Findings), listOf(t.Decisions)
	if t.Moving != nil {
		moving := *t.Moving
		t.Moving = &moving
	}
	return t
}

func listOf[E any](list []E) []E {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}

// TaskCriterion is one thing that must hold for a task to be complete.
type TaskCriterion struct {
	Text string `json:"text"`
	Met  bool   `json:"met"`
	By   string `json:"by,omitempty"`
}

// TaskStep is one run of a stage.
type TaskStep struct {
	Stage  string    `json:"stage"`
	Role   string    `json:"role"`
	Run    RunID     `json:"run"`
	Before string    `json:"before"`          // tree that it began with
	After  string    `json:"after,omitempty"` // tree that it left; empty: it has not ended
	State  RunState  `json:"state"`
	Result string    `json:"result,omitempty"` // verdict of a review: approve, changes
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended,omitzero"`
}

// TaskArtifacts is one round of an artifact: a text that a stage produced.
type TaskArtifacts struct {
	Name   string    `json:"name"`
	Round  int       `json:"round"` // from 1
	Digest Digest    `json:"digest"`
	Bytes  int       `json:"bytes"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Severity of a finding.
type Severity string

// Severities.
const (
	Blocker Severity = "blocker"
	Major   Severity = "major"
	Minor   Severity = "minor"
)

// FindingState is the state of a finding.
type FindingState string

// States of a finding.
const (
	FindingOpen   FindingState = "open"
	FindingFixed  FindingState = "fixed"
	FindingWaived FindingState = "waived" // by a person
)

// TaskFinding is something that a review found.
type TaskFinding struct {
	N        int          `json:"n"` // from 1
	Severity Severity     `json:"severity"`
	Text     string       `json:"text"`
	State    FindingState `json:"state"`
	By       string       `json:"by"`
	At       time.Time    `json:"at"`
	Reason   string       `json:"reason,omitempty"` // why it is fixed or waived
}

// TaskDecision is something that a person decided.
type TaskDecision struct {
	What string    `json:"what"` // waive-merge, waive-criteria, step-in, …
	Text string    `json:"text,omitempty"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
}

// TaskMoving is a move under way.
type TaskMoving struct {
	To   TaskState `json:"to"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Text string    `json:"text,omitempty"`
}

// TaskActivity is one entry of a task's history, which only grows.
type TaskActivity struct {
	N    int64     `json:"n"` // from 1
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Kind string    `json:"kind"` // created, moved, noted, artifact, finding, decision, step
	Text string    `json:"text"`
}

// TaskEdit is one change of one task, done in the transaction that records it.
type TaskEdit struct {
	// ID is the task; empty makes a new one, unless there is one with Key.
	ID  TaskID
	Key string
	// Change is given the task as it is, or for a new one only its ID, Key,
	// Created and State active, and changes it. It is pure and quick, and may
	// be called more than once. An error, which should be a *Error, ends the
	// transaction and changes nothing. Where it changes nothing the write is
	// none either, and no activity is added. For a key that is in use it is
	// called on an empty task, and what it makes must have the content of the
	// first (CodeTaskConflict); the first is returned then.
	Change func(*Task) error
	// New is what a task is held against that is made by this edit.
	New TaskNew
	// Activity is what the history says of it. N and At are given by the ledger.
	Activity TaskActivity
	// Content is kept by its digest, which Change puts into an artifact.
	Content []byte
	// Most bounds, where it is above 0, what the edits by calls of one tree of runs
	// may have the record keep, in bytes: see [Pool]. CodeBudgetExceeded for the one
	// that goes beyond it. An edit that is no call's is not counted.
	Most int64
}

// TaskNew is what a new task is held against, in the transaction that makes it:
// what others have made is seen, and nobody comes between. Where the key is in use
// nothing is made, and of these only Free counts.
type TaskNew struct {
	// Free gives it the first branch that is no other's who is not over: the one
	// that Change names, or that with "-2", "-3", … at its end. For a key that is in
	// use each of them is the same content.
	Free bool
	// Unworked refuses a branch that has a workspace in the task's repository
	// (CodeBranchExists).
	Unworked bool
	// Unfit refuses the task, and is the error: something that it names is not there.
	// It was looked for before the transaction. Nil: nothing is wrong with it.
	Unfit error
	// Most refuses a task whose creator has made that many (CodeRefused); 0: any number.
	Most int
}

// TaskFilter chooses tasks. Newest first.
type TaskFilter struct {
	IDs        []TaskID
	Repository string
	States     []TaskState
	// Work chooses those whose work is done in a workspace; with Repository. Nil: all.
	Work *TaskWork
	// Moving chooses those with a move under way.
	Moving bool
	Limit  int // 0: all
}

// TaskWork is where tasks are worked on. Chosen is a task whose workspace is one of
// these, or whose branch is. Those that fit are found without reading others.
type TaskWork struct {
	Workspaces []WorkspaceID
	Branches   []string
}
