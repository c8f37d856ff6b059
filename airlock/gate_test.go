package airlock_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

func policyOf(t *testing.T, rules ...string) *gate.Policy {
	t.Helper()
	p, err := gate.Load(gate.Sources{User: []gate.File{{Name: "policy.yaml", Data: []byte("rules:\n  - " + strings.Join(rules, "\n  - ") + "\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The whole way with the real gate: an approval stands while the rule does, is
// asked anew when another rule asks again, is worth nothing when policy denies;
// a grant of one server's tool lets no other's pass.
func TestWithTheGate(t *testing.T) {
	review := policyOf(t, `{name: look, tools: ["gated", "*/gated"], verdict: review}`)
	for _, c := range []struct {
		name   string
		today  *gate.Policy
		states string
	}{
		{"the same", review, "done"},
		{"tightened", policyOf(t, `{name: look-again, tools: ["gated"], verdict: review, again: true}`), "asked"},
		{"denied", policyOf(t, `{name: never, tools: ["gated"], verdict: deny, reason: too late}`), "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.options.Judge = review
			r := w.request(1, "gated", "a")
			w.decide(w.settle(r).Waiting[0], approve())
			w.options.Judge = c.today
			s := w.settle(r)
			if states(s) != c.states {
				t.Errorf("states %s, %+v", states(s), s.Records[0].Result)
			}
			if c.states == "refused" && !strings.Contains(s.Records[0].Result.Text, "never") {
				t.Errorf("the refusal does not name the rule: %q", s.Records[0].Result.Text)
			}
		})
	}
	t.Run("grant", func(t *testing.T) {
		w := newWorld(t)
		w.options.Judge = review
		for _, server := range []string{"a", "b"} {
			w.tools[server] = &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Server: server, Name: "gated"}}, effects: w.effectsPath()}
		}
		s := w.settle(w.request(1, "a", "x"))
		w.decide(s.Waiting[0], caisson.Decision{Kind: caisson.Approve, Grant: &caisson.Grant{InputDigest: s.Records[0].Call.InputDigest}})
		if s = w.settle(w.request(1, "a", "x"), w.request(2, "a", "x"), w.request(3, "b", "x")); states(s) != "done done asked" {
			t.Errorf("states %s", states(s))
		}
	})
}
