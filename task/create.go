package task

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task/flow"
)

// Usual is the priority of a task that names none; 1 is first, 5 last.
const Usual = 3

// Draft is a task to be created.
type Draft struct {
	Key         string // UUID in lower case: the same key is the same task
	Repository  string
	Title       string
	Type        caisson.TaskType
	Branch      string // empty: made from the title
	Base        string
	Priority    int // 0: Usual
	Description string
	Facts       []string
	Constraints []string
	Criteria    []string
	Source      string
	Workflow    string // empty: by its type
}

// NewKey draws a key.
func NewKey() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails since Go 1.24: it crashes the program instead
	return keyOf(raw, 4)
}

// KeyOf derives a key: the same text always has the same one.
func KeyOf(text string) string {
	sum := caisson.DigestOf([]byte("caisson.task\x00" + text))
	var raw [16]byte
	_, _ = hex.Decode(raw[:], []byte(sum[:32])) // a digest is hexadecimal
	return keyOf(raw, 8)
}

// keyOf writes a UUID of a version (RFC 9562).
func keyOf(raw [16]byte, version byte) string {
	raw[6] = raw[6]&0x0f | version<<4
	raw[8] = raw[8]&0x3f | 0x80
	h := hex.EncodeToString(raw[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Check tells what is wrong with n, if anything is.
func (n Draft) Check() error {
	_, err := n.normal()
	return err
}

// normal returns n as it is kept, or what is wrong with it.
func (n Draft) normal() (Draft, error) {
	n.Title, n.Description, n.Source = tidy(n.Title), tidy(n.Description), tidy(n.Source)
	if n.Priority == 0 {
		n.Priority = Usual
	}
	if !keyForm.MatchString(n.Key) {
		return n, invalid("key", "is not a UUID in lower case")
	}
	if err := checkTitle(n.Title); err != nil {
		return n, err
	}
	if err := checkType(n.Type); err != nil {
		return n, err
	}
	if n.Priority < 1 || n.Priority > 5 {
		return n, invalid("priority", "%d is not from 1 (first) to 5 (last)", n.Priority)
	}
	if n.Workflow != "" && !ValidName(n.Workflow) {
		return n, invalid("workflow", "%q is no name of one", n.Workflow)
	}
	if n.Branch == "" {
		n.Branch = n.wish()
	}
	if err := checkBranch(n.Branch, n.Type); err != nil {
		return n, err
	}
	return n.texts()
}

func (n Draft) texts() (Draft, error) {
	if err := checkBase(n.Base); err != nil {
		return n, err
	}
	if err := checkText("description", n.Description, caisson.TaskDescription, true); err != nil {
		return n, err
	}
	if err := checkText("source", n.Source, MaxSource, false); err != nil {
		return n, err
	}
	var err error
	for _, list := range []struct {
		field string
		items *[]string
	}{{"facts", &n.Facts}, {"constraints", &n.Constraints}, {"criteria", &n.Criteria}} {
		if *list.items, err = checkItems(list.field, *list.items); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Workflows returns the workflow of a task: CodeNotFound where there is none of its
// name.
type Workflows func(ctx context.Context, t caisson.Task) (flow.Workflow, error)

// known has an edit that makes a task refused where the workflow that it names is
// nowhere. One that is there and is not right can be mended, and one of a base that
// is not there yet may come with it: both are told when the work is to begin.
func known(ctx context.Context, find Workflows, edit caisson.TaskEdit) caisson.TaskEdit {
	var t caisson.Task
	if find == nil || edit.Change(&t) != nil || t.Workflow == "" {
		return edit
	}
	if _, err := find(ctx, t); caisson.CodeOf(err) == caisson.CodeNotFound {
		edit.New.Unfit = err
	}
	return edit
}

// Create makes a task, on the branch that n names; where it names none, on the
// first that is free of <type>/<slug>, <type>/<slug>-2, …
func Create(n Draft, by By) caisson.TaskEdit {
	named := n.Branch != ""
	n, err := n.normal()
	return caisson.TaskEdit{
		Key: n.Key, New: caisson.TaskNew{Free: !named},
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			t.Key, t.Repository, t.Title, t.Type, t.Branch, t.Base = n.Key, n.Repository, n.Title, n.Type, n.Branch, n.Base
			t.State, t.Priority, t.Description = caisson.TaskActive, n.Priority, n.Description
			t.Facts, t.Constraints, t.Criteria = slices.Clone(n.Facts), slices.Clone(n.Constraints), nil
			for _, c := range n.Criteria {
				t.Criteria = append(t.Criteria, caisson.TaskCriterion{Text: c})
			}
			t.CreatedBy, t.ByRun, t.Source, t.Workflow = by.Name, !by.Person, n.Source, n.Workflow
			return nil
		},
		Activity: by.activity("created", n.Title),
	}
}
