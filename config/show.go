package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Value returns the value that holds for a key of [Reference], as people read
// it; empty where there is none.
func (c Config) Value(key string) string {
	for _, n := range numbers() {
		if n.key == key {
			value := *n.at(&c)
			if value == 0 && n.unbounded {
				return "none"
			}
			return n.show(value)
		}
	}
	switch key {
	case "model":
		return c.Model
	case "engine":
		return c.Engine
	case "preset":
		return c.Preset
	case "require":
		return strings.Join(texts(c.Require), ", ")
	case "env":
		return strings.Join(c.Env, ", ")
	case "caches":
		return strings.Join(c.Caches, ", ")
	case "hide":
		return strings.Join(c.Hide, ", ")
	case "ptrace":
		return fmt.Sprint(c.Ptrace)
	case "mounts":
		return strings.Join(mountTexts(c.Mounts), ", ")
	case "network":
		return cmp.Or(strings.Join(ruleTexts(c.Network), ", "), NoNetwork)
	case "network_unknown":
		return c.NetworkUnknown
	case "credentials":
		return strings.Join(credentialTexts(c.Credentials), ", ")
	case "agents.credentials":
		return strings.Join(loginTexts(c.Logins), ", ")
	case "on_unknown":
		return c.OnUnknown
	case "model_prices":
		return strings.Join(slices.Sorted(maps.Keys(c.Prices)), ", ")
	case "instructions":
		return strings.Join(c.Instructions, ", ")
	case "containers.image":
		return c.Containers.Image
	case "containers.base":
		return c.Containers.Base
	case "containers.refresh":
		return c.Containers.Refresh.String()
	case "workspace.mode":
		return string(c.WorkspaceMode)
	case "verbs":
		return strings.Join(verbTexts(c.Verbs), ", ")
	case "tasks.roles.executor":
		return c.Tasks.Executor.String()
	case "tasks.roles.reviewer":
		return c.Tasks.Review().String()
	case "state_dir":
		return c.StateDir
	}
	return ""
}

func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

func mountTexts(mounts []caisson.Mount) []string {
	var out []string
	for _, m := range mounts {
		mode := "read-only"
		if m.Write {
			mode = "read-write"
		}
		out = append(out, fmt.Sprintf("%s at %s %s", m.Source, m.Target, mode))
	}
	return out
}
