package host

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check finds what is wrong with a request by itself. A prompt and names are
// text in the record; arguments of a command may be any bytes.
func (want RunRequest) check() error {
	wrong := func(format string, args ...any) error { return caisson.Errorf(caisson.CodeUsage, format, args...) }
	for what, text := range map[string]string{"the prompt": want.Prompt, "the branch": want.Branch, "the base": want.Base, "the model": want.Model} {
		if !utf8.ValidString(text) {
			return wrong("%s is not UTF-8", what)
		}
	}
	b := want.Budget
	switch {
	case b.Tokens < 0, b.Cost < 0, b.Turns < 0, b.Calls < 0, b.Output < 0, b.Wall < 0:
		return wrong("a bound of the budget is below 0")
	case want.NoWorkspace && want.Mode != "":
		return wrong("--workspace-mode is of a workspace: leave out --no-workspace")
	case want.Mode != "" && want.Mode != caisson.WorkspaceWorktree && want.Mode != caisson.WorkspaceClone:
		return wrong("--workspace-mode is worktree or clone, not %q", want.Mode)
	case want.NoWorkspace && (want.Branch != "" || want.Base != ""):
		return wrong("a branch or base is of a workspace: leave out --no-workspace")
	case len(want.Argv) > 0 && want.Model != "":
		return wrong("a command has no model of ours: leave out --model")
	case want.Preset != "" && !slices.Contains(gate.Presets(), gate.Preset(want.Preset)):
		return wrong("there is no preset %q: choose from %s", want.Preset, words(gate.Presets()))
	}
	if all := caisson.EngineNames(""); want.Engine == "none" {
		return wrong("there is no way to run without a boundary: the engines are %s", strings.Join(all, ", "))
	} else if want.Engine != "" && !slices.Contains(all, want.Engine) {
		return wrong("there is no engine %q: the engines are %s", want.Engine, strings.Join(all, ", "))
	}
	for _, c := range want.Require {
		if !slices.Contains(caisson.Controls(), c) {
			return wrong("there is no control %q to require: choose from %s", c, words(caisson.Controls()))
		}
	}
	for _, name := range want.Env {
		if !envName.MatchString(name) {
			return wrong("--env takes the name of a variable, and %q is none", name)
		}
	}
	for _, text := range want.Network {
		if text == config.NoNetwork && len(want.Network) == 1 {
			break
		}
		if _, err := rule.Parse(text); err != nil {
			return wrong("--network %s: %w", text, err)
		}
	}
	return nil
}

// words is a list in a sentence.
func words[T ~string](list []T) string {
	var text []string
	for _, word := range list {
		text = append(text, string(word))
	}
	return strings.Join(text, ", ")
}
