package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/kernel"
	"github.com/caisson-run/caisson/process"
)

// DriveOptions say how a run is driven.
type DriveOptions struct {
	// Pause receives the cause of a pause: the turn is stopped and the run parked.
	Pause <-chan caisson.Cause
	// ParkAtOnce parks the run as soon as only reviews are left: nobody is there
	// to answer them soon.
	ParkAtOnce bool
	// Agent has the streams of a foreign agent, and PTY makes them a terminal;
	// nil gives it none. A call that is on record keeps what it began with: see
	// [Host.AgentPTY].
	Agent *agent.Options
	PTY   bool
	// Settled is called when the command of a foreign agent has ended, with the
	// lease still held. Nil is nothing.
	Settled func(ctx context.Context, drive caisson.Drive) error
	// Observe is told what the built-in agent does, for display. See
	// kernel.Options.
	Observe func(kernel.Event)

	served *served  // keeps the run open
	within *session // in whose box the run's command is
	taken  func()   // is called when the lease is taken
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
	drive, err := h.take(ctx, r, false)
	if err != nil {
		return r, err
	}
	if opts.taken != nil {
		opts.taken()
	}
	err = h.drive(ctx, drive, r, opts)
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if caisson.CodeOf(err) != caisson.CodeLeaseLost {
		err = errors.Join(err, h.Ledger.ReleaseLease(cleanup, drive))
	}
	now, readErr := h.Ledger.Run(cleanup, id)
	if err != nil {
		if readErr == nil && endedMeanwhile(now, err) {
			return now, nil
		}
		return r, err
	}
	return now, readErr
}

// endedMeanwhile tells whether all that went wrong is that a run was cancelled while
// its box was being opened: one that is pending has ended with that.
func endedMeanwhile(now caisson.Run, err error) bool {
	return now.State == caisson.RunCancelled && !slices.ContainsFunc(leaves(err), func(part error) bool {
		return caisson.CodeOf(part) != caisson.CodeStateInvalid
	})
}

// drive is Drive with the lease in hand.
func (h *Host) drive(ctx context.Context, drive caisson.Drive, r caisson.Run, opts DriveOptions) error {
	if err := h.sweep(ctx, r); err != nil {
		return err
	}
	if r.CancelAsked == "" {
		if err := h.hasPlace(ctx, r, opts); err != nil {
			return err
		}
		s := &session{host: h, drive: drive, run: r, parkAtOnce: opts.ParkAtOnce, served: opts.served, within: opts.within}
		err := s.open(ctx)
		if err == nil {
			err = errors.Join(s.work(ctx, opts), s.close(ctx))
		}
		err = errors.Join(err, s.vacate())
		if err == nil && s.rest != nil {
			err = s.move(context.WithoutCancel(ctx), *s.rest)
		}
		switch {
		case caisson.CodeOf(err) == caisson.CodeLeaseLost:
			return err
		case s.within != nil && s.gone():
			return s.endLost(ctx, err)
		case err != nil:
			return errors.Join(err, s.fail(ctx, err))
		}
	}
	// A cancel may have come when the run was no longer at work, or before.
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if isServed(r) {
		now, err := h.Ledger.Run(ended, r.ID)
		if err == nil && now.CancelAsked != "" {
			err = h.retire(ended, now)
		}
		if err != nil {
			return err
		}
	}
	_, err := kernel.New(kernel.Options{Ledger: h.Ledger, Redact: redact(h.Config)}).Cancel(ended, drive)
	return err
}

// hasPlace refuses to drive here what only the process that serves can: a
// sandbox that is kept open, and what works in one.
func (h *Host) hasPlace(ctx context.Context, r caisson.Run, opts DriveOptions) error {
	_, guest, err := h.isGuest(ctx, r)
	if err == nil && (isServed(r) && opts.served == nil || guest && opts.within == nil) {
		err = caisson.Errorf(caisson.CodeStateInvalid, "run %s can only be driven by the process that serves sandboxes", r.ID)
	}
	return err
}

// Await returns the run when it has ended, or when nobody drives it any more. One
// whose driver cannot be told to live is waited for as long as the record grows:
// CodeHolderUnknown when nothing of it was recorded for silentFor.
func (h *Host) Await(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	return h.await(ctx, id, silentFor)
}

func (h *Host) await(ctx context.Context, id caisson.RunID, idle time.Duration) (caisson.Run, error) {
	events, silent := int64(0), time.Now()
	for seen := int64(0); ; {
		r, err := h.Ledger.Run(ctx, id)
		if err != nil || r.State.Terminal() {
			return r, err
		}
		r, driver, err := h.driver(ctx, r)
		if err != nil || driver.Liveness == caisson.Dead {
			return r, err
		}
		if r.Events != events || driver.Liveness == caisson.Alive {
			events, silent = r.Events, time.Now()
		}
		if time.Since(silent) > idle {
			return r, driver.silent(id, idle)
		}
		// A driver that dies writes nothing: it is looked for each second.
		waiting, done := context.WithTimeout(ctx, time.Second)
		n, err := h.Ledger.Wait(waiting, id, max(seen, r.Events))
		done()
		switch {
		case err == nil:
			seen = n
		case ctx.Err() != nil || waiting.Err() == nil:
			return r, err
		}
	}
}

// Driven tells whether a process drives the run, as far as can be told here, and
// returns the run as it then is: one that ends says so in the record before its
// process ends, so that what was read before the look may be old.
func (h *Host) Driven(ctx context.Context, r caisson.Run) (caisson.Run, bool, error) {
	r, driver, err := h.driver(ctx, r)
	return r, err == nil && driver.Liveness != caisson.Dead, err
}

// driver is who drives a run; nobody is dead.
type driver struct {
	caisson.Instance
	caisson.Liveness
}

// driver is Driven that names the driver.
func (h *Host) driver(ctx context.Context, r caisson.Run) (caisson.Run, driver, error) {
	for r.Lease.Instance != "" {
		holder, err := h.Ledger.Instance(ctx, r.Lease.Instance)
		if err != nil {
			return r, driver{}, err
		}
		is := driver{holder, process.InstanceLiveness(holder)}
		if is.Liveness != caisson.Dead {
			return r, is, nil
		}
		now, err := h.Ledger.Run(ctx, r.ID)
		if err != nil || now.Lease.Instance == holder.ID {
			return now, is, err
		}
		r = now
	}
	return r, driver{Liveness: caisson.Dead}, nil
}
