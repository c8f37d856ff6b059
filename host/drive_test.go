package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
)

// meanwhile is an engine that does something before it opens a box.
type meanwhile struct {
	caisson.Engine
	do func()
}

func (e meanwhile) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	e.do()
	return e.Engine.Open(ctx, spec)
}

// A run that is cancelled while its box is opened is cancelled, and that is all:
// who drives it has not failed, and nothing of it is left.
func TestCancelledWhileOpened(t *testing.T) {
	h := opened(t, "", nil)
	run, err := h.NewRun(t.Context(), RunRequest{Argv: []string{"true"}, NoWorkspace: true})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, engine := range h.engines {
		if engine.Name() != run.Spec.Engine {
			continue
		}
		h.engines[i] = meanwhile{engine, func() {
			if _, err := h.Ledger.AskCancel(t.Context(), run.ID, caisson.CauseUser, "ann"); err != nil {
				t.Error(err)
			}
		}}
		defer func() { h.engines[i] = engine }()
	}
	now, err := h.Drive(t.Context(), run.ID, DriveOptions{})
	if err != nil || now.State != caisson.RunCancelled || now.Lease.Instance != "" {
		t.Errorf("it is %s, held by %q, %v", now.State, now.Lease.Instance, err)
	}
	boxes, err := h.Ledger.Sandboxes(t.Context(), caisson.SandboxFilter{Run: run.ID, States: unremoved()})
	if err != nil || len(boxes) > 0 {
		t.Errorf("its boxes are %+v, %v", boxes, err)
	}
}

// A pause that was asked for before anything of the run has begun parks it as any
// other does: it is no failure, and the run can go on.
func TestPausedBeforeItBegins(t *testing.T) {
	script := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(script, []byte("turns: [{text: done}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]RunRequest{
		"a command": {Argv: []string{"true"}, NoWorkspace: true},
		"a model":   {Model: "script:" + script, Prompt: "go", NoWorkspace: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := opened(t, "", nil)
			run, err := h.NewRun(t.Context(), want)
			if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
				t.Skipf("no boundary can be made here: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				pause := make(chan caisson.Cause, 1)
				pause <- caisson.CauseUser
				now, err := h.Drive(t.Context(), run.ID, DriveOptions{Pause: pause})
				if err != nil || now.State != caisson.RunPaused || now.Cause != caisson.CauseUser {
					t.Fatalf("it is %s (%s, %q), %v", now.State, now.Cause, now.Text, err)
				}
			}
			now, err := h.Drive(t.Context(), run.ID, DriveOptions{})
			if err != nil || now.State != caisson.RunSucceeded {
				t.Errorf("it is %s, %v", now.State, err)
			}
		})
	}
}
