package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/airlock"
)

// foreign runs somebody else's agent: one call, whose door is the boundary. ctx
// ends with a pause, too.
func (s *session) foreign(given, ctx context.Context, opts DriveOptions) error {
	if err := s.running(given); err != nil {
		return err
	}
	last, fresh, err := s.host.agentCall(given, s.run.ID)
	if err != nil {
		return err
	}
	request := airlock.Request{ID: last.Call.ID, Turn: 1, Name: agent.CommandName, Input: string(last.Call.Input)}
	if fresh {
		input, err := json.Marshal(agent.CommandInput{Argv: s.run.Spec.Argv, PTY: opts.PTY})
		if err != nil {
			return err
		}
		request.Input = string(input)
	}
	command := agent.Options{}
	if opts.Agent != nil {
		command = *opts.Agent
	}
	command.Sandbox, command.SpillDir, command.SpillFloor, command.Hide = s.box, s.spillDir(), s.config.Floors.Disk, redact(s.config)
	request.Tool = agent.NewCommand(command)
	life := s.live(ctx)
	s.notice = life.notice
	settled, err := s.door.Settle(life.ctx, []airlock.Request{request})
	why := life.end()
	record := context.WithoutCancel(ctx)
	if opts.Settled != nil {
		err = errors.Join(err, opts.Settled(record, s.drive))
	}
	if err != nil && why == nil {
		// The door looks for a cancel by itself, and may have seen it first.
		if why = s.cancelled(record, err); why == nil {
			return err
		}
	}
	ending, end := lingering(ctx)
	defer end()
	if err := s.turnEnd(ending, caisson.Turn{N: 1}, settled); err != nil {
		return err
	}
	return s.endForeign(record, why, settled)
}

// cancelled returns an error of the door if it is that a cancel was asked for.
func (s *session) cancelled(ctx context.Context, err error) error {
	var cause *caisson.CauseError
	if !errors.As(err, &cause) {
		return nil
	}
	r, readErr := s.host.Ledger.Run(ctx, s.run.ID)
	if readErr != nil || r.CancelAsked == "" || r.CancelAsked != cause.Cause {
		return nil
	}
	return err
}

// agentCall returns the latest call of a foreign run, or, with fresh, one of
// the next id. A command that was stopped with a pause is begun anew, as
// another call, when a person takes the run up again; nothing else is.
func (h *Host) agentCall(ctx context.Context, run caisson.RunID) (last caisson.CallRecord, fresh bool, err error) {
	for n := 1; ; n++ {
		id := caisson.NewCallID(run, 1, n)
		rec, err := h.Ledger.Call(ctx, id)
		switch code := caisson.CodeOf(err); {
		case code == caisson.CodeCallUnknown || code == caisson.CodeNotFound:
			return caisson.CallRecord{Call: caisson.Call{ID: id}}, true, nil
		case err != nil:
			return rec, false, err
		case rec.State.Outcome() != caisson.OutcomeCancelled || rec.Result == nil ||
			rec.Result.Cause != caisson.CauseUser && rec.Result.Cause != caisson.CauseShutdown:
			return rec, false, nil
		}
	}
}

// AgentPTY tells whether a foreign run's command runs on a terminal: as its
// call on record says, which a person may have approved, else as wanted.
func (h *Host) AgentPTY(ctx context.Context, run caisson.RunID, want bool) (bool, error) {
	last, fresh, err := h.agentCall(ctx, run)
	if err != nil || fresh {
		return want, err
	}
	var in agent.CommandInput
	err = json.Unmarshal(last.Call.Input, &in)
	return in.PTY, err
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

// running moves the run on.
func (s *session) running(ctx context.Context) error {
	if s.run.State == caisson.RunRunning {
		return nil
	}
	return s.move(ctx, caisson.RunMove{To: caisson.RunRunning})
}

func (s *session) move(ctx context.Context, move caisson.RunMove) error {
	if hide := redact(s.config); hide != nil {
		move.Text = hide(move.Text)
	}
	_, err := s.host.Ledger.MoveRun(ctx, s.drive, move)
	if err == nil && move.To == caisson.RunRunning && s.broker != nil {
		s.broker.Again() // what was approved meanwhile may begin
	}
	return err
}

// endForeign moves the run to where its one call has brought it.
func (s *session) endForeign(ctx context.Context, why error, settled airlock.Settled) error {
	r, err := s.host.Ledger.Run(ctx, s.run.ID)
	if err != nil {
		return err
	}
	if r.CancelAsked != "" {
		return nil // drive ends it
	}
	move := foreignMove(why, settled)
	if move.To.Terminal() {
		if err := s.endChannel(ctx, move.Cause); err != nil {
			return err
		}
	}
	if r.State == move.To {
		return nil // it waits, and said so
	}
	if !caisson.RunStates().Can(string(r.State), string(move.To)) {
		if err := s.move(ctx, caisson.RunMove{To: caisson.RunRunning}); err != nil {
			return err
		}
	}
	return s.move(ctx, move)
}

func foreignMove(why error, settled airlock.Settled) caisson.RunMove {
	var cause *caisson.CauseError
	var pause *airlock.PauseError
	errors.As(why, &cause)
	call := caisson.CallRecord{}
	if len(settled.Records) > 0 {
		call = settled.Records[0]
	}
	stopped := !call.State.Terminal() || call.Result != nil && call.Result.Cause != ""
	switch {
	case settled.Abort:
		return caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopRejected, Cause: caisson.CauseUser, Text: "a person ended the run when asked about it", Exit: caisson.ExitRefused}
	case cause != nil && cause.Cause == caisson.CauseDeadline && stopped:
		return caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopDeadline, Cause: cause.Cause, Text: cause.Text, Exit: caisson.ExitDeadline}
	case errors.As(why, &pause) && stopped:
		return caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Cause: pause.Cause, Text: pause.Text}
	case len(settled.Waiting) > 0:
		return caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting}
	case !call.State.Terminal():
		return caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Text: fmt.Sprint(why)}
	}
	return foreignEnd(call)
}

// What shells say of a program that cannot be executed, and of one that is not there.
const (
	exitNotExecutable = 126
	exitNoProgram     = 127
)

func resultError(call caisson.CallRecord) error {
	if call.Result == nil || call.Result.Error == nil {
		return nil
	}
	return call.Result.Error
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
	case caisson.OutcomeNotStarted:
		switch caisson.CodeOf(resultError(call)) {
		case caisson.CodeNotFound:
			move.Exit = exitNoProgram
		case caisson.CodePathInvalid:
			move.Exit = exitNotExecutable
		case caisson.CodeSandboxPaused:
			move.Exit = caisson.ExitRetryable
		default:
		}
	default:
	}
	return move
}
