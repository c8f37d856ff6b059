// Package flow reads workflows and says what comes next in one.
//
// A workflow is data: stages, each a run by an executor or a reviewer, and what
// follows. It is read strictly, and one in which something could be delivered
// that nobody reviewed is not a workflow. What comes next is a pure function of
// what is recorded of a task; this package does no I/O.
//
// Not promised: that a reviewer is right.
package flow

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/strictyaml"
)

// Role is who does a stage. Which agent and model that is, the settings say.
type Role string

// Roles.
const (
	Executor Role = "executor"
	Reviewer Role = "reviewer" // changes nothing, and gives a verdict
)

// Bounds of a workflow.
const (
	MaxStages = 16
	MaxPrompt = 16 << 10 // bytes of one template
	maxName   = 40
)

// What a stage can lead to beside a stage.
const (
	done = "done" // the reviewed tree is delivered
	stop = "stop" // the workflow ends, and a person goes on
)

// Workflow is how a kind of task is done.
type Workflow struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Stages      []Stage `json:"stages"` // the first is begun with
}

// Stage is one kind of run in a workflow.
type Stage struct {
	Name     string            `json:"name"`
	Role     Role              `json:"role"`
	Prompt   string            `json:"prompt"`             // a template of [Prompt]
	Artifact string            `json:"artifact,omitempty"` // that it produces
	Needs    []string          `json:"needs,omitempty"`    // artifacts that must be there
	Next     string            `json:"next,omitempty"`     // of an executor: a stage, done or stop
	Verdicts map[string]string `json:"verdicts,omitempty"` // of a reviewer: the same, by its verdict

	line int
}

// Stage returns the stage of a name.
func (w Workflow) Stage(name string) (Stage, bool) {
	i := slices.IndexFunc(w.Stages, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		return Stage{}, false
	}
	return w.Stages[i], true
}

// targets are all that a stage can lead to.
func (s Stage) targets() []string {
	if s.Role == Reviewer {
		return []string{s.Verdicts[approve], s.Verdicts[changes]}
	}
	return []string{s.Next}
}

// delivers tells whether a stage leads to done with no review after it.
func (w Workflow) delivers(name string) bool {
	for range w.Stages {
		s, ok := w.Stage(name)
		if !ok || s.Role == Reviewer {
			return false
		}
		if s.Next == done {
			return true
		}
		name = s.Next
	}
	return false // a circle of executors, which the rules refuse
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Load reads a workflow file. What is not right is CodeWorkflowInvalid, which
// names file, line and rule (details "file" and "line").
func Load(file string, raw []byte) (Workflow, error) {
	w, err := read(file, raw)
	if err == nil {
		return w, nil
	}
	var at *strictyaml.Error
	if !errors.As(err, &at) {
		return Workflow{}, fmt.Errorf("read workflow: %w", err)
	}
	return Workflow{}, caisson.Errorf(caisson.CodeWorkflowInvalid, "%w", err).With("file", at.File).With("line", at.Line)
}

func read(file string, raw []byte) (Workflow, error) {
	var w Workflow
	root, err := strictyaml.Parse(file, raw)
	if err != nil {
		return w, err
	}
	fields, err := root.Fields("name", "description", "stages")
	if err != nil {
		return w, err
	}
	for _, f := range fields {
		switch f.Name {
		case "name":
			w.Name, err = name(f.Value)
		case "description":
			w.Description, err = f.Value.String()
		case "stages":
			w.Stages, err = stages(f.Value)
		}
		if err != nil {
			return w, err
		}
	}
	if w.Name == "" {
		return w, root.Errorf("it has no name")
	}
	if len(w.Stages) == 0 {
		return w, root.Errorf("it has no stages")
	}
	return w, w.rules(file)
}

func name(v strictyaml.Value) (string, error) {
	s, err := v.String()
	if err == nil && (len(s) > maxName || !nameForm.MatchString(s)) {
		err = v.Errorf("%q is not lower-case words joined by \"-\", of at most %d characters", s, maxName)
	}
	return s, err
}

func stages(v strictyaml.Value) ([]Stage, error) {
	items, err := v.List()
	if err != nil {
		return nil, err
	}
	if len(items) > MaxStages {
		return nil, v.Errorf("%d stages; at most %d", len(items), MaxStages)
	}
	var all []Stage
	for _, item := range items {
		s, err := stage(item)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o Stage) bool { return o.Name == s.Name }) {
			return nil, item.Errorf("a second stage %q", s.Name)
		}
		all = append(all, s)
	}
	return all, nil
}

