package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/terminal"
)

// What another command has done by the time that one looks changes nothing about what
// is told: a run that was driven to its end is no mistake of who decided something in
// it, and a session whose holder was killed has no outcome also when it was ended.
func TestToldTheSameLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	vars := map[string]string{"HOME": dir}
	for name, d := range map[string]string{"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"} {
		vars[name] = filepath.Join(dir, d)
		if err := os.Mkdir(vars[name], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.Open(t.Context(), host.Options{Env: func(name string) string { return vars[name] }, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // nothing of it is open
	r, err := h.Ledger.CreateRun(t.Context(), caisson.NewRunID(), caisson.RunSpec{Prompt: "do it", Preset: "sandboxed"})
	if err == nil {
		r, err = h.Ledger.AskCancel(t.Context(), r.ID, caisson.CauseUser, "ann")
	}
	if err != nil || !r.State.Terminal() {
		t.Fatalf("it is %s, %v", r.State, err)
	}
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	a := newApp(IO{Err: stderr}, func() {})
	killed, err := h.Ledger.CreateRun(t.Context(), caisson.NewRunID(), caisson.RunSpec{Session: caisson.SessionTerminal, Argv: []caisson.Bytes{"sh"}, Preset: "sandboxed"})
	if err == nil {
		killed, err = h.Ledger.AskCancel(t.Context(), killed.ID, caisson.CauseUnknown, "caisson") // as for a holder that was killed
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.afterLook(t.Context(), h, terminal.WentLost, killed); caisson.CodeOf(err) != caisson.CodeOutcomeUnknown {
		t.Errorf("who looked at a session whose holder was killed is told %v", err)
	}
	err = a.resumeDecided(t.Context(), h, r.ID)
	if said, readErr := os.ReadFile(stderr.Name()); err != nil || readErr != nil || !strings.Contains(string(said), "it has ended: cancelled") {
		t.Errorf("%q, %v, %v", said, err, readErr)
	}
}
