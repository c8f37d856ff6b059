package host

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/terminal"
)

// drivenByUnknown makes a run whose driver cannot be told to live: its lock is gone,
// as after a logout that removed the runtime directory.
func drivenByUnknown(t *testing.T, h *Host, spec caisson.RunSpec) (caisson.Run, caisson.Drive) {
	t.Helper()
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	self.Host, self.PID = "far", 4711
	inst := caisson.Instance{ID: caisson.NewInstanceID(), Process: self, Lock: t.TempDir() + "/instances/gone.lock", Started: time.Now()}
	if alive := process.InstanceLiveness(inst); alive != caisson.LivenessUnknown {
		t.Fatalf("it is %s", alive)
	}
	return drivenBy(t, h, inst, spec)
}

// drivenBy makes a run that an instance drives.
func drivenBy(t *testing.T, h *Host, inst caisson.Instance, spec caisson.RunSpec) (caisson.Run, caisson.Drive) {
	t.Helper()
	if err := h.Ledger.PutInstance(t.Context(), inst); err != nil {
		t.Fatal(err)
	}
	r, err := h.Ledger.CreateRun(t.Context(), caisson.NewRunID(), spec)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := h.Ledger.TakeLease(t.Context(), r.ID, inst.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	drive := caisson.Drive{Run: r.ID, Fence: lease.Fence}
	if r, err = h.Ledger.MoveRun(t.Context(), drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		t.Fatal(err)
	}
	return r, drive
}

// saysUnknown verifies that an error names the driver, and says what to do.
func saysUnknown(t *testing.T, err error, r caisson.Run) {
	t.Helper()
	e := caisson.AsError(err)
	if e == nil || e.Code != caisson.CodeHolderUnknown || !strings.Contains(e.Error(), "process 4711 on far") || !strings.Contains(e.HintText(), "caisson runs resume "+string(r.ID)+" --take-over --yes") {
		t.Errorf("%v, %v", err, e)
	}
}

// Who waits for a run whose driver may be gone waits as long as something is
// recorded of it, and no longer.
func TestDriverUnknown(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	r, drive := drivenByUnknown(t, h, caisson.RunSpec{Argv: []caisson.Bytes{"true"}, Preset: "sandboxed"})
	const idle = 2500 * time.Millisecond
	noted := make(chan error, 3)
	go func() { // its driver works, and then no more
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for range cap(noted) {
			noted <- h.Ledger.Append(t.Context(), drive, caisson.EventNote, map[string]any{"text": "at work"})
			<-tick.C
		}
	}()
	_, err := h.await(t.Context(), r.ID, idle)
	idleUntil(t, h, r.ID, time.Now(), idle)
	saysUnknown(t, err, r)
	for range cap(noted) {
		if err := <-noted; err != nil {
			t.Error(err)
		}
	}
	_, err = h.Cancel(t.Context(), r.ID)
	saysUnknown(t, err, r)
	if now, err := h.TakeOver(t.Context(), r.ID); err != nil || now.Lease.Instance != "" || now.Lease.Fence != drive.Fence+1 {
		t.Errorf("%+v, %v", now, err)
	}
	if now, err := h.Cancel(t.Context(), r.ID); err != nil || now.State != caisson.RunCancelled {
		t.Errorf("%+v, %v", now, err)
	}
}

// idleUntil verifies that nothing of a run was recorded in the time before a wait
// for it ended, as what is recorded has it go on.
func idleUntil(t *testing.T, h *Host, id caisson.RunID, ended time.Time, idle time.Duration) {
	t.Helper()
	events, err := h.Ledger.Events(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	noted := 0
	for _, e := range events {
		if e.At.After(ended) {
			break
		}
		if quiet := ended.Sub(e.At); quiet < idle {
			t.Errorf("it was given up %s after it recorded a %s", quiet, e.Kind)
		}
		if e.Kind == caisson.EventNote {
			noted++
		}
	}
	if noted == 0 {
		t.Error("it recorded nothing")
	}
}

// Nobody is let in by a holder that is not there, and who asks is told which one
// that is.
func TestHolderUnknown(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	r, _ := drivenByUnknown(t, h, caisson.RunSpec{Session: caisson.SessionTerminal, Argv: []caisson.Bytes{"sh"}, Preset: "sandboxed"})
	_, _, err := h.Attach(t.Context(), r.ID, terminal.View{})
	saysUnknown(t, err, r)
}

// A process that serves, and is killed, lives for a moment after its socket is
// gone: who wants its sandbox stopped waits for its end.
func TestStopWhileTheServerDies(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	server, err := process.Register(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, _ := drivenBy(t, h, server.Instance, caisson.RunSpec{Session: caisson.SessionServed, Preset: "sandboxed"})
	gone := make(chan error, 1)
	time.AfterFunc(settleBound/10, func() { gone <- server.Close() })
	r, err = h.StopServed(t.Context(), r.ID)
	if err != nil || r.State != caisson.RunPaused {
		t.Errorf("run %s: %v", r.State, err)
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
}
