package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTaskRoles(t *testing.T) {
	c, err := load(user("tasks: {roles: {executor: {agent: [claude, -p]}}}"), File{}, "linux", 8)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"claude", "-p", "do it"}, c.Tasks.Review().Argv("do it")); diff != "" {
		t.Error(diff)
	}
	placed := TaskRole{Agent: []string{"x", "--say=" + PromptPlace, "y"}}
	if diff := cmp.Diff([]string{"x", "--say=do it", "y"}, placed.Argv("do it")); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"tasks: {roles: {executor: {}}}":                          "either agent",
		"tasks: {roles: {executor: {agent: [a], model: x/y}}}":    "either agent",
		"tasks: {roles: {executor: {agent: []}}}":                 "name of a program",
		"tasks: {roles: {reviewer: {agent: [\"{prompt}\", -c]}}}": "name of a program",
		"tasks: {roles: {reviewer: {model: gpt}}}":                "not provider/model",
		"tasks: {roles: {other: {model: x/y}}}":                   "other",
	} {
		if _, err := load(user(text), File{}, "linux", 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := load(File{}, File{Name: "theirs", Data: []byte("tasks: {roles: {executor: {agent: [evil]}}}")}, "linux", 8); err == nil {
		t.Error("a repository said who does the stages")
	}
}
