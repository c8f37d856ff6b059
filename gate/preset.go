package gate

import (
	"slices"

	"github.com/caisson-run/caisson"
)

// Preset is what is said of a call that no rule speaks about.
type Preset string

// Presets.
const (
	// Supervised asks about everything but reads.
	Supervised Preset = "supervised"
	// Sandboxed allows what stays inside an enforced boundary and asks about
	// the rest.
	Sandboxed Preset = "sandboxed"
	// Unattended is Sandboxed where nobody can be asked: a review is a refusal.
	Unattended Preset = "unattended"
)

// Presets returns all presets.
func Presets() []Preset { return []Preset{Supervised, Sandboxed, Unattended} }

// boundary tells whether what runs inside can be believed to stay inside.
func boundary(i caisson.Isolation) bool {
	return i.Enforces(caisson.ControlFiles, caisson.ControlNetwork, caisson.ControlProcesses)
}

// runsPrograms tells whether the call runs programs, for which only the
// boundary bounds what they do.
func runsPrograms(call caisson.Call) bool {
	return len(call.Facets.Lines) > 0 || len(call.Facets.Argv) > 0 || call.Tool == caisson.ToolRef{Name: "shell"}
}

// mayLeave tells whether the effect could leave the box.
func mayLeave(call caisson.Call, subject caisson.Subject) bool {
	switch call.Reach {
	case caisson.ReachLedger:
		return false
	case caisson.ReachInside:
		return !boundary(subject.Isolation)
	default:
		return true
	}
}

// readOnlyAllowed is the read-only allowance. A server's own word that its tool
// only reads counts where the user's policy names the server.
func (p *Policy) readOnlyAllowed(call caisson.Call) bool {
	return call.Effect == caisson.EffectRead && (call.Tool.Server == "" || slices.Contains(p.readOnly, call.Tool.Server))
}

// byPreset is the end of the user's layer.
func (p *Policy) byPreset(call caisson.Call, subject caisson.Subject) finding {
	f := finding{layer: LayerPreset, rule: string(p.preset), ruling: caisson.ReviewIt}
	if ruling, is := p.verbs[call.Tool.Name]; is && call.Tool.Server == "" {
		return finding{layer: LayerUser, rule: "verbs." + call.Tool.Name, ruling: ruling, reason: "the config's declaration of the verb says so"}
	}
	if call.Tool.Declared() { // whoever offers it goes by other settings than this policy
		return finding{layer: LayerUser, rule: "verbs." + call.Tool.Name, ruling: caisson.Deny, reason: "the config that holds here declares no verb of this name"}
	}
	if p.readOnlyAllowed(call) {
		return finding{layer: LayerReadOnly, rule: "default", ruling: caisson.Allow, reason: "it only reads"}
	}
	switch {
	case p.preset == Supervised && call.Reach == caisson.ReachLedger && call.Effect != caisson.EffectUnsafe:
		f.ruling, f.reason = caisson.Allow, "its whole effect is a row in the ledger"
	case p.preset == Supervised:
		f.reason = "everything but reads is asked about"
	case call.Reach == caisson.ReachLedger:
		f.ruling, f.reason = caisson.Allow, "its whole effect is in the ledger"
	case call.Reach != caisson.ReachInside:
		f.reason = "its effect leaves the sandbox"
	case runsPrograms(call) && !boundary(subject.Isolation):
		f.reason = "it runs programs, and " + missing(subject.Isolation) + " not enforced here"
	default:
		f.ruling, f.reason = caisson.Allow, "it stays inside the sandbox"
	}
	return f
}

func missing(i caisson.Isolation) string {
	text := ""
	n := 0
	for _, c := range []caisson.Control{caisson.ControlFiles, caisson.ControlNetwork, caisson.ControlProcesses} {
		if i.Enforces(c) {
			continue
		}
		if n++; n > 1 {
			text += ", "
		}
		text += string(c)
	}
	if text == string(caisson.ControlNetwork) {
		return text + " is"
	}
	return text + " are"
}
