package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// nest returns a file that sets one dotted key.
func nest(key, value string) string {
	parts := strings.Split(key, ".")
	slices.Reverse(parts)
	for _, part := range parts {
		value = "{" + part + ": " + value + "}"
	}
	return value
}

// A repository's file that tries to widen any setting is refused with the key's
// name. Whoever adds a setting that a repository may set says here how it would
// be widened.
func TestNoKeyCanBeWidened(t *testing.T) {
	type attempt struct{ user, repository string }
	attempts := map[string]attempt{
		"preset":     {"supervised", "sandboxed"},
		"on_unknown": {"ask", "tell"},

		"network":         {"[a.com]", "[a.com]"},
		"network_unknown": {"deny", "review"},
	}
	for _, n := range numbers() {
		attempts[n.key] = attempt{n.show(n.least), n.show(n.least + 1)}
		if n.kind == "money" {
			attempts[n.key] = attempt{"1 USD", "2 USD"}
		}
		if n.kind == "size" {
			attempts[n.key] = attempt{"16MiB", "17MiB"}
		}
		if n.kind == "time" {
			attempts[n.key] = attempt{"1s", "2s"}
		}
	}
	adds := map[string]attempt{ // what is said there comes to the person's
		"require":      {"[files, memory]", "[]"},
		"instructions": {"[/home/me/mine.md]", "[]"},
		"hide":         {"['**/.env']", "[]"},
	}
	for _, s := range Reference() {
		a, known := attempts[s.Key]
		switch add, is := adds[s.Key]; {
		case is:
			before, err := load(user(nest(s.Key, add.user)), File{}, "linux", 8)
			if err != nil {
				t.Fatalf("%s: %v", s.Key, err)
			}
			after, err := load(user(nest(s.Key, add.user)), repo(nest(s.Key, add.repository)), "linux", 8)
			if err != nil || !slices.Equal(before.Require, after.Require) || !slices.Equal(before.Instructions, after.Instructions) || !slices.Equal(before.Hide, after.Hide) {
				t.Errorf("%s: a repository's empty list leaves %v %v (%v)", s.Key, after.Require, after.Instructions, err)
			}
			continue
		case s.Repository == "no":
			a = attempt{"", "x"}
		case !known:
			t.Errorf("%s: it is not said how a repository would widen it", s.Key)
			continue
		}
		own := ""
		if a.user != "" {
			own = nest(s.Key, a.user)
		}
		_, err := load(user(own), repo(nest(s.Key, a.repository)), "linux", 8)
		e := caisson.AsError(err)
		if e == nil || e.Code != caisson.CodeConfigWidens || e.Code.Info().Exit != 78 || e.Detail["key"] != s.Key || !strings.Contains(e.Error(), s.Key) {
			t.Errorf("%s: %q over %q: %v", s.Key, a.repository, a.user, err)
		}
	}
}

// A repository that closes the network closes what would be asked for too.
func TestRepositoryClosesTheNetwork(t *testing.T) {
	c, err := load(user("network: [a.com]\nnetwork_unknown: review"), repo("network: none"), "linux", 8)
	if err != nil || len(c.Network) != 0 || c.NetworkUnknown != UnknownDeny {
		t.Errorf("%v %v %v", c.Network, c.NetworkUnknown, err)
	}
}
