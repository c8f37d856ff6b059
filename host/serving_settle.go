package host

import (
	"context"
	"time"

	"github.com/caisson-run/caisson"
)

// settle records the end of a session that went wrong, where that could not be
// recorded either, as on a disk that is full: this process still has its lease, and
// nobody else would end it. It is tried again until it is done or this process ends;
// then the next command does it. To be called by what answers who asked for it.
func (s *Serving) settle(run caisson.RunID, why error) {
	if why == nil {
		return
	}
	s.answered.Go(func() { // ends with life
		for pause := lookPause; !s.settled(run); pause = min(2*pause, maxBackoff) {
			select {
			case <-s.life.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// settled ends a session that this process has let go of, and tells whether that is
// on record. How far it came is not known.
func (s *Serving) settled(run caisson.RunID) bool {
	ctx, cancel := context.WithTimeout(s.life, closing)
	defer cancel()
	r, err := s.host.Ledger.Run(ctx, run)
	if err != nil {
		return false
	}
	if r.State.Terminal() || r.Lease.Instance == "" || r.Lease.Instance != s.host.instance.Instance.ID {
		return true
	}
	if _, err = s.host.Ledger.AskCancel(ctx, run, caisson.CauseUnknown, "caisson"); err == nil {
		_, err = s.host.Drive(ctx, run, DriveOptions{})
	}
	return err == nil
}
