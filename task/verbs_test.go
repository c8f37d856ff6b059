package task_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/task/flow"
)

// inside is a sandbox with its verbs.
type inside struct {
	w     *world
	verbs []caisson.Tool
	run   caisson.RunID
	tree  string
	calls int
}

func (w *world) inside(id caisson.TaskID) *inside {
	in := &inside{w: w, run: "rabc123", tree: "tree-1"}
	in.verbs = task.Verbs(task.VerbOptions{
		Ledger: w.ledger, Work: w, Repository: draft().Repository, Task: id,
		Tree: func(context.Context, caisson.Task) (string, error) { return in.tree, nil },
		Workflow: func(_ context.Context, t caisson.Task) (flow.Workflow, error) {
			all, err := flow.Shipped()
			i := slices.IndexFunc(all, func(w flow.Workflow) bool { return w.Name == flow.For(t) })
			return all[max(i, 0)], err
		},
	})
	return in
}

// opens does what a call does from its input to before its settle.
func (in *inside) opens(t *testing.T, name, input string) (caisson.Result, error) {
	t.Helper()
	i := slices.IndexFunc(in.verbs, func(v caisson.Tool) bool { return v.Spec().Ref.Name == name })
	if i < 0 {
		t.Fatalf("no verb %s", name)
	}
	v := in.verbs[i]
	s, err := schema.Compile(v.Spec().Schema)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := s.Prepare([]byte(input))
	if err != nil {
		return caisson.Result{}, err
	}
	if _, err := v.Facets(prepared.Input); err != nil {
		return caisson.Result{}, err
	}
	in.calls++
	call := caisson.Call{ID: caisson.NewCallID(in.run, 0, in.calls), Run: in.run, Tool: v.Spec().Ref, Input: prepared.Input}
	held, err := v.Hold(t.Context(), call, caisson.EffectIDOf(call.ID))
	if err != nil {
		return caisson.Result{}, err
	}
	if held.Identity() != nil {
		t.Errorf("%s leaves something behind", name)
	}
	return held.Open(t.Context())
}

// asks does what a call does from its input to its settle.
func (in *inside) asks(t *testing.T, name, input string) (caisson.Result, error) {
	t.Helper()
	result, err := in.opens(t, name, input)
	if err != nil || result.Edit == nil {
		return result, err
	}
	is, err := in.w.ledger.EditTask(t.Context(), *result.Edit.Task)
	if err != nil {
		return caisson.Result{}, err
	}
	return result.Edit.Result(is), nil
}

func (in *inside) does(t *testing.T, name, input string) caisson.Result {
	t.Helper()
	result, err := in.asks(t, name, input)
	if err != nil {
		t.Fatalf("%s %s: %v", name, input, err)
	}
	return result
}

func (in *inside) refused(t *testing.T, name, input string, code caisson.Code) {
	t.Helper()
	if result, err := in.asks(t, name, input); caisson.CodeOf(err) != code {
		t.Errorf("%s %s: %+v, %v (%s), want %s", name, input, result, err, caisson.CodeOf(err), code)
	}
}

