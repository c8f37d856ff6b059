package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// isServed tells whether a run is a sandbox that is kept open.
func isServed(r caisson.Run) bool { return r.Spec.Session == caisson.SessionServed }

// isGuest tells whether a run is a session in a served sandbox, and in whose.
func (h *Host) isGuest(ctx context.Context, r caisson.Run) (caisson.Run, bool, error) {
	if r.Spec.Parent == "" || r.Spec.Session != caisson.SessionStreams && r.Spec.Session != caisson.SessionTerminal {
		return caisson.Run{}, false, nil
	}
	parent, err := h.Ledger.Run(ctx, r.Spec.Parent)
	return parent, err == nil && isServed(parent), err
}

// keptOpen tells whether a sandbox is one that is started again: of a served run
// that has not ended.
func (h *Host) keptOpen(ctx context.Context, record caisson.SandboxRecord) (bool, error) {
	if record.Run == "" {
		return false, nil
	}
	r, err := h.Ledger.Run(ctx, record.Run)
	return err == nil && isServed(r) && !r.State.Terminal(), err
}

// firstRecord returns the record under which the run's box is to be opened. A
// served run has one sandbox through all its lives.
func (s *session) firstRecord(ctx context.Context) (caisson.SandboxRecord, error) {
	fresh := caisson.SandboxRecord{ID: caisson.NewSandboxID(), State: caisson.SandboxCreating, Generation: 1}
	if s.served == nil {
		ch, err := s.host.Ledger.Channel(ctx, s.run.ID)
		if err != nil && caisson.CodeOf(err) != caisson.CodeNotFound {
			return fresh, err
		}
		fresh.Generation = ch.Generation + 1 // another sandbox is another life of the channel
	} else {
		records, err := s.host.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: s.run.ID, States: unremoved()})
		if err != nil {
			return fresh, err
		}
		if n := len(records); n > 0 {
			fresh = records[n-1]
			fresh.Guest, fresh.Leftovers = nil, nil // of its last life, of which nothing is left
			if err := s.replacing(&fresh); err != nil {
				return fresh, err
			}
		}
	}
	fresh.Run, fresh.Workspace, fresh.Instance = s.run.ID, s.run.Spec.Workspace, s.host.instance.Instance.ID
	fresh.Engine, fresh.At = s.run.Spec.Engine, s.host.Ledger.Now()
	return fresh, nil
}

// putBox moves the record of a box that is no longer there to where it rests.
func (h *Host) restBox(ctx context.Context, record *caisson.SandboxRecord, lost bool) error {
	kept, err := h.keptOpen(ctx, *record)
	if err != nil {
		return err
	}
	var way []caisson.SandboxState
	switch record.State {
	case caisson.SandboxRunning:
		way = append(way, caisson.SandboxStopped)
		if lost {
			way[0] = caisson.SandboxLost
		}
	case caisson.SandboxCreating:
		kept = false // there is nothing to be started again
	default:
	}
	switch {
	case !kept:
		way = append(way, caisson.SandboxRemoved)
	case lost || record.State == caisson.SandboxLost:
		if record.State != caisson.SandboxStopped {
			way = append(way, caisson.SandboxStopped)
		}
	}
	for _, state := range way {
		record.State = state
		if err := h.Ledger.PutSandbox(ctx, *record); err != nil {
			return err
		}
	}
	if record.State == caisson.SandboxRemoved {
		h.dropChannel(ctx, record.ID)
	}
	return nil
}

// retire removes what is left of a served run that ends for good, and ends the
// sessions in it that wait or are paused: there is nothing that they could go on in.
func (h *Host) retire(ctx context.Context, r caisson.Run) error {
	errs := []error{h.endWithin(ctx, r)}
	records, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: r.ID, States: unremoved()})
	errs = append(errs, err)
	for _, record := range records {
		if record.State == caisson.SandboxRunning { // its box was swept
			record.State = caisson.SandboxStopped
			errs = append(errs, h.Ledger.PutSandbox(ctx, record))
		}
		record.State = caisson.SandboxRemoved
		errs = append(errs, h.Ledger.PutSandbox(ctx, record))
		h.dropChannel(ctx, record.ID)
	}
	return errors.Join(errs...)
}

// endWithin has the sessions of a served run end. Who drives one ends it; one that
// nobody drives is ended here.
func (h *Host) endWithin(ctx context.Context, r caisson.Run) error {
	within, err := h.Ledger.Runs(ctx, caisson.RunFilter{Parent: r.ID, States: unended()})
	errs := []error{err}
	for _, s := range within {
		s, err := h.Ledger.AskCancel(ctx, s.ID, caisson.CauseParent, "caisson")
		if caisson.CodeOf(err) == caisson.CodeStateInvalid {
			continue // it has just ended
		}
		driven := false
		if err == nil && !s.State.Terminal() {
			s, driven, err = h.Driven(ctx, s)
		}
		if err == nil && !driven && !s.State.Terminal() {
			_, err = h.Drive(ctx, s.ID, DriveOptions{})
		}
		if err != nil && caisson.CodeOf(err) != caisson.CodeLeaseHeld { // somebody has just taken it up, and sees it
			errs = append(errs, fmt.Errorf("end session %s: %w", s.ID, err))
		}
	}
	return errors.Join(errs...)
}

// sweepAround ends what an ended process left of the box that a session was in:
// the session ended with it.
func (h *Host) sweepAround(ctx context.Context, r caisson.Run) error {
	parent, guest, err := h.isGuest(ctx, r)
	if err != nil || !guest {
		return err
	}
	left, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: parent.ID, States: unremoved()})
	if err != nil {
		return err
	}
	for _, record := range left {
		holder, err := h.Ledger.Instance(ctx, record.Instance)
		if err != nil {
			return err
		}
		if process.InstanceLiveness(holder) != caisson.Dead || record.State == caisson.SandboxStopped {
			continue
		}
		if err := h.sweepOne(ctx, record); err != nil {
			return err
		}
	}
	return nil
}
