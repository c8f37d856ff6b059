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
	noted := working(t, h, drive)
	_, err := h.await(t.Context(), r.ID, idle)
	ended := time.Now()
	idleUntil(t, h, r.ID, noted(), ended, idle)
	saysUnknown(t, err, r)
	_, err = h.Cancel(t.Context(), r.ID)
	saysUnknown(t, err, r)
	if now, err := h.TakeOver(t.Context(), r.ID); err != nil || now.Lease.Instance != "" || now.Lease.Fence != drive.Fence+1 {
		t.Errorf("%+v, %v", now, err)
	}
	if now, err := h.Cancel(t.Context(), r.ID); err != nil || now.State != caisson.RunCancelled {
		t.Errorf("%+v, %v", now, err)
	}
}

// working has a driver record something three times, and then nothing more. noted
// waits for that, and tells when each was on record: a busy disk may take its time.
func working(t *testing.T, h *Host, drive caisson.Drive) (noted func() []time.Time) {
	t.Helper()
	var at []time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for range 3 {
			if err := h.Ledger.Append(t.Context(), drive, caisson.EventNote, map[string]any{"text": "at work"}); err != nil {
				t.Error(err)
			}
			at = append(at, time.Now())
			<-tick.C
		}
	}()
	return func() []time.Time { <-done; return at }
}

// idleUntil verifies that nothing of a run was on record anew in the time before a
// wait for it ended, as that has it go on.
func idleUntil(t *testing.T, h *Host, id caisson.RunID, noted []time.Time, ended time.Time, idle time.Duration) {
	t.Helper()
	events, err := h.Ledger.Events(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if noted[0].After(ended) {
		t.Error("it was given up before it recorded anything")
	}
	for _, e := range events {
		on := e.At // record at that time, or later
		if e.Kind == caisson.EventNote {
			on, noted = noted[0], noted[1:] // certainly
		}
		if quiet := ended.Sub(e.At); !on.After(ended) && quiet < idle {
			t.Errorf("it was given up %s after it recorded a %s", quiet, e.Kind)
		}
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