func TestVerbs(t *testing.T) {
	w := newWorld(t)
	own, other := w.create(t, "One"), w.create(t, "Two")
	in := w.inside(own.ID)
	now := func(id caisson.TaskID) caisson.Task {
		t.Helper()
		is, err := w.ledger.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	in.does(t, "task.block", `{"reason":"No key."}`)
	if is := now(own.ID); is.State != caisson.TaskBlocked || is.Reason != "No key." {
		t.Errorf("%+v", is)
	}
	in.does(t, "task.activate", `{}`)
	in.does(t, "task.note", `{"text":"hm"}`)
	if r := in.does(t, "task.finding", `{"severity":"major","text":"It leaks."}`); !strings.Contains(r.Text, "finding 1 recorded") {
		t.Errorf("%+v", r)
	}
	in.does(t, "task.artifact", `{"name":"plan","content":"the plan"}`)
	in.does(t, "task.criteria", `{"n":1}`)
	in.does(t, "task.criteria", `{"n":2}`)
	in.does(t, "task.criteria", `{"n":2,"met":false}`)
	in.refused(t, "task.complete", `{}`, caisson.CodeTaskUnfinished)
	in.does(t, "task.criteria", `{"n":2,"met":true}`)
	in.does(t, "task.finding", `{"n":1,"state":"fixed","reason":"closed it"}`)
	w.merged = false
	in.refused(t, "task.complete", `{}`, caisson.CodeTaskUnfinished)
	w.merged = true
	if r := in.does(t, "task.complete", `{}`); r.Summary != string(own.ID)+" completed" {
		t.Errorf("%+v", r)
	}
	in.does(t, "task.complete", `{}`)
	in.refused(t, "task.restore", `{}`, caisson.CodeTaskConflict)
	if err := w.tasks.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	in.does(t, "task.restore", `{}`)
	for name, input := range map[string]string{
		"task.cancel": `{}`, "task.block": `{"reason":"x"}`, "task.complete": `{}`, "task.note": `{"text":"x"}`, "task.finding": `{"severity":"minor","text":"x"}`,
		"task.artifact": `{"name":"plan","content":"x"}`, "task.criteria": `{"n":1}`,
	} {
		in.refused(t, name, strings.ReplaceAll(strings.Replace(input, "{", `{"task":"`+string(other.ID)+`",`, 1), ",}", "}"), caisson.CodeRefused)
	}
	made, _, _ := strings.Cut(in.does(t, "task.create", `{"title":"Three","type":"chore"}`).Summary, " ")
	in.does(t, "task.cancel", `{"task":"`+made+`"}`)
	if is := now(caisson.TaskID(made)); is.State != caisson.TaskCancelled || is.Moving == nil || is.Moving.By != "rabc123" {
		t.Errorf("%+v", is)
	}
	if content, err := w.ledger.Blob(t.Context(), now(own.ID).Artifacts[0].Digest); err != nil || string(content) != "the plan" {
		t.Errorf("%q, %v", content, err)
	}
	history, err := w.ledger.TaskActivity(t.Context(), own.ID, 1, 0)
	if err != nil || len(history) != 13 || history[0].By != "rabc123" {
		t.Errorf("%d: %+v, %v", len(history), history, err)
	}
}

func TestVerbsCreate(t *testing.T) {
	w := newWorld(t)
	in := w.inside("")
	r := in.does(t, "task.create", `{"title":"Mend the rest","type":"bugfix","criteria":["it holds"]}`)
	var made struct{ Task caisson.TaskID }
	if err := json.Unmarshal(r.Data, &made); err != nil {
		t.Fatal(err)
	}
	is, err := w.ledger.Task(t.Context(), made.Task)
	if err != nil || is.CreatedBy != "rabc123" || is.Branch != "bugfix/mend-the-rest" || is.Repository != draft().Repository {
		t.Errorf("%+v, %v", is, err)
	}
	// The same call again is the same task; another one is another.
	in.calls--
	if again := in.does(t, "task.create", `{"title":"Mend the rest","type":"bugfix","criteria":["it holds"]}`); string(again.Data) != string(r.Data) {
		t.Errorf("%s and %s", r.Data, again.Data)
	}
	if other := in.does(t, "task.create", `{"title":"Mend the rest","type":"bugfix","criteria":["it holds"]}`); !strings.Contains(other.Text, "bugfix/mend-the-rest-2") {
		t.Errorf("%+v", other)
	}
	keyed := `{"key":"` + task.KeyOf("x") + `","title":"Keyed","type":"chore"}`
	first := in.does(t, "task.create", keyed)
	if again := in.does(t, "task.create", keyed); string(again.Data) != string(first.Data) {
		t.Errorf("%s and %s", first.Data, again.Data)
	}
	in.refused(t, "task.create", `{"key":"`+task.KeyOf("x")+`","title":"Keyed","type":"docs"}`, caisson.CodeTaskConflict)
	in.refused(t, "task.note", `{"text":"x"}`, caisson.CodeCallInvalid) // no task of its own
}

func TestVerbsRefuse(t *testing.T) {
	w := newWorld(t)
	own := w.create(t, "One")
	in := w.inside(own.ID)
	for _, c := range []struct {
		name, input string
	}{
		{"task.note", `{}`},
		{"task.note", `{"text":""}`},
		{"task.note", `{"text":"x","by":"ann"}`},
		{"task.note", `{"text":"x","task":"../x"}`},
		{"task.block", `{}`},
		{"task.cancel", `{"merge":true}`},
		{"task.complete", `{"waive":"merge"}`},
		{"task.finding", `{"n":1,"state":"waived"}`},
		{"task.finding", `{"n":0,"state":"fixed"}`},
		{"task.finding", `{"severity":"major"}`},
		{"task.finding", `{"severity":"major","text":"x","n":1}`},
		{"task.finding", `{}`},
		{"task.artifact", `{"name":"../../x","content":"x"}`},
		{"task.artifact", `{"name":"a"}`},
		{"task.artifact", `{"name":"a","content":"` + strings.Repeat("x", 60001) + `"}`},
		{"task.artifact", `{"name":"a","content":"x","verdict":"fine"}`},
		{"task.criteria", `{"n":51}`},
		{"task.criteria", `{"n":"1"}`},
		{"task.next", `{"stage":"deliver"}`},
		{"task.create", `{"title":"x","type":"epic"}`},
		{"task.create", `{"title":"x","type":"docs","state":"completed"}`},
		{"task.create", `{"title":"x","type":"docs","created_by":"ann"}`},
		{"task.create", `{"type":"docs"}`},
	} {
		if result, err := in.asks(t, c.name, c.input); err == nil {
			t.Errorf("%s %s was taken: %+v", c.name, c.input, result)
		}
	}
	in.refused(t, "task.create", `{"title":"a\u001b[2J","type":"docs"}`, caisson.CodeUsage)
	in.refused(t, "task.note", `{"task":"Tzzz999","text":"x"}`, caisson.CodeNotFound)
	elsewhere := draft()
	elsewhere.Repository, elsewhere.Key = "/other", task.NewKey()
	hidden, err := w.tasks.Create(t.Context(), elsewhere, ann)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range in.verbs {
		if name := v.Spec().Ref.Name; name != "task.create" {
			input := map[string]any{"task": hidden.ID}
			switch name {
			case "task.note":
				input["text"] = "x"
			case "task.block":
				input["reason"] = "x"
			case "task.finding":
				input["severity"], input["text"] = "minor", "x"
			case "task.artifact":
				input["name"], input["content"] = "a", "x"
			case "task.criteria":
				input["n"] = 1
			}
			raw, err := json.Marshal(input)
			if err != nil {
				t.Fatal(err)
			}
			in.refused(t, name, string(raw), caisson.CodeNotFound)
		}
	}
	if is, err := w.ledger.Task(t.Context(), own.ID); err != nil || is.Version != 1 {
		t.Errorf("what was refused changed something: %+v, %v", is, err)
	}
}

func TestVerbNext(t *testing.T) {
	w := newWorld(t)
	own := w.create(t, "One")
	in := w.inside(own.ID)
	r := in.does(t, "task.next", `{}`)
	var p task.Prospect
	if err := json.Unmarshal(r.Data, &p); err != nil || p.Kind != flow.Begin || p.Stage != "analyse" || len(p.Missing) != 2 {
		t.Errorf("%+v, %v: %s", p, err, r.Text)
	}
	w.edit(t, task.Begin(own.ID, ann, caisson.TaskStep{Stage: "review", Role: "reviewer", Run: in.run, Before: in.tree}, nil))
	r = in.does(t, "task.next", `{}`)
	for _, want := range []string{"You are stage review", "artifact review is not handed in", "Your verdict"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %q in %q", want, r.Text)
		}
	}
	in.does(t, "task.artifact", `{"name":"review","content":"looked","verdict":"approve"}`)
	if r = in.does(t, "task.next", `{}`); !strings.Contains(r.Text, "Nothing more is wanted of you.") {
		t.Errorf("%q", r.Text)
	}
	other := w.inside(own.ID)
	other.run = "rother1"
	if r = other.does(t, "task.next", `{}`); r.Text != "Run rabc123 is at work on review." {
		t.Errorf("%q", r.Text)
	}
	other.refused(t, "task.artifact", `{"name":"review","content":"looked","verdict":"approve"}`, caisson.CodeTaskConflict)
}

