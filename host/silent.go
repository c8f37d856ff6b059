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
func notAnswering(driver caisson.ProcessIdentity, run caisson.RunID) *caisson.Error {
	how, hint := standing(driver.PID)
	return caisson.Errorf(caisson.CodeHolderUnknown, "process %d, which drives run %s, %s", driver.PID, run, how).WithHint("%s", hint)
}

// driverUnknown says that it cannot be told whether a run is driven, and how a
// person who knows that it is not goes on.
func driverUnknown(driver caisson.Instance, run caisson.RunID) *caisson.Error {
	return caisson.Errorf(caisson.CodeHolderUnknown, "whether process %d on %s still drives run %s cannot be told here", driver.Process.PID, driver.Process.Host, run).
		WithHint("Look on %s. If you know that it is gone: `caisson runs resume %s --take-over --yes`.", driver.Process.Host, run)
}

// silent is driverUnknown of one that was waited for.
func (d driver) silent(run caisson.RunID, idle time.Duration) error {
	e := driverUnknown(d.Instance, run)
	e.Message += fmt.Sprintf(", and nothing was recorded of it for %s", idle.Round(time.Second))
	return e
}

// notEnding is notAnswering of one that was told to end the run.
func notEnding(driver caisson.ProcessIdentity, run caisson.RunID) error {
	e := notAnswering(driver, run)
	e.Message += "; it was told, and ends the run when it goes on"
	return e
}

// stoppedFor is how long a driver may be stopped while somebody waits for what it
// was told to do: a debugger, or a person, may do it for a moment. silentFor is how
// long it may record nothing of the run: the longest single step of an end is a look
// at a large tree.
const (
	stoppedFor = 10 * time.Second
	silentFor  = 3 * time.Minute
)

// awaitTold is Await for who has told the driver to end the run, and gives up on
// one that is stopped, and on one that does nothing, as that of which this state
// directory is a copy.
func (h *Host) awaitTold(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	looking := make(chan struct{})
	go func() { // ends with ctx
		defer close(looking)
		h.untilSilent(ctx, id, silentFor, enough)
	}()
	r, err := h.Await(ctx, id)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	enough(nil)
	<-looking
	return r, err
}

// untilSilent ends a wait whose run's driver has been stopped for too long, or has
// recorded nothing for as long as idle.
func (h *Host) untilSilent(ctx context.Context, id caisson.RunID, idle time.Duration, enough context.CancelCauseFunc) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	events, stopped, silent := int64(0), time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		r, err := h.Ledger.Run(ctx, id)
		var driver caisson.Instance
		if err == nil && r.Lease.Instance != "" {
			driver, err = h.Ledger.Instance(ctx, r.Lease.Instance)
		}
		if err != nil || r.Lease.Instance == "" || process.Alive(driver.Process) != caisson.Alive {
			stopped, silent = time.Now(), time.Now() // none is seen that could be either; Await meets it
			continue
		}
		if r.Events != events {
			events, silent = r.Events, time.Now()
		}
		if !process.Stopped(driver.Process.PID) {
			stopped = time.Now()
		}
		if time.Since(stopped) > stoppedFor || time.Since(silent) > idle {
			enough(notEnding(driver.Process, id))
		}
	}
}
