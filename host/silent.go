package host

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// standing says how a process that does not answer stands, and what to do about it.
func standing(pid int) (how, hint string) {
	how = "does not answer"
	if process.Stopped(pid) {
		how = "is stopped (SIGSTOP, or Ctrl-Z at its terminal)"
	}
	return how, fmt.Sprintf("`kill -CONT %d` has it go on, if it was stopped. `kill -9 %d` ends it, with all that runs in its sandboxes: the next command goes on from the record.", pid, pid)
}

// notAnswering says that the process that drives a run does nothing about it.
func notAnswering(driver caisson.ProcessIdentity, run caisson.RunID) error {
	how, hint := standing(driver.PID)
	return caisson.Errorf(caisson.CodeHolderUnknown, "process %d, which drives run %s, %s; it was told, and ends the run when it goes on", driver.PID, run, how).WithHint("%s", hint)
}

// stoppedFor is how long a driver may be stopped while somebody waits for what it
// was told to do: a debugger, or a person, may do it for a moment.
const stoppedFor = 10 * time.Second

// awaitTold is Await for who has told the driver to end the run, and gives up on
// one that is stopped.
func (h *Host) awaitTold(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	looking := make(chan struct{})
	go func() { // ends with ctx
		defer close(looking)
		h.untilStopped(ctx, id, enough)
	}()
	r, err := h.Await(ctx, id)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	enough(nil)
	<-looking
	return r, err
}

// untilStopped ends a wait whose run's driver has been stopped for too long.
func (h *Host) untilStopped(ctx context.Context, id caisson.RunID, enough context.CancelCauseFunc) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		lease, err := h.Ledger.Lease(ctx, id)
		if err != nil || lease.Instance == "" {
			continue // Await meets it
		}
		driver, err := h.Ledger.Instance(ctx, lease.Instance)
		if err != nil || process.Alive(driver.Process) != caisson.Alive || !process.Stopped(driver.Process.PID) {
			since = time.Now()
			continue
		}
		if time.Since(since) > stoppedFor {
			enough(notAnswering(driver.Process, id))
		}
	}
}
