package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// engine is one of which only the probe is asked.
type engine struct {
	caisson.Engine
	name      string
	isolation caisson.Isolation
	err       error
}

func (e engine) Name() string                                     { return e.name }
func (e engine) Probe(context.Context) (caisson.Isolation, error) { return e.isolation, e.err }

func enforcing(controls ...caisson.Control) caisson.Isolation {
	var i caisson.Isolation
	for _, c := range controls {
		i.Controls = append(i.Controls, caisson.Enforcement{Control: c, Enforced: true, By: "test"})
	}
	return i
}

// User namespaces are forbidden: the next engine that enforces what is
// required, or a refusal with cause and fix; never none.
// Origin: codex 15057, srt 74.
func TestCase_S12_Choose(t *testing.T) {
	need := sandbox.DefaultRequire()
	broken := engine{name: "namespace", err: caisson.Errorf(caisson.CodeIsolationUnavailable, "no user namespaces").WithHint("Allow them.")}
	weak := engine{name: "landlock", isolation: enforcing(caisson.ControlFiles)}
	full := engine{name: "docker", isolation: enforcing(need...)}

	got, _, err := sandbox.Choose(t.Context(), []caisson.Engine{broken, weak, full}, "", nil)
	if err != nil || got.Name() != "docker" {
		t.Errorf("chose %v, %v; want docker", got, err)
	}
	got, _, err = sandbox.Choose(t.Context(), []caisson.Engine{broken, weak}, "", []caisson.Control{caisson.ControlFiles})
	if err != nil || got.Name() != "landlock" {
		t.Errorf("chose %v, %v; want landlock for files alone", got, err)
	}
	for _, setting := range []string{"", "namespace"} {
		got, _, err = sandbox.Choose(t.Context(), []caisson.Engine{broken, weak}, setting, nil)
		var e *caisson.Error
		if got != nil || !errors.As(err, &e) || e.Code != caisson.CodeIsolationUnavailable {
			t.Fatalf("chose %v, %v; want isolation-unavailable", got, err)
		}
		if !strings.Contains(e.Message, "no user namespaces") || !strings.Contains(e.Hint, "Allow them.") {
			t.Errorf("message %q, hint %q", e.Message, e.Hint)
		}
	}
}

// An engine that opens at once goes before a stronger one that must first make
// something, unless that is the one that is set, or the only one.
func TestChoosePending(t *testing.T) {
	pending := enforcing(sandbox.DefaultRequire()...)
	pending.Pending = "its image is not there"
	slow, slower := engine{name: "docker", isolation: pending}, engine{name: "podman", isolation: pending}
	quick := engine{name: "landlock", isolation: enforcing(sandbox.DefaultRequire()...)}
	broken := engine{name: "namespace", err: caisson.Errorf(caisson.CodeIsolationUnavailable, "no user namespaces")}
	for _, c := range []struct {
		engines []caisson.Engine
		setting string
		want    string
	}{
		{[]caisson.Engine{broken, slow, quick}, "", "landlock"},
		{[]caisson.Engine{broken, slow, quick}, "docker", "docker"},
		{[]caisson.Engine{broken, slow, slower}, "", "docker"},
	} {
		got, isolation, err := sandbox.Choose(t.Context(), c.engines, c.setting, nil)
		if err != nil || got.Name() != c.want || (isolation.Pending == "") != (c.want == "landlock") {
			t.Errorf("setting %q: chose %v, %v; want %s", c.setting, got, err, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	full := engine{name: "namespace", isolation: enforcing(sandbox.DefaultRequire()...)}
	engines := []caisson.Engine{full}
	if _, _, err := sandbox.Choose(t.Context(), engines, "podman", nil); caisson.CodeOf(err) != caisson.CodeUnsupported {
		t.Errorf("an engine that is not there: %v", err)
	}
	if _, _, err := sandbox.Choose(t.Context(), engines, "none", nil); caisson.CodeOf(err) != caisson.CodeUnsupported {
		t.Errorf("none: %v", err)
	}
	if _, _, err := sandbox.Choose(t.Context(), nil, "", nil); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("no engines: %v", err)
	}
	if _, _, err := sandbox.Choose(t.Context(), engines, "", []caisson.Control{"x"}); caisson.CodeOf(err) != caisson.CodeConfigInvalid {
		t.Errorf("no such control: %v", err)
	}
	if _, _, err := sandbox.Choose(t.Context(), engines, "", []caisson.Control{caisson.ControlMemory}); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("memory is not enforced, and: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failing := engine{name: "namespace", err: errors.New("cancelled")}
	if _, _, err := sandbox.Choose(ended, []caisson.Engine{failing}, "", nil); caisson.CodeOf(err) != caisson.CodeCancelled {
		t.Errorf("cancelled: %v", err)
	}
}

// What is not running is named and not described, and who has named an engine is
// told what it can be had with.
func TestChooseExplains(t *testing.T) {
	weak := engine{name: "landlock", isolation: enforcing(caisson.ControlFiles, caisson.ControlNetwork)}
	engines := []caisson.Engine{weak}
	for _, name := range []string{"docker", "podman"} {
		engines = append(engines, engine{name: name, err: caisson.Errorf(caisson.CodeEngineUnavailable, "a long story")})
	}
	for setting, want := range map[string]struct{ message, hint string }{
		"":         {"not running: docker, podman", "Or start one that is not running."},
		"landlock": {"landlock: processes is not enforced", "`--require files,network`"},
	} {
		_, _, err := sandbox.Choose(t.Context(), engines, setting, nil)
		var e *caisson.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, want.message) || !strings.Contains(e.Hint, want.hint) {
			t.Fatalf("%q: %v", setting, err)
		}
		if strings.Contains(e.Message, "story") || setting == "" && strings.Contains(e.Hint, "--require") {
			t.Errorf("%q: message %q, hint %q", setting, e.Message, e.Hint)
		}
	}
}