func TestVerbSpecs(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for _, v := range w.inside("").verbs {
		spec := v.Spec()
		if seen[spec.Ref.Name] || spec.Description == "" || spec.Reach != caisson.ReachLedger || spec.Timeout == 0 {
			t.Errorf("%+v", spec)
		}
		seen[spec.Ref.Name] = true
		var s struct {
			AdditionalProperties *bool
			Properties           map[string]json.RawMessage
		}
		if err := json.Unmarshal(spec.Schema, &s); err != nil || s.AdditionalProperties == nil || *s.AdditionalProperties || len(s.Properties) == 0 {
			t.Errorf("%s: %v", spec.Ref.Name, errors.Join(err))
		}
	}
	if len(seen) != 11 {
		t.Errorf("%v", seen)
	}
}

// A run creates no more tasks than a person would look at; with the key of an
// earlier one it still gets that.
func TestCreatesSoMany(t *testing.T) {
	w := newWorld(t)
	in := w.inside("")
	key := `"key":"` + task.KeyOf("first") + `",`
	first := in.does(t, "task.create", `{`+key+`"title":"First","type":"chore"}`)
	for n := range 99 {
		in.does(t, "task.create", fmt.Sprintf(`{"title":"Number %d","type":"chore"}`, n))
	}
	in.refused(t, "task.create", `{"title":"One more","type":"chore"}`, caisson.CodeRefused)
	if again := in.does(t, "task.create", `{`+key+`"title":"First","type":"chore"}`); again.Text != first.Text {
		t.Errorf("%q, and before %q", again.Text, first.Text)
	}
}

