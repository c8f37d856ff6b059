package model

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/google/go-cmp/cmp"
)

func writeScript(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestScriptInvalid(t *testing.T) {
	for yaml, says := range map[string]string{
		"turns:\n  - text: a\n    colour: red":                           "line 3: field colour not found",
		"turns:\n  - text: a\n  - times: 2":                              "line 3: turn 2: times",
		"turns:\n  - cut: true\n    stall: true":                         "line 2: turn 1: more than one",
		"turns:\n  - calls:\n      - input: {}":                          "line 2: turn 1: call 1 names no tool",
		"turns:\n  - calls: [{tool: a, input: {}, input_raw: x}]":        "both input and input_raw",
		"turns:\n  - expect: [{matches: '('}]":                           "expectation 1",
		"turns:\n  - finish: sideways":                                   "no finish",
		"turns:\n  - delay: soon":                                        "line 2: \"soon\" is not a duration",
		"turns:\n  -":                                                    "line 2: turn 1 is empty",
		"turns: []\n---\nturns: []":                                      "more than one document",
		"turns: {":                                                       "line 1",
		"turns:\n  - text: a\n    text: b":                               "line 3",
		"turns:\n  - calls: [{tool: a, input: {? [1] : 2}}]":             "call 1",
		"price: {in: 3}":                                                 "line 1: field in not found",
		"turns:\n  - error: {code: model-error, massage: hi}":            "line 2: field massage not found",
		"turns:\n  - calls: [{tool: a, inputs: {}}]\n    usage: {in: 1}": "line 2: field inputs not found; line 3: field in not found",
	} {
		_, err := OpenScript(writeScript(t, yaml))
		if caisson.CodeOf(err) != caisson.CodeScriptInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", yaml, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "model.script") {
			t.Errorf("%q: the message names a Go type: %v", yaml, err)
		}
	}
}

const twoTurns = `
record: asked.jsonl
price: {input: 3, output: 15}
turns:
  - reasoning: hm
    text: "look\n"
    calls:
      - {tool: read, id: c1, input: {path: a.txt, deep: {n: 1}}}
      - {tool: write, input_raw: '{"path": "a'}
    usage: {input: 100, output: 20, cache_read: 50}
  - expect:
      - {tool: read, contains: hello, failed: false}
      - {tool: write, matches: '^not\b', failed: true}
    text: done
`

func results(first, second string) []caisson.Message {
	return []caisson.Message{
		userSays("go"),
		{Role: caisson.RoleAssistant, Parts: []caisson.Part{{Kind: caisson.PartCall, Tool: "read"}, {Kind: caisson.PartCall, Tool: "write"}}},
		{Role: caisson.RoleTool, Parts: []caisson.Part{{Kind: caisson.PartResult, Text: first}, {Kind: caisson.PartResult, Text: second, Failed: true}}},
	}
}

func TestScriptPlays(t *testing.T) {
	path := writeScript(t, twoTurns)
	for range 2 { // two processes, and each asks twice
		s, err := OpenScript(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h := listen(t, s, say("go"))
			if h.err != nil || h.text != "look\n" || h.reasoning != "hm" || h.callEvents != 4 {
				t.Fatalf("got %+v", h)
			}
			want := []string{`read {"deep":{"n":1},"path":"a.txt"}`, `write {"path": "a`}
			if diff := cmp.Diff(want, inputs(h.answer)); diff != "" {
				t.Error(diff)
			}
			if h.answer.Finish != caisson.FinishCalls || h.answer.Usage.Tokens() != 120 {
				t.Errorf("got %+v", h.answer)
			}
		}
		if h := listen(t, s, caisson.ModelRequest{Messages: results("hello", "not JSON")}); h.err != nil || h.text != "done" {
			t.Fatalf("got %+v", h)
		}
	}
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(path), "asked.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d requests recorded, want 6", len(lines))
	}
	var first caisson.ModelRequest
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(say("go"), first); diff != "" {
		t.Error(diff)
	}
}

func TestScriptMismatchAndEnd(t *testing.T) {
	s := turns(t, strings.Replace(twoTurns, "record: asked.jsonl", "", 1))
	for _, messages := range [][]caisson.Message{results("good bye", "not JSON"), results("hello", "fine"), results("hello", "not JSON")[:2]} {
		if h := listen(t, s, caisson.ModelRequest{Messages: messages}); caisson.CodeOf(h.err) != caisson.CodeScriptMismatch {
			t.Errorf("got %+v", h)
		}
	}
	h := listen(t, s, caisson.ModelRequest{Messages: results("good bye", "")})
	if !strings.Contains(h.err.Error(), `"good bye"`) {
		t.Errorf("the message does not say what came: %v", h.err)
	}
	ended := append(results("hello", "not JSON"), caisson.Message{Role: caisson.RoleAssistant})
	if h := listen(t, s, caisson.ModelRequest{Messages: ended}); caisson.CodeOf(h.err) != caisson.CodeScriptEnded {
		t.Errorf("got %+v", h)
	}
}

func TestScriptFaults(t *testing.T) {
	cut := turns(t, "turns: [{calls: [{tool: read, input: {path: abcdef}}], cut: true, times: 1}]")
	h := listen(t, cut, say("hi"))
	if caisson.CodeOf(h.err) != caisson.CodeModelError || !Transient(h.err) || h.callEvents != 2 {
		t.Errorf("got %+v", h)
	}
	if h := listen(t, cut, say("hi")); h.err != nil || inputs(h.answer)[0] != `read {"path":"abcdef"}` {
		t.Errorf("got %+v", h)
	}
	synctest.Test(t, func(t *testing.T) {
		stall := turns(t, "turns: [{delay: 2s, text: abcd, stall: true}]")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin, text := time.Now(), ""
		var last error
		for event, err := range stall.Stream(ctx, say("hi")) {
			text, last = text+event.Delta, err
			if text != "" && err == nil && time.Since(begin) != 2*time.Second {
				t.Errorf("text came after %s", time.Since(begin))
			}
		}
		if caisson.CodeOf(last) != caisson.CodeInterrupted || text != "ab" || time.Since(begin) != time.Hour {
			t.Errorf("got %q, %v after %s", text, last, time.Since(begin))
		}
	})
}
