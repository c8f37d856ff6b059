package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// A sandbox cannot keep its run, or what comes after it, from their end by what
// it makes of its channel.
func TestChannelShut(t *testing.T) {
	h := opened(t, "", nil)
	run, err := h.NewRun(t.Context(), RunRequest{NoWorkspace: true, Argv: []string{"sh", "-ec", `
		cd "$CAISSON_CONTROL/channel/requests" && mkdir -p x/y && touch x/y/z && chmod 0 x`}})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Drive(t.Context(), run.ID, DriveOptions{})
	if err != nil || r.State != caisson.RunSucceeded {
		t.Errorf("the run: %s, %v", r.State, err)
	}
	if found, err := h.channelRemains(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("left: %v, %v", found, err)
	}
}

// A channel that cannot be removed is residue, and no error of a sweep; when it
// can be, it is.
func TestChannelStuck(t *testing.T) {
	h := opened(t, "", nil)
	id := caisson.NewSandboxID()
	stuck := filepath.Join(h.channelDir(id), "channel/requests/stuck")
	if err := os.MkdirAll(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(stuck)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	if err := set(unix.STATX_ATTR_IMMUTABLE); err != nil { // the flag has the same number
		t.Skipf("no directory can be made immutable: %v", err)
	}
	t.Cleanup(func() { _ = set(0) })
	record := caisson.SandboxRecord{ID: id, State: caisson.SandboxCreating, Engine: h.engines[0].Name(), Generation: 1, At: h.Ledger.Now()}
	if err := h.Ledger.PutSandbox(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if err := h.restBox(t.Context(), &record, true); err != nil || record.State != caisson.SandboxRemoved {
		t.Errorf("the box rests: %s, %v", record.State, err)
	}
	if err := h.tidy(t.Context()); err == nil || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("the tidying says %v", err)
	}
	if found, err := h.channelRemains(t.Context()); err != nil || len(found) != 1 || found[0].Live {
		t.Errorf("left: %v, %v", found, err)
	}
	if err := set(0); err != nil {
		t.Fatal(err)
	}
	if err := h.tidy(t.Context()); err != nil {
		t.Error(err)
	}
	if found, err := h.channelRemains(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("left: %v, %v", found, err)
	}
}
