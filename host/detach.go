package host

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// takeUp bounds how long a detached driver may take until it has the lease.
const takeUp = 20 * time.Second

// Detach starts a process of its own that drives a run, and returns when that
// has the run's lease: from then on it is on record who drives.
func (h *Host) Detach(ctx context.Context, id caisson.RunID) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return err
	}
	return h.detach(ctx, r, "runs", "resume", "--park", string(id))
}

// detach starts this program with args, to drive r.
func (h *Host) detach(ctx context.Context, r caisson.Run, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "find own program: %w", err)
	}
	started, err := process.Detach(process.Command{Path: self, Args: args, Env: os.Environ(), Dir: h.dir})
	if err != nil {
		return err
	}
	return h.awaitTaken(ctx, r, started, args)
}

// awaitTaken returns when a process that was started with args has taken r up, or
// has had it: it may be through with it by now.
func (h *Host) awaitTaken(ctx context.Context, r caisson.Run, started caisson.ProcessIdentity, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, takeUp)
	defer cancel()
	id, before := r.ID, r.Lease.Fence
	for seen, dead := int64(0), false; ; {
		r, err := h.Ledger.Run(ctx, id)
		if err != nil {
			return err
		}
		if r.Lease.Fence != before || r.State.Terminal() {
			return nil
		}
		if dead {
			return caisson.Errorf(caisson.CodeInternal, "the process that should drive run %s ended at once", id).
				WithHint("See why: `caisson %s`.", strings.Join(args, " "))
		}
		if dead = process.Alive(started) == caisson.Dead; dead {
			continue // what it wrote it wrote before that
		}
		waiting, done := context.WithTimeout(ctx, time.Second) // one that dies writes nothing
		n, err := h.Ledger.Wait(waiting, id, max(seen, r.Events))
		done()
		switch {
		case err == nil:
			seen = n
		case ctx.Err() != nil || waiting.Err() == nil:
			return fmt.Errorf("wait for the driver of run %s: %w", id, err)
		}
	}
}

// Cancel asks for the end of a run and waits until it has ended. Where nobody
// drives it, it is taken up to be ended here; where its driver is stopped or
// does nothing, it will end when that goes on, and an error says so.
func (h *Host) Cancel(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	r, err := h.Ledger.AskCancel(ctx, id, caisson.CauseUser, Person())
	for err == nil && !r.State.Terminal() {
		r, err = h.Drive(ctx, id, DriveOptions{})
		if caisson.CodeOf(err) == caisson.CodeLeaseHeld {
			r, err = h.awaitTold(ctx, id)
		}
	}
	return r, err
}
