package flow_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task/flow"
)

const small = `name: small
stages:
  - name: write
    role: executor
    prompt: |
      Do {{.Title}}.
    next: look
  - name: look
    role: reviewer
    artifact: review
    prompt: Look.
    next: {approve: done, changes: write}
`

func load(t *testing.T, raw string) flow.Workflow {
	t.Helper()
	w, err := flow.Load("small.yaml", []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestShipped(t *testing.T) {
	all, err := flow.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range all {
		names = append(names, w.String())
		for _, s := range w.Stages {
			text, err := s.Render(flow.PromptOf(s, caisson.Task{ID: "Tabc123", Title: "A title", Description: "Much to do.", Findings: []caisson.TaskFinding{
				{N: 1, Severity: caisson.Major, Text: "It leaks.", State: caisson.FindingOpen},
			}}))
			if err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			for _, want := range []string{"Task Tabc123: A title\n", "/run/caisson/public/tasks/Tabc123/task.md"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s of %s says no %q:\n%s", s.Name, w.Name, want, text)
				}
			}
			if s.Artifact != "" && !strings.Contains(text, "artifact "+s.Artifact) && !strings.Contains(text, "artifact\n"+s.Artifact) {
				t.Errorf("%s of %s does not ask for %s:\n%s", s.Name, w.Name, s.Artifact, text)
			}
		}
	}
	want := "bugfix: reproduce, fix, review|feature: analyse, plan, implement, review, fix, deliver|review: review"
	if got := strings.Join(names, "|"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// with returns the small workflow with one text replaced.
func with(t *testing.T, old, replaced string) string {
	t.Helper()
	if !strings.Contains(small, old) {
		t.Fatalf("no %q", old)
	}
	return strings.Replace(small, old, replaced, 1)
}

func TestLoadRefuses(t *testing.T) {
	load(t, small)
	for _, c := range []struct{ name, raw, want string }{
		{"empty", "", "small.yaml:1: it has no name"},
		{"no stages", "name: a\n", "it has no stages"},
		{"unknown key", "nmae: a\n", `small.yaml:1: unknown key "nmae"`},
		{"unknown key of a stage", with(t, "role: reviewer", "role: reviewer\n    rolle: x"), `small.yaml:10: stages[1]: unknown key "rolle"`},
		{"twice", with(t, "name: look", "name: write"), `small.yaml:8: stages[1]: a second stage "write"`},
		{"name", with(t, "name: write", "name: Write"), "small.yaml:3: stages[0].name:"},
		{"called done", with(t, "name: write", "name: done"), "cannot be called"},
		{"role", with(t, "role: executor", "role: boss"), `"boss" is neither executor nor reviewer`},
		{"no prompt", with(t, "    prompt: Look.\n", ""), "small.yaml:8: stages[1]: it has no prompt"},
		{"blank prompt", with(t, "prompt: Look.", `prompt: " "`), "is empty"},
		{"unknown field", with(t, "Do {{.Title}}.", "Do\n      {{.Titel}}."), "small.yaml:7: stages[0].prompt: unknown field .Titel; known are .ID, .Title"},
		{"field of a field", with(t, ".Title", ".Title.Short"), "small.yaml:6: stages[0].prompt: unknown field"},
		{"field of an item", with(t, "{{.Title}}", "{{range .Findings}}{{.Number}}{{end}}"), "unknown field .Number; known are .N, .Severity, .Text"},
		{"syntax", with(t, "{{.Title}}", "a\n      {{.Title"), "small.yaml:7: stages[0].prompt: "},
		{"function", with(t, "{{.Title}}", `{{printf "%0999999999d" 1}}`), `function "printf" is not used`},
		{"no function", with(t, "{{.Title}}", `{{env "HOME"}}`), `function "env" not defined`},
		{"nested range", with(t, "{{.Title}}", "{{range .Facts}}{{range $.Facts}}{{end}}{{end}}"), "a range within a range"},
		{"nested range in else", with(t, "{{.Title}}", "{{range .Facts}}{{if .}}{{else}}{{range $.Facts}}{{end}}{{end}}{{end}}"), "a range within a range"},
		{"range over a number", with(t, "{{.Title}}", "{{range .Round}}{{end}}"), "range goes through a list"},
		{"range over a literal", with(t, "{{.Title}}", "{{range 1000000000}}{{end}}"), "range goes through a list"},
		{"variable", with(t, "{{.Title}}", "{{$x := .Title}}{{$x}}"), "variables are not used"},
		{"define", with(t, "{{.Title}}", `{{define "a"}}{{end}}`), "templates are not defined"},
		{"with", with(t, "{{.Title}}", `{{with .Title}}{{.}}{{end}}`), "is not used in a prompt"},
		{"itself", with(t, "{{.Title}}", `{{template "prompt" .}}`), "is not used in a prompt"},
		{"dot", with(t, "{{.Title}}", `{{.}}`), "name a field"},
		{"types", with(t, "{{.Title}}", `{{len .Round}}`), "small.yaml:6: stages[0].prompt: len takes a text or a list"},
		{"types compared", with(t, "{{.Title}}", `{{if eq .Title 1}}{{end}}`), "eq takes two values of one type"},
		{"lists compared", with(t, "{{.Title}}", `{{if ne .Facts .Criteria}}{{end}}`), "ne takes two values of one type"},
		{"not of two", with(t, "{{.Title}}", `{{if not .Title .Base}}{{end}}`), "not takes one value"},
		{"and of none", with(t, "{{.Title}}", `{{if and}}{{end}}`), "and takes values"},
		{"types in a list", with(t, "{{.Title}}", `{{range .Findings}}{{len .N}}{{end}}`), "len takes"},
		{"pipe", with(t, "{{.Title}}", `{{.Title | len}}`), "without |"},
		{"target", with(t, "next: look", "next: loook"), `small.yaml:3: stage write: it leads to "loook", which is no stage`},
		{"executor with verdicts", with(t, "next: look", "next: {approve: look, changes: look}"), "only a reviewer gives a verdict"},
		{"reviewer without", with(t, "next: {approve: done, changes: write}", "next: done"), "mapping of approve and changes"},
		{"half a verdict", with(t, "{approve: done, changes: write}", "{approve: done}"), "what follows changes"},
		{"another verdict", with(t, "{approve: done, changes: write}", "{approve: done, changes: write, maybe: done}"), `unknown key "maybe"`},
		{"needs", with(t, "artifact: review", "artifact: review\n    needs: [plan]"), `it needs "plan", which no stage produces`},
		{"no review", with(t, "next: look", "next: done"), "stage look: what was not approved is delivered"},
		{"no review at first", strings.Replace(with(t, "next: look", "next: done"), "changes: write", "changes: stop", 1), "small.yaml:3: stage write: it leads to done with no review"},
		{"not approved", with(t, "changes: write", "changes: done"), "small.yaml:8: stage look: what was not approved is delivered"},
		{"circle", with(t, "{approve: done, changes: write}", "{approve: write, changes: write}"), "never leads to done or stop"},
		{"unreached", small + "  - name: more\n    role: executor\n    prompt: More.\n    next: stop\n", "small.yaml:13: stage more: nothing leads to it"},
		{"alias", with(t, "name: small", "name: &a small"), "anchors"},
	} {
		_, err := flow.Load("small.yaml", []byte(c.raw))
		if err == nil || !strings.Contains(err.Error(), c.want) || caisson.CodeOf(err) != caisson.CodeWorkflowInvalid {
			t.Errorf("%s: %v (%s), want %q", c.name, err, caisson.CodeOf(err), c.want)
			continue
		}
		var e *caisson.Error
		if errors.As(err, &e); e.Detail["file"] != "small.yaml" {
			t.Errorf("%s: details %v", c.name, e.Detail)
		}
	}
}

func TestRenderIsBounded(t *testing.T) {
	w := load(t, with(t, "{{.Title}}", strings.Repeat("{{range .Facts}}{{.}}{{end}}", 400)))
	_, err := w.Stages[0].Render(flow.Prompt{Facts: []string{strings.Repeat("x", caisson.TaskItem)}})
	if caisson.CodeOf(err) != caisson.CodeLimitInvalid {
		t.Errorf("%v", err)
	}
}

func TestPromptOf(t *testing.T) {
	task := caisson.Task{
		ID: "Tabc123", Criteria: []caisson.TaskCriterion{{Text: "it works", Met: true}},
		Findings:  []caisson.TaskFinding{{N: 1, State: caisson.FindingFixed}, {N: 2, Severity: caisson.Minor, Text: "typo", State: caisson.FindingOpen}},
		Artifacts: []caisson.TaskArtifacts{{Name: "plan", Round: 1}, {Name: "review", Round: 1}, {Name: "plan", Round: 2}},
	}
	p := flow.PromptOf(flow.Stage{Name: "look", Artifact: "review", Needs: []string{"plan"}}, task)
	if p.Round != 2 || len(p.Needs) != 1 || p.Needs[0].Path != "/run/caisson/public/tasks/Tabc123/artifacts/plan.2.md" ||
		len(p.Findings) != 1 || p.Findings[0].N != 2 || len(p.Criteria) != 1 {
		t.Errorf("%+v", p)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(strings.Replace(small, "{{.Title}}", "{{range .Facts}}{{if eq . \"a\"}}{{$.Title}}{{else}}{{end}}{{end}}", 1)))
	f.Add([]byte(strings.Replace(small, "{{.Title}}", "{{break}}{{(index .Facts 1).X}}{{nil}}", 1)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, err := flow.Load("f.yaml", raw)
		if err != nil {
			if caisson.CodeOf(err) != caisson.CodeWorkflowInvalid {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, s := range w.Stages {
			if _, err := s.Render(flow.PromptOf(s, caisson.Task{Facts: []string{"a"}})); err != nil {
				t.Fatalf("loaded, and does not render: %v", err)
			}
		}
	})
}

// What the documentation shows is a workflow.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("it shows none")
	}
	if w := load(t, example); w.String() != "small: implement, review" {
		t.Error(w)
	}
}
