package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task/flow"
)

// The bounds of the schemas are in characters, as JSON Schema has it; those in
// bytes are the edits' own.
const (
	taskField   = `"task": {"type": "string", "pattern": "^T[0-9a-hjkmnp-tv-z]{6,16}$", "description": "Id of another task than the sandbox's own."}`
	textField   = `{"type": "string", "minLength": 1, "maxLength": 2048}`
	listField   = `{"type": "array", "maxItems": 50, "items": ` + textField + `}`
	moveSchema  = `{"type": "object", "properties": {` + taskField + `, "reason": ` + textField + `}, "additionalProperties": false}`
	blockSchema = `{"type": "object", "properties": {` + taskField + `, "reason": ` + textField + `}, "required": ["reason"], "additionalProperties": false}`
	nextSchema  = `{"type": "object", "properties": {` + taskField + `}, "additionalProperties": false}`
	noteSchema  = `{"type": "object", "properties": {` + taskField + `, "text": {"type": "string", "minLength": 1, "maxLength": 8192}}, "required": ["text"], "additionalProperties": false}`

	createSchema = `{"type": "object", "properties": {
		"key": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "description": "UUID: the same key is the same task."},
		"title": {"type": "string", "minLength": 1, "maxLength": 100},
		"type": {"type": "string", "enum": ["feature", "bugfix", "refactor", "docs", "chore"]},
		"branch": {"type": "string", "maxLength": 100, "description": "<type>/<words-joined-by-hyphens>; made from the title where there is none."},
		"base": {"type": "string", "maxLength": 255, "description": "Branch or commit to start from."},
		"priority": {"type": "integer", "minimum": 1, "maximum": 5, "description": "1 is first, 3 usual."},
		"description": {"type": "string", "maxLength": 8192},
		"facts": ` + listField + `, "constraints": ` + listField + `, "criteria": ` + listField + `,
		"source": {"type": "string", "maxLength": 200, "description": "Reference of an issue elsewhere."},
		"workflow": {"type": "string", "maxLength": 40}
	}, "required": ["title", "type"], "additionalProperties": false}`

	findingSchema = `{"type": "object", "properties": {` + taskField + `,
		"severity": {"type": "string", "enum": ["blocker", "major", "minor"]},
		"text": ` + textField + `,
		"n": {"type": "integer", "minimum": 1, "maximum": 200, "description": "Number of a finding that is on record."},
		"state": {"type": "string", "enum": ["open", "fixed"]},
		"reason": ` + textField + `
	}, "additionalProperties": false}`

	artifactSchema = `{"type": "object", "properties": {` + taskField + `,
		"name": {"type": "string", "pattern": "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "maxLength": 40},
		"content": {"type": "string", "minLength": 1, "maxLength": 60000, "description": "Text, usually Markdown."},
		"verdict": {"type": "string", "enum": ["approve", "changes"], "description": "Of a review; only its own run gives it."}
	}, "required": ["name", "content"], "additionalProperties": false}`

	criteriaSchema = `{"type": "object", "properties": {` + taskField + `,
		"n": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Number of the criterion, from 1."},
		"met": {"type": "boolean", "default": true}
	}, "required": ["n"], "additionalProperties": false}`
)

type (
	createInput struct {
		Key         string           `json:"key"`
		Title       string           `json:"title"`
		Type        caisson.TaskType `json:"type"`
		Branch      string           `json:"branch"`
		Base        string           `json:"base"`
		Priority    int              `json:"priority"`
		Description string           `json:"description"`
		Facts       []string         `json:"facts"`
		Constraints []string         `json:"constraints"`
		Criteria    []string         `json:"criteria"`
		Source      string           `json:"source"`
		Workflow    string           `json:"workflow"`
	}
	moveInput struct {
		Task   caisson.TaskID `json:"task"`
		Reason string         `json:"reason"`
	}
	nextInput struct {
		Task caisson.TaskID `json:"task"`
	}
	noteInput struct {
		Task caisson.TaskID `json:"task"`
		Text string         `json:"text"`
	}
	findingInput struct {
		Task     caisson.TaskID       `json:"task"`
		Severity caisson.Severity     `json:"severity"`
		Text     string               `json:"text"`
		N        int                  `json:"n"`
		State    caisson.FindingState `json:"state"`
		Reason   string               `json:"reason"`
	}
	artifactInput struct {
		Task    caisson.TaskID `json:"task"`
		Name    string         `json:"name"`
		Content string         `json:"content"`
		Verdict string         `json:"verdict"`
	}
	criteriaInput struct {
		Task caisson.TaskID `json:"task"`
		N    int            `json:"n"`
		Met  *bool          `json:"met"`
	}
)

// draft is the task that is asked for. Where no key is given it is the call's:
// doing the same call again is no other task.
func (in createInput) draft(repository string, call caisson.CallID) Draft {
	key := in.Key
	if key == "" {
		key = KeyOf(string(call))
	}
	return Draft{
		Key: key, Repository: repository, Title: in.Title, Type: in.Type, Branch: in.Branch, Base: in.Base, Priority: in.Priority,
		Description: in.Description, Facts: in.Facts, Constraints: in.Constraints, Criteria: in.Criteria, Source: in.Source, Workflow: in.Workflow,
	}
}

