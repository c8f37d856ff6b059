package host

import (
	"errors"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// A sandbox whose process has stopped it in order since the record was read is not
// called one whose process was killed.
func TestFoundAsItIsStopped(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	server, err := process.Register(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := caisson.RunSpec{Session: caisson.SessionServed, Preset: "sandboxed"}
	read, drive := drivenBy(t, h, server.Instance, spec)
	killed, _ := drivenBy(t, h, server.Instance, spec)
	_, err = h.Ledger.MoveRun(t.Context(), drive, caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Cause: caisson.CauseUser, Text: "a person stopped it"})
	if err := errors.Join(err, h.Ledger.ReleaseLease(t.Context(), drive), server.Close()); err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]caisson.Run{
		"it was stopped: a person stopped it":                                read,
		"the process that kept it open was killed; what that left was ended": killed,
	} {
		if found := h.foundBefore(t.Context(), r); len(found) != 1 || found[0].Says != want {
			t.Errorf("%+v, want %q", found, want)
		}
	}
}
