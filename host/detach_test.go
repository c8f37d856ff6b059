package host

import (
	"context"
	"os/exec"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// since is a ledger in which something is done right after a run was read first.
type since struct {
	caisson.Ledger
	read func()
}

func (l *since) Run(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	r, err := l.Ledger.Run(ctx, id)
	if read := l.read; read != nil {
		l.read = nil
		read()
	}
	return r, err
}

// A process in the background that is through with its run before anybody looks
// for it has driven it; one that has not had it is told of.
func TestDrivenBeforeItIsLookedFor(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	r, err := h.Ledger.CreateRun(t.Context(), caisson.NewRunID(), caisson.RunSpec{Argv: []caisson.Bytes{"true"}, Preset: "sandboxed"})
	if err != nil {
		t.Fatal(err)
	}
	ended := ended(t)
	if err := h.awaitTaken(t.Context(), r, ended, nil); caisson.CodeOf(err) != caisson.CodeInternal {
		t.Errorf("nobody has had it, and it is told %v", err)
	}
	h.Ledger = &since{h.Ledger, func() {
		drive, err := h.take(t.Context(), r, false)
		if err == nil {
			err = h.Ledger.ReleaseLease(t.Context(), drive)
		}
		if err != nil {
			t.Error(err)
		}
	}}
	if err := h.awaitTaken(t.Context(), r, ended, nil); err != nil {
		t.Error(err)
	}
}

// ended is a process that has ended.
func ended(t *testing.T) caisson.ProcessIdentity {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600.25")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	is, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	return is
}