// What a run may have the record keep of tasks is bounded, whichever verb it is and
// whatever the task: each version is kept as a whole, however little a request says.
func TestChangesSoMuch(t *testing.T) {
	w := newWorld(t)
	w.clean, w.merged = true, true
	in := w.inside(w.create(t, "One").ID)
	inputs := map[string]string{
		"task.create": `{"title":"Two","type":"chore"}`, "task.note": `{"text":"more"}`, "task.finding": `{"severity":"minor","text":"odd"}`,
		"task.artifact": `{"name":"plan","content":"one"}`, "task.criteria": `{"n":1}`, "task.block": `{"reason":"wait"}`,
	}
	for _, v := range in.verbs {
		name := v.Spec().Ref.Name
		result, err := in.opens(t, name, cmp.Or(inputs[name], `{}`))
		if edits := result.Edit != nil && result.Edit.Task.Most == task.MostKept; err != nil || edits == (name == "task.next") {
			t.Errorf("%s: %+v, %v", name, result.Edit, err)
		}
	}
}

// For programs, what is missing is a list also where that is nothing.
func TestVerbNextMissesNothing(t *testing.T) {
	w := newWorld(t)
	n := draft()
	n.Criteria = nil
	is, err := w.tasks.Create(t.Context(), n, ann)
	if err != nil {
		t.Fatal(err)
	}
	if r := w.inside(is.ID).does(t, "task.next", `{}`); !strings.Contains(string(r.Data), `"missing":[]`) {
		t.Errorf("%s", r.Data)
	}
}
