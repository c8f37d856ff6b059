package host

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
)

// DriveOptions say how a run is driven.
type DriveOptions struct {
	// TakeOver takes the lease also from a holder of whom it cannot be told
	// whether it lives.
	TakeOver bool
	// Pause receives the cause of a pause: the turn is stopped and the run parked.
	Pause <-chan caisson.Cause
	// Agent has the streams of a foreign agent, and PTY makes them a terminal;
	// nil gives it none.
	Agent *agent.Options
	PTY   bool
}

// closing bounds the clean-up after a run: by then its context is often dead.
const closing = 20 * time.Second

// Drive takes up a run wherever its record says that it is, and drives it until
// it ends, waits for a person or is paused. It returns the run as it is then.
func (h *Host) Drive(ctx context.Context, id caisson.RunID, opts DriveOptions) (caisson.Run, error) {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return r, err
	}
	if r.State.Terminal() {
		return r, nil
	}
	drive, err := h.take(ctx, r, opts.TakeOver)
	if err != nil {
		return r, err
	}
	err = h.drive(ctx, drive, r, opts)
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if caisson.CodeOf(err) != caisson.CodeLeaseLost {
		err = errors.Join(err, h.Ledger.ReleaseLease(cleanup, drive))
	}
	if err != nil {
		return r, err
	}
	return h.Ledger.Run(cleanup, id)
}

// drive is Drive with the lease in hand.
func (h *Host) drive(ctx context.Context, drive caisson.Drive, r caisson.Run, opts DriveOptions) error {
	if err := h.sweep(ctx, r.ID); err != nil {
		return err
	}
	s := &session{host: h, drive: drive, run: r}
	if err := s.open(ctx); err != nil {
		return errors.Join(err, s.fail(ctx, err))
	}
	err := s.work(ctx, opts)
	return errors.Join(err, s.close(ctx))
}
