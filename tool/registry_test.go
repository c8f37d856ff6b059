package tool

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

type named struct {
	AskTool
	ref    caisson.ToolRef
	schema string
}

func (n named) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{Ref: n.ref, Schema: json.RawMessage(n.schema)}
}

func TestRegistry(t *testing.T) {
	r, err := NewRegistry(Builtin(Options{Workspace: "/w"})...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"shell", "read", "write", "edit", "glob", "grep", "ask"}
	if diff := cmp.Diff(want, r.Names()); diff != "" {
		t.Error(diff)
	}
	for i, tool := range r.ModelTools() {
		if tool.Name != want[i] || tool.Description == "" || r.Get(tool.Name) == nil {
			t.Errorf("tool %d is %+v", i, tool)
		}
		if _, err := schema.Compile(tool.Schema); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		if !strings.Contains(string(tool.Schema), `"additionalProperties": false`) {
			t.Errorf("%s takes unknown keys", tool.Name)
		}
	}
	if r.Get("none") != nil {
		t.Error("there is a tool called none")
	}
	if _, err := NewRegistry(AskTool{}, AskTool{}); caisson.CodeOf(err) != caisson.CodeAlreadyExists {
		t.Errorf("two of one name: %v", err)
	}
	object := `{"type":"object"}`
	if _, err := NewRegistry(named{ref: caisson.ToolRef{Server: "a", Name: "x"}, schema: object}, named{ref: caisson.ToolRef{Server: "b", Name: "x"}, schema: object}); err != nil {
		t.Errorf("one name on two servers: %v", err)
	}
	for _, bad := range []named{
		{ref: caisson.ToolRef{Name: "with space"}, schema: object},
		{ref: caisson.ToolRef{Name: ""}, schema: object},
		{ref: caisson.ToolRef{Name: "x"}, schema: `{"type":"object","$ref":"#"}`},
	} {
		if _, err := NewRegistry(bad); caisson.CodeOf(err) != caisson.CodeConfigInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestFacets(t *testing.T) {
	r, err := NewRegistry(Builtin(Options{Workspace: "/w/tree"})...)
	if err != nil {
		t.Fatal(err)
	}
	path := func(p string, write bool) caisson.Facets {
		return caisson.Facets{Paths: []caisson.PathUse{{Path: p, Write: write}}}
	}
	for _, c := range []struct {
		tool, input string
		want        caisson.Facets
	}{
		{"read", `{"path":"a/../b.txt"}`, path("/w/tree/b.txt", false)},
		{"read", `{"path":"../../etc/passwd"}`, path("/etc/passwd", false)},
		{"write", `{"path":"/w/tree//x/./y","content":""}`, path("/w/tree/x/y", true)},
		{"edit", `{"path":"~/.bashrc","edits":[]}`, path("/w/tree/~/.bashrc", true)},
		{"glob", `{"pattern":"**","path":"."}`, path("/w/tree", false)},
		{"grep", `{"pattern":"x","path":"/etc"}`, path("/etc", false)},
		{"shell", `{"command":"git push","timeout":1}`, caisson.Facets{Lines: []string{"git push"}}},
		{"ask", `{"question":"?"}`, caisson.Facets{}},
	} {
		got, err := r.Get(c.tool).Facets(json.RawMessage(c.input))
		if err != nil {
			t.Errorf("%s %s: %v", c.tool, c.input, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s: %s", c.tool, c.input, diff)
		}
	}
	for tool, input := range map[string]string{
		"read": `{"path":"a\u0000b"}`, "write": `{"path":""}`, "grep": `{"pattern":"(","path":"."}`, "shell": `{"command":"a\u0000b"}`,
	} {
		if _, err := r.Get(tool).Facets(json.RawMessage(input)); err == nil {
			t.Errorf("%s %s was taken", tool, input)
		}
	}
}

func TestSeenRestore(t *testing.T) {
	at := time.Unix(1_000, 0)
	record := func(tool string, outcome caisson.Outcome, after time.Duration, path, digest string) caisson.CallRecord {
		return caisson.CallRecord{
			Call: caisson.Call{Tool: caisson.ToolRef{Name: tool}}, State: caisson.CallState(outcome), Ended: at.Add(after),
			Result: &caisson.Result{Data: data(fileData{Path: path, Digest: caisson.Digest(digest)})},
		}
	}
	foreign := record("read", caisson.OutcomeDone, 9*time.Second, "/w/a", "foreign")
	foreign.Call.Tool.Server = "mcp"
	s := NewSeen()
	s.Restore([]caisson.CallRecord{
		record("edit", caisson.OutcomeDone, 3*time.Second, "/w/a", "third"),
		record("read", caisson.OutcomeDone, 1*time.Second, "/w/a", "first"),
		record("write", caisson.OutcomeFailed, 5*time.Second, "/w/a", "failed"),
		record("shell", caisson.OutcomeDone, 6*time.Second, "/w/a", "shell"),
		record("read", caisson.OutcomeDone, 1*time.Second, "/w/big", ""),
		record("read", caisson.OutcomeDone, 2*time.Second, "/w/b", "b"),
		foreign,
		{Call: caisson.Call{Tool: caisson.ToolRef{Name: "read"}}, State: caisson.CallStarted},
	})
	if got, ok := s.Digest("/w/a"); got != "third" || !ok {
		t.Errorf("got %s, %t", got, ok)
	}
	if got, ok := s.Digest("/w/b"); got != "b" || !ok {
		t.Errorf("got %s, %t", got, ok)
	}
	if _, ok := s.Digest("/w/big"); ok {
		t.Error("a file that could not be read whole was taken as seen")
	}
}

func TestAsk(t *testing.T) {
	question, err := AskTool{}.Question(json.RawMessage(`{"question":"Which?","options":["a","b"],"multi":true}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(caisson.Question{Text: "Which?", Options: []string{"a", "b"}, Multi: true}, question); diff != "" {
		t.Error(diff)
	}
	result := AskTool{}.Answer(nil, caisson.Decision{Kind: caisson.Answer, Options: []string{"a", "b"}, Text: "but soon", By: "eva"})
	if result.Text != "Chosen: a; b\nbut soon" || result.Summary != "answered by eva" || result.Outcome != "" {
		t.Errorf("got %+v", result)
	}
	if result := (AskTool{}).Answer(nil, caisson.Decision{}); result.Text == "" {
		t.Error("an empty answer says nothing")
	}
}
