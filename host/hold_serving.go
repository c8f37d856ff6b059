package host

import (
	"context"
	"time"

	"github.com/caisson-run/caisson"
)

// parkedBound is how long it may take until the status of a channel says that it
// is parked.
const parkedBound = 5 * time.Second

// doYield stops a sandbox for somebody who takes its workspace: the channel is
// parked first, so that who asks inside hears why, and only where no request
// runs. Then the sandbox is stopped, with the sessions in it.
func (s *Serving) doYield(ctx context.Context, r caisson.Run, request servingRequest) (servingReply, error) {
	s.mu.Lock()
	v := s.open[r.ID]
	s.mu.Unlock()
	if v == nil {
		return servingReply{}, caisson.Errorf(caisson.CodeStateInvalid, "the sandbox of run %s is not open", r.ID).WithHint("`caisson sandbox start %s` opens it.", r.ID)
	}
	if err := v.await(ctx); err != nil {
		return servingReply{}, err
	}
	if err := s.park(ctx, v); err != nil {
		return servingReply{}, err
	}
	pass("host.hold.parked")
	v.halt(&caisson.CauseError{Cause: caisson.CauseUser, Text: request.Text})
	if err := v.over(ctx); err != nil {
		return servingReply{}, err
	}
	return s.reply(r.ID)
}

// park parks the channel of an open sandbox, and returns when its status says so.
func (s *Serving) park(ctx context.Context, v *served) error {
	box, back, err := v.borrow()
	if err != nil {
		return err
	}
	defer back()
	if box.broker == nil {
		return nil
	}
	if now := box.broker.Status(); now.State != caisson.BrokerHealthy {
		return caisson.Errorf(caisson.CodeStateInvalid, "its channel is %s and not healthy %s", now.State, now.Reason).WithHint("See `caisson sandbox start %s`.", v.run)
	}
	box.broker.Park(caisson.CodeHandoffActive, caisson.CodeHandoffActive.Info().Meaning)
	if now := box.broker.Status(); now.Running+now.Queued > 0 { // none begins after the park
		box.broker.Unpark(caisson.CodeHandoffActive)
		return caisson.Errorf(caisson.CodeBusy, "requests run in it (%d) or are queued (%d)", now.Running, now.Queued).WithHint("Try again when they have ended.")
	}
	ctx, cancel := context.WithTimeout(ctx, parkedBound)
	defer cancel()
	for {
		if told := s.host.brokerStatus(box.record.ID); told != nil && told.State == caisson.BrokerParked && told.Reason == caisson.CodeHandoffActive {
			return nil
		}
		select {
		case <-ctx.Done():
			box.broker.Unpark(caisson.CodeHandoffActive)
			return caisson.Errorf(caisson.CodeWriteFailed, "the status of the channel could not be written")
		case <-time.After(reachPause):
		}
	}
}