func checkCreate(in createInput) error { return in.draft("", "").Check() }

// maxCreated bounds the tasks that one run creates: each is kept, and more are
// nothing that a person would look at.
const maxCreated = 100

// create makes no task of somebody's workspace, which the ledger looks at when it
// makes it.
func create(ctx context.Context, s *sandbox, call caisson.Call, by By, in createInput) (caisson.Result, error) {
	made := known(ctx, s.o.Workflow, Create(in.draft(s.o.Repository, call.ID), by))
	made.New.Unworked, made.New.Most = true, maxCreated
	return s.edit(made, "created"), nil
}

func note(ctx context.Context, s *sandbox, _ caisson.Call, by By, in noteInput) (caisson.Result, error) {
	t, err := s.own(ctx, in.Task, by)
	if err != nil {
		return caisson.Result{}, err
	}
	return s.edit(Note(t.ID, by, in.Text), "noted"), nil
}

func checkFinding(in findingInput) error {
	reports := in.Severity != "" && in.Text != "" && in.N == 0 && in.State == "" && in.Reason == ""
	judges := in.Severity == "" && in.Text == "" && in.N > 0 && in.State != ""
	if reports || judges {
		return nil
	}
	return caisson.Errorf(caisson.CodeCallInvalid, "give severity and text of a new finding, or n and state of one on record")
}

func finding(ctx context.Context, s *sandbox, _ caisson.Call, by By, in findingInput) (caisson.Result, error) {
	t, err := s.own(ctx, in.Task, by)
	if err != nil {
		return caisson.Result{}, err
	}
	if in.N > 0 {
		return s.edit(Judge(t.ID, by, in.N, in.State, in.Reason), fmt.Sprintf("finding %d is %s", in.N, in.State)), nil
	}
	result := s.edit(Report(t.ID, by, in.Severity, in.Text), "finding recorded")
	result.Edit.Result = func(t caisson.Task) caisson.Result {
		return told(t, fmt.Sprintf("finding %d recorded", len(t.Findings)))
	}
	return result, nil
}

func artifact(ctx context.Context, s *sandbox, _ caisson.Call, by By, in artifactInput) (caisson.Result, error) {
	t, err := s.own(ctx, in.Task, by)
	if err != nil {
		return caisson.Result{}, err
	}
	says := "artifact " + in.Name + " handed in"
	if in.Verdict != "" {
		says += ", verdict " + in.Verdict
	}
	return s.edit(Put(t.ID, by, Artifact{Name: in.Name, Content: []byte(in.Content), Verdict: in.Verdict}), says), nil
}

func criteriaMark(ctx context.Context, s *sandbox, _ caisson.Call, by By, in criteriaInput) (caisson.Result, error) {
	t, err := s.own(ctx, in.Task, by)
	if err != nil {
		return caisson.Result{}, err
	}
	met := in.Met == nil || *in.Met
	return s.edit(Mark(t.ID, by, in.N, met), fmt.Sprintf("criterion %d marked", in.N)), nil
}

// Prospect is what is next for a task.
type Prospect struct {
	Task caisson.TaskID `json:"task"`
	flow.Step
	Missing []string `json:"missing"` // for it to be complete
}

func next(ctx context.Context, s *sandbox, _ caisson.Call, by By, in nextInput) (caisson.Result, error) {
	t, err := s.task(ctx, in.Task)
	if err != nil {
		return caisson.Result{}, err
	}
	w, err := s.o.Workflow(ctx, t)
	if err != nil {
		return caisson.Result{}, err
	}
	var facts flow.Facts
	if s.o.Tree != nil {
		if facts.Tree, err = s.o.Tree(ctx, t); err != nil {
			return caisson.Result{}, err
		}
	}
	standing, err := Look(ctx, s.o.Work, t)
	if err != nil {
		return caisson.Result{}, err
	}
	p := Prospect{t.ID, flow.Next(w, t, facts), append([]string{}, Missing(t, standing)...)} // a list, also where nothing is
	text := p.Says()
	if p.Kind == flow.Running && string(p.Run) == by.Name {
		text = yours(w, t, p)
	}
	raw, err := json.Marshal(p)
	return caisson.Result{Text: text, Summary: string(p.Kind), Data: raw}, err
}

// yours tells a run what is still wanted of it.
func yours(w flow.Workflow, t caisson.Task, p Prospect) string {
	stage, ok := w.Stage(p.Stage)
	if !ok {
		return p.Says()
	}
	says := []string{fmt.Sprintf("You are stage %s of task %s, as %s.", stage.Name, t.ID, stage.Role)}
	if stage.Artifact != "" && !stage.HandedIn(t, t.Steps[len(t.Steps)-1]) {
		says = append(says, fmt.Sprintf("Your artifact %s is not handed in (task.artifact).", stage.Artifact))
	}
	if stage.Role == flow.Reviewer && t.Steps[len(t.Steps)-1].Result == "" {
		says = append(says, "Your verdict, approve or changes, is not given (task.artifact).")
	}
	if len(says) == 1 {
		says = append(says, "Nothing more is wanted of you.")
	}
	return strings.Join(says, "\n")
}
