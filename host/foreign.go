package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/airlock"
)

// foreign runs somebody else's agent: one call, whose door is the boundary.
func (s *session) foreign(ctx context.Context, opts DriveOptions) error {
	if err := s.running(ctx); err != nil {
		return err
	}
	work, stop := s.bounded(ctx)
	defer stop()
	input, err := json.Marshal(agent.CommandInput{Argv: s.run.Spec.Argv, PTY: opts.PTY})
	if err != nil {
		return err
	}
	command := agent.Options{}
	if opts.Agent != nil {
		command = *opts.Agent
	}
	command.Sandbox, command.SpillDir = s.box, s.spillDir()
	settled, err := s.door.Settle(work, []airlock.Request{{
		ID: caisson.NewCallID(s.run.ID, 1, 1), Turn: 1, Name: agent.CommandName, Input: string(input), Tool: agent.NewCommand(command),
	}})
	record := context.WithoutCancel(ctx)
	if err != nil && context.Cause(work) == nil {
		return errors.Join(err, s.move(record, caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Text: err.Error()}))
	}
	ending, end := lingering(ctx)
	defer end()
	if err := s.turnEnd(ending, caisson.Turn{N: 1}, settled); err != nil {
		return err
	}
	return s.endForeign(record, context.Cause(work), settled)
}

// lingering returns a context that ends a while after ctx has: what is under
// way may come to its end, and cannot be held up by what runs inside.
func lingering(ctx context.Context) (context.Context, func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	expired := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(closing, func() { cancel(context.DeadlineExceeded) })
		<-expired
		timer.Stop()
	})
	return longer, func() {
		unhook()
		close(expired)
		cancel(nil)
	}
}

// running moves the run on, unless someone wants it cancelled.
func (s *session) running(ctx context.Context) error {
	if s.run.State == caisson.RunRunning || s.run.State == caisson.RunCancelling {
		return nil
	}
	return s.move(ctx, caisson.RunMove{To: caisson.RunRunning})
}

func (s *session) move(ctx context.Context, move caisson.RunMove) error {
	_, err := s.host.Ledger.MoveRun(ctx, s.drive, move)
	return err
}

// bounded returns a context that ends when the run's time is over or a cancel
// is asked for, with that cause.
func (s *session) bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	free := func() {}
	if wall := s.run.Spec.Budget.Wall; wall > 0 {
		over := &caisson.CauseError{Cause: caisson.CauseDeadline, Text: fmt.Sprintf("the run's time of %s is over", wall)}
		ctx, free = context.WithTimeoutCause(ctx, wall-s.run.Active, over)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for seen := int64(0); ctx.Err() == nil; {
			r, err := s.host.Ledger.Run(ctx, s.run.ID)
			if err != nil {
				cancel(err)
				return
			}
			if r.CancelAsked != "" {
				cancel(&caisson.CauseError{Cause: r.CancelAsked, Text: "cancel was asked"})
				return
			}
			if seen, err = s.host.Ledger.Wait(ctx, s.run.ID, max(seen, r.Events)); err != nil {
				cancel(err)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		free()
		watching.Wait()
	}
}

// endForeign moves the run to where its one call has brought it.
func (s *session) endForeign(ctx context.Context, why error, settled airlock.Settled) error {
	if len(settled.Waiting) > 0 {
		return s.move(ctx, caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting})
	}
	var cause *caisson.CauseError
	errors.As(why, &cause)
	call := caisson.CallRecord{}
	if len(settled.Records) > 0 {
		call = settled.Records[0]
	}
	r, err := s.host.Ledger.Run(ctx, s.run.ID)
	if err != nil {
		return err
	}
	switch {
	case r.CancelAsked != "":
		if r.State != caisson.RunCancelling {
			if err := s.move(ctx, caisson.RunMove{To: caisson.RunCancelling, Cause: r.CancelAsked}); err != nil {
				return err
			}
		}
		return s.move(ctx, caisson.RunMove{To: caisson.RunCancelled, Stop: caisson.StopCancelled, Cause: r.CancelAsked, Exit: caisson.ExitInterrupted})
	case settled.Abort:
		return s.move(ctx, caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopRejected})
	case cause != nil && cause.Cause == caisson.CauseDeadline:
		return s.move(ctx, caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopDeadline, Cause: cause.Cause, Text: cause.Text, Exit: caisson.ExitDeadline})
	case why != nil && !call.State.Terminal():
		return s.move(ctx, caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Text: why.Error()})
	}
	return s.move(ctx, foreignEnd(call))
}

// foreignEnd says how a run ended whose only call has its outcome.
func foreignEnd(call caisson.CallRecord) caisson.RunMove {
	var exit caisson.Exit
	move := caisson.RunMove{To: caisson.RunFailed, Stop: caisson.StopAgentFailed, Exit: caisson.ExitFailed}
	if call.Result != nil {
		move.Text, move.Cause = call.Result.Summary, call.Result.Cause
		if json.Unmarshal(call.Result.Data, &exit) == nil && exit.Code != 0 {
			move.Exit = exit.Code
		}
		if call.Result.Error != nil {
			move.Text = call.Result.Error.Error()
		}
	}
	switch call.State.Outcome() {
	case caisson.OutcomeDone:
		move.To, move.Stop, move.Exit = caisson.RunSucceeded, caisson.StopEndTurn, 0
	case caisson.OutcomeRefused:
		move.Exit = caisson.ExitRefused
	case caisson.OutcomeUnknown:
		move.Exit = caisson.ExitUnknown
	default:
	}
	return move
}