func stage(v strictyaml.Value) (Stage, error) {
	s := Stage{line: v.Line()}
	fields, err := v.Fields("name", "role", "prompt", "artifact", "needs", "next")
	if err != nil {
		return s, err
	}
	given := map[string]bool{}
	for _, f := range fields {
		given[f.Name] = true
		if err := s.read(f); err != nil {
			return s, err
		}
	}
	for _, needed := range []string{"name", "role", "prompt", "next"} {
		if !given[needed] {
			return s, v.Errorf("it has no %s", needed)
		}
	}
	switch {
	case s.Name == done || s.Name == stop:
		return s, v.Errorf("a stage cannot be called %q", s.Name)
	case s.Role == Reviewer && s.Verdicts == nil:
		return s, v.Errorf("next of a reviewer is a mapping of %s and %s", approve, changes)
	case s.Role == Executor && s.Verdicts != nil:
		return s, v.Errorf("next of an executor is one name: only a reviewer gives a verdict")
	}
	return s, nil
}

func (s *Stage) read(f strictyaml.Field) (err error) {
	switch f.Name {
	case "name":
		s.Name, err = name(f.Value)
	case "role":
		var role string
		role, err = f.Value.String()
		s.Role = Role(role)
		if err == nil && s.Role != Executor && s.Role != Reviewer {
			err = f.Value.Errorf("%q is neither %s nor %s", role, Executor, Reviewer)
		}
	case "prompt":
		s.Prompt, err = prompt(f.Value)
	case "artifact":
		s.Artifact, err = name(f.Value)
	case "needs":
		s.Needs, err = names(f.Value)
	case "next":
		err = s.readNext(f.Value)
	}
	return err
}

func names(v strictyaml.Value) ([]string, error) {
	items, err := v.Items()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, item := range items {
		s, err := name(item)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (s *Stage) readNext(v strictyaml.Value) (err error) {
	if !v.IsMap() {
		s.Next, err = name(v)
		return err
	}
	fields, err := v.Fields(approve, changes)
	if err != nil {
		return err
	}
	s.Verdicts = map[string]string{}
	for _, f := range fields {
		if s.Verdicts[f.Name], err = name(f.Value); err != nil {
			return err
		}
	}
	for _, verdict := range []string{approve, changes} {
		if s.Verdicts[verdict] == "" {
			return v.Errorf("it does not say what follows %s", verdict)
		}
	}
	return nil
}

// rules refuses a workflow that does not hold together.
func (w Workflow) rules(file string) error {
	produced := map[string]bool{}
	for _, s := range w.Stages {
		produced[s.Artifact] = true
	}
	for _, s := range w.Stages {
		bad := func(format string, args ...any) error {
			return &strictyaml.Error{File: file, Line: s.line, Message: "stage " + s.Name + ": " + fmt.Sprintf(format, args...)}
		}
		for _, target := range s.targets() {
			if _, ok := w.Stage(target); !ok && target != done && target != stop {
				return bad("it leads to %q, which is no stage", target)
			}
		}
		for _, need := range s.Needs {
			if !produced[need] {
				return bad("it needs %q, which no stage produces", need)
			}
		}
		if s.Role == Reviewer && (s.Verdicts[changes] == done || w.delivers(s.Verdicts[changes])) {
			return bad("what was not approved is delivered")
		}
		if !w.ends(s.Name) {
			return bad("it never leads to %s or %s", done, stop)
		}
	}
	if first := w.Stages[0]; w.delivers(first.Name) {
		return &strictyaml.Error{File: file, Line: first.line, Message: "stage " + first.Name + ": it leads to " + done + " with no review"}
	}
	reached := w.from(w.Stages[0].Name)
	for _, s := range w.Stages {
		if !reached[s.Name] {
			return &strictyaml.Error{File: file, Line: s.line, Message: "stage " + s.Name + ": nothing leads to it"}
		}
	}
	return nil
}

// from are all that can be reached from a stage, itself too.
func (w Workflow) from(name string) map[string]bool {
	reached := map[string]bool{}
	todo := []string{name}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		if reached[at] {
			continue
		}
		reached[at] = true
		if s, ok := w.Stage(at); ok {
			todo = append(todo, s.targets()...)
		}
	}
	return reached
}

func (w Workflow) ends(name string) bool {
	reached := w.from(name)
	return reached[done] || reached[stop]
}

// String names the stages in order.
func (w Workflow) String() string {
	var all []string
	for _, s := range w.Stages {
		all = append(all, s.Name)
	}
	return w.Name + ": " + strings.Join(all, ", ")
}
