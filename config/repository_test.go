package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/verb/declared"
)

func TestRepositoryOnlyTightens(t *testing.T) {
	for _, c := range []struct{ user, repo, key string }{
		{"", "model: a/b", "model"},
		{"", "engine: docker", "engine"},
		{"", "env: [AWS_SECRET_ACCESS_KEY]", "env"},
		{"", "mounts: [{source: /}]", ""},
		{"", "mounts: [{source: /etc}]", "mounts"},
		{"", "model_prices: {a/b: {input: 0 USD, output: 0 USD}}", "model_prices"},
		{"", "state_dir: /x", "state_dir"},
		{"", "containers: {image: x}", "containers.image"},
		{"", "containers: {base: x}", "containers.base"},
		{"", "containers: {refresh: 1h}", "containers.refresh"},
		{"", "limits: {memory: 8GiB}", "limits.memory"},
		{"", "limits: {cpus: 8}", "limits.cpus"},
		{"limits: {memory: 1GiB}", "limits: {memory: 2GiB}", "limits.memory"},
		{"preset: supervised", "preset: sandboxed", "preset"},
		{"preset: supervised", "preset: unattended", "preset"},
		{"preset: unattended", "preset: supervised", "preset"},
		{"budget: {tokens: 5}", "budget: {tokens: 6}", "budget.tokens"},
		{"budget: {tokens: 5}", "budget: {tokens: 0}", "budget.tokens"},
		{"", "review: {expire: 48h}", "review.expire"},
		{"", "on_unknown: tell", "on_unknown"},
		{"", "instructions: [/etc/passwd]", "instructions"},
	} {
		_, err := load(user(c.user), repo(c.repo), "linux", 8)
		e := caisson.AsError(err)
		if c.key == "" && e != nil {
			continue // not valid for anyone
		}
		if e == nil || e.Code != caisson.CodeConfigWidens || e.Detail["key"] != c.key || !strings.HasPrefix(e.Error(), ".caisson/config.yaml:1: ") || e.Code.Info().Exit != 78 {
			t.Errorf("%q over %q: %v %v", c.repo, c.user, err, e)
		}
	}
	c, err := load(user("budget: {turns: 5}\nrequire: [files]\nlimits: {pids: 100}"), repo(`
preset: supervised
require: [memory, files]
limits: {memory: 1GiB, pids: 100}
budget: {tokens: 10, turns: 4}
review: {expire: 1h}
on_unknown: ask
instructions: [docs/agents.md]
`), "linux", 8)
	if err != nil {
		t.Fatal(err)
	}
	if c.Preset != "supervised" || c.Limits.Memory != 1<<30 || c.Limits.Pids != 100 || c.Budget.Tokens != 10 || c.Budget.Turns != 4 || c.Review.Expire != time.Hour {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.Require, []caisson.Control{"files", "memory"}) || !slices.Equal(c.Instructions, []string{"AGENTS.md", "CLAUDE.md", "docs/agents.md"}) {
		t.Errorf("require %v, instructions %v", c.Require, c.Instructions)
	}
	for key, want := range map[string]string{
		"preset": ".caisson/config.yaml", "require": "config.yaml, .caisson/config.yaml", "limits.memory": ".caisson/config.yaml", "budget.turns": ".caisson/config.yaml",
		"limits.files": Default, "instructions": ".caisson/config.yaml",
	} {
		if got := c.Origin(key); got != want {
			t.Errorf("origin of %s: %q, want %q", key, got, want)
		}
	}
	// What a refused repository wrote is nowhere in what the user has.
	if again, err := load(user(""), File{}, "linux", 8); err != nil || again.Preset != "sandboxed" {
		t.Errorf("%+v, %v", again, err)
	}
}

func templates(texts ...string) []declared.Template {
	var out []declared.Template
	for i, text := range texts {
		t, err := declared.ParseTemplate(text, []string{"title", "draft", "label", "n"}, i == 0)
		if err != nil {
			panic(err)
		}
		out = append(out, t)
	}
	return out
}

func TestRepositoryRow(t *testing.T) {
	for _, s := range Reference() {
		if mayNot := slices.Contains([]string{"model", "engine", "env", "caches", "ptrace", "mounts", "credentials", "agents.credentials", "floor.disk", "floor.memory", "trash.days", "model_prices", "state_dir", "containers.image", "containers.base", "containers.refresh", "workspace.mode", "verbs", "tasks.roles.executor", "tasks.roles.reviewer"}, s.Key); mayNot != (s.Repository == "no") {
			t.Errorf("%s says %q of repositories", s.Key, s.Repository)
		}
	}
}
