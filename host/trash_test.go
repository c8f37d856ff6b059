package host

import (
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// The sandbox of a holder that is dead may be there still, if its engine did
// not answer when it was swept: nobody can tell whether it writes.
func TestSandboxThatCouldNotBeSwept(t *testing.T) {
	h, ws := opened(t, "", nil), vacant(t)
	dead, err := process.Register(h.Paths.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Ledger.PutInstance(t.Context(), dead.Instance); err != nil {
		t.Fatal(err)
	}
	record := caisson.SandboxRecord{ID: caisson.NewSandboxID(), Workspace: ws.ID, Instance: dead.Instance.ID, Engine: "docker", State: caisson.SandboxCreating}
	if err := h.Ledger.PutSandbox(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if opts, err := h.users(t.Context(), ws); err != nil || len(opts.Unknown) != 1 || opts.Driver != "" {
		t.Errorf("%+v, %v", opts, err)
	}
}
