package host

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// quiesceAll ends what runs in a served sandbox, requests and sessions, within
// one time of quiescing for all: nothing more is taken, then all of it is asked
// to end, from half of the time on it is ended by force, and in the end the box
// is closed around what is left. When it returns nothing runs.
func (s *session) quiesceAll(ctx context.Context, cause caisson.Cause) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quiescing)
	defer cancel()
	pass("host.quiesce.begun")
	requests := make(chan error, 1)
	go func() { // ends with ctx
		if s.broker == nil {
			requests <- nil
			return
		}
		requests <- s.broker.Quiesce(ctx)
	}()
	err := s.served.quiesce(ctx, cmp.Or(cause, caisson.CauseParent)) // without a cause nobody would be asked
	requestErr := <-requests
	if caisson.CodeOf(requestErr) == caisson.CodeOrphanAlive { // with the box all of it ends
		requestErr = s.box.Close()
	}
	return errors.Join(err, requestErr)
}

// force ends the programs of the sessions that are at work, by the identities on
// record. Each session tells itself how its program ended.
func (v *served) force(ctx context.Context, h *Host) {
	for _, run := range v.busy() {
		calls, err := h.Ledger.Calls(ctx, run)
		if err != nil {
			continue // the end of the box ends it
		}
		for _, c := range calls {
			if c.State == caisson.CallStarted && c.Executor != nil {
				_ = process.EndTree(ctx, *c.Executor) // as above
			}
		}
	}
}

// ends waits until all sessions have left, forcing them from half of ctx's time
// on; false: some are left when it is over.
func (v *served) ends(ctx context.Context, h *Host, left <-chan struct{}) bool {
	until, _ := ctx.Deadline()
	half := time.NewTimer(time.Until(until) / 2)
	defer half.Stop()
	for {
		select {
		case <-left:
			return true
		case <-half.C:
			v.force(ctx, h)
		case <-ctx.Done():
			return false
		}
	}
}
