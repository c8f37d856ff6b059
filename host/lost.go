package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/kernel"
)

// Lost tells whether a session was ended because what it was in has ended: the
// process that held it was killed, which any command sees, or its sandbox is gone.
// How far it came is not known.
func Lost(r caisson.Run) bool {
	return r.State == caisson.RunCancelled && r.Cause == caisson.CauseUnknown
}

// gone tells whether the session's box has ended.
func (s *session) gone() bool {
	if s.box == nil {
		return false
	}
	select {
	case <-s.box.Done():
		return true
	default:
		return false
	}
}

// endLost ends a session whose box has ended around it, in whatever way it met that:
// nothing of it is left, and there is nothing that it could go on in. Where it had
// begun the error is CodeOutcomeUnknown, and else why. Whoever asked for its end
// before is the cause of it, and then it went as asked.
func (s *session) endLost(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	r, err := s.host.Ledger.AskCancel(ctx, s.run.ID, caisson.CauseUnknown, "caisson")
	if caisson.CodeOf(err) == caisson.CodeStateInvalid { // it had come to its end
		return why
	}
	if err == nil {
		r, err = kernel.New(kernel.Options{Ledger: s.host.Ledger, Redact: redact(s.config)}).Cancel(ctx, s.drive)
	}
	if err != nil {
		return errors.Join(why, err)
	}
	return s.host.lostError(ctx, r, why)
}

// lostError is what there is to be told of a session that ended with its box: why,
// or where it had begun that its outcome is not known.
func (h *Host) lostError(ctx context.Context, r caisson.Run, why error) error {
	if r.State.Terminal() && !Lost(r) {
		return nil
	}
	begun, err := h.begun(ctx, r.ID)
	switch {
	case err != nil:
		return errors.Join(why, err)
	case !begun && why == nil:
		return caisson.Errorf(caisson.CodeSandboxLost, "the sandbox ended before session %s had begun in it", r.ID)
	case !begun:
		return why
	}
	how := ""
	if why != nil {
		how = fmt.Sprintf(" (%s)", caisson.AsError(why).Error())
	}
	return caisson.Errorf(caisson.CodeOutcomeUnknown, "the sandbox has ended%s, and all that ran in it has ended with it; how far session %s came is not known", how, r.ID)
}

// begun tells whether something of a run began whose end nobody saw.
func (h *Host) begun(ctx context.Context, id caisson.RunID) (bool, error) {
	calls, err := h.Ledger.Calls(ctx, id)
	return slices.ContainsFunc(calls, func(c caisson.CallRecord) bool {
		outcome := c.State.Outcome()
		return !c.Started.IsZero() && (outcome == "" || outcome == caisson.OutcomeUnknown || outcome == caisson.OutcomeCancelled)
	}), err
}

// endless tells whether a session that nobody drives is one that cannot go on and
// has not ended: its end was asked for, or its box ended around it. An earlier
// command may have been killed before it was through with that.
func (h *Host) endless(ctx context.Context, r caisson.Run) (bool, error) {
	if r.CancelAsked != "" {
		return true, nil
	}
	if r.State != caisson.RunPaused || r.Cause != "" {
		return false, nil // it waits, or a person stopped it
	}
	if _, guest, err := h.isGuest(ctx, r); err != nil || !guest {
		return false, err
	}
	return h.begun(ctx, r.ID)
}
