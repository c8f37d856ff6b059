package host

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// What the guide says of what is kept and of what can be reached is so.
func TestGuide(t *testing.T) {
	const alone = " Nothing else outside can be reached, unless you ask for it:"
	for name, c := range map[string]struct {
		config, network string
		want, not       []string
	}{
		"closed": {"", "none", []string{"neither is kept", alone}, []string{"both are kept", "Open to the network"}},
		"open":   {"network:\n  - example.com\n", "other.example:8443", []string{"- example.com", "- other.example:8443", "\nNothing else outside"}, []string{alone}},
		"asked":  {"network_unknown: review\n", "", []string{"A person may open a host"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var network []string
			if c.network != "" {
				network = []string{c.network}
			}
			w := start(t, c.config, nil, network...)
			defer w.finish()
			text := w.s.guide()
			for _, part := range c.want {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in:\n%s", part, text)
				}
			}
			for _, part := range c.not {
				if strings.Contains(text, part) {
					t.Errorf("%q is in:\n%s", part, text)
				}
			}
		})
	}
	if text := (&session{ws: &caisson.Workspace{Path: "/tree"}}).keptGuide(); text != "What you can write is /tree and your home; both are kept." {
		t.Errorf("with a workspace: %s", text)
	}
}
