package sandbox

import (
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
)

// homes are the places for HOME inside; the first that is in nothing's way.
var homes = []string{"/home/agent", "/home/caisson", "/caisson/home"}

// Home returns the place for HOME inside of a box with these mounts.
func Home(mounts []caisson.Mount) string {
	for _, home := range homes {
		if !slices.ContainsFunc(mounts, func(m caisson.Mount) bool { return Overlap(m.Target, home) }) {
			return home
		}
	}
	return homes[len(homes)-1]
}

// Environment is what every command inside gets: what the engine sets, over that
// language, terminal and time zone of the caller, and over all of it what the
// spec names. A variable stands in it once.
func Environment(set []string, spec caisson.SandboxSpec) []string {
	env := append([]string{"LANG=C.UTF-8"}, set...)
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name == "LANG" || strings.HasPrefix(name, "LC_") || name == "TERM" || name == "TZ" {
			env = append(env, kv)
		}
	}
	if spec.Egress != nil {
		env = append(env, ProxyEnv()...)
	}
	at := map[string]int{}
	var out []string
	for _, kv := range append(env, spec.Env...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, known := at[name]; known {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

// Tested says, for the rows of a report, what the guest has tried, and what it
// has only read back.
func Tested(tests []plan.Test) map[caisson.Control]string {
	tried, read := map[caisson.Control][]string{}, map[caisson.Control][]string{}
	for _, t := range tests {
		to := tried
		if t.Read {
			to = read
		}
		to[caisson.Control(t.Control)] = append(to[caisson.Control(t.Control)], t.Tried)
	}
	out := map[caisson.Control]string{}
	for _, control := range caisson.Controls() {
		var parts []string
		if len(tried[control]) > 0 {
			parts = append(parts, "tried and refused: "+strings.Join(tried[control], "; "))
		}
		if len(read[control]) > 0 {
			parts = append(parts, "read back: "+strings.Join(read[control], "; "))
		}
		if len(parts) > 0 {
			out[control] = strings.Join(parts, "; ")
		}
	}
	return out
}
