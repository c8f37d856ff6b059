package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// driver is one life of a run. One goroutine owns it, the caller's of Run; the
// watcher of cancels touches only what mu guards.
type driver struct {
	o      Options
	drive  caisson.Drive
	spec   caisson.RunSpec
	record context.Context //nolint:containedctx // one life is one call of Run; for reads and writes of the ledger: no cancel tears them
	work   context.Context //nolint:containedctx // for models, calls and hooks
	stop   context.CancelCauseFunc
	turns  []caisson.Turn
	calls  map[caisson.CallID]caisson.CallRecord
	cuts   int // how often in a row an answer was cut in this life

	mu  sync.Mutex // of run and of telling
	run caisson.Run
}

// over ends the loop of a driver. It is no error of the run.
var errOver = errors.New("this life of the run is over")

func (d *driver) load() error {
	ctx, done := d.writing()
	defer done()
	turns, err := d.o.Ledger.Turns(ctx, d.drive.Run)
	if err != nil {
		return fmt.Errorf("read turns: %w", err)
	}
	records, err := d.o.Ledger.Calls(ctx, d.drive.Run)
	if err != nil {
		return fmt.Errorf("read calls: %w", err)
	}
	d.turns, d.calls = turns, make(map[caisson.CallID]caisson.CallRecord, len(records))
	for _, record := range records {
		d.calls[record.Call.ID] = record
	}
	return nil
}

// loop goes from state to state until this life is over.
func (d *driver) loop() error {
	for {
		if err := d.step(); err != nil {
			if errors.Is(err, errOver) {
				return nil
			}
			return err
		}
	}
}

// step takes the run one step on from where its record says it is.
func (d *driver) step() error {
	if stopped, err := d.interrupted(); stopped || err != nil {
		return err
	}
	last := d.last()
	switch {
	case last == nil || last.State == caisson.TurnAbandoned:
		return d.ask()
	case last.State == caisson.TurnAsked:
		// Nobody saw its end: it is charged in full, but counts as no turn.
		used := last.Reserve
		used.Turns = 0
		return d.abandon(*last, "the process that asked for it has ended", "", used)
	default:
		return d.settle(*last)
	}
}

func (d *driver) last() *caisson.Turn {
	if len(d.turns) == 0 {
		return nil
	}
	return &d.turns[len(d.turns)-1]
}

// settle has the calls of the last answer done, and decides what comes next.
func (d *driver) settle(turn caisson.Turn) error {
	settled := airlock.Settled{}
	requests := d.requests(turn)
	if len(requests) > 0 {
		var err error
		settled, err = d.o.Door.Settle(d.work, requests)
		d.remember(settled)
		if err != nil {
			return d.unsettled(err)
		}
		pass("kernel.settled")
	}
	switch {
	case settled.Abort:
		return d.end(caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopRejected, Cause: caisson.CauseUser, Text: "a person ended the run when asked about a call"})
	case len(settled.Waiting) > 0:
		return d.rest(caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting, Text: waitingText(settled.Waiting)})
	}
	d.tell(Event{Kind: EventSettled, Turn: turn})
	if d.o.TurnEnd != nil {
		if err := d.o.TurnEnd(d.work, turn, settled); err != nil {
			return d.unsettled(err)
		}
	}
	pass("kernel.turn-ended")
	if stop, ended := d.verdict(turn, len(requests)); ended {
		return d.end(stop)
	}
	return d.ask()
}

// unsettled takes an error of the door or of the host's hook: the end of the
// life if it was ended, else a fault that a person can mend.
func (d *driver) unsettled(err error) error {
	d.refresh()
	if stopped, moved := d.interrupted(); stopped || moved != nil {
		return moved
	}
	if caisson.CodeOf(err) == caisson.CodeLeaseLost {
		return err
	}
	return d.fault(err)
}

// verdict tells whether the run ends with a turn all of whose calls are settled.
func (d *driver) verdict(turn caisson.Turn, calls int) (caisson.RunMove, bool) {
	text := lastWords(turn)
	if why, closed := d.told(noteClose); closed {
		return caisson.RunMove{To: caisson.RunStopped, Stop: why, Cause: causeOfStop(why), Text: text}, true
	}
	if calls > 0 {
		if n := d.stuck(); n >= d.o.StuckAfter {
			return caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopStuck, Text: fmt.Sprintf("the same call gave the same result %d times in a row", n)}, true
		}
		return caisson.RunMove{}, false
	}
	switch turn.Answer.Finish {
	case caisson.FinishFilter:
		return caisson.RunMove{To: caisson.RunFailed, Stop: caisson.StopModelError, Text: "the provider's filter withheld the answer"}, true
	case caisson.FinishLength:
		if d.cutInARow() < maxCutInARow {
			return caisson.RunMove{}, false // it is told to go on
		}
		return caisson.RunMove{To: caisson.RunFailed, Stop: caisson.StopModelError, Text: "the model's answers are cut at their bound again and again"}, true
	default:
		return caisson.RunMove{To: caisson.RunSucceeded, Stop: caisson.StopEndTurn, Text: text}, true
	}
}

func (d *driver) requests(turn caisson.Turn) []airlock.Request {
	tools := d.toolsNow()
	var requests []airlock.Request
	for _, part := range turn.Answer.Message.Parts {
		if part.Kind != caisson.PartCall {
			continue
		}
		requests = append(requests, airlock.Request{
			ID: caisson.NewCallID(d.drive.Run, turn.N, len(requests)+1), Turn: turn.N,
			ProviderID: part.ProviderID, Name: part.Tool, Tool: tools[part.Tool], Input: part.Input,
		})
	}
	return requests
}

func (d *driver) remember(settled airlock.Settled) {
	for _, record := range settled.Records {
		d.calls[record.Call.ID] = record
	}
}

func (d *driver) writing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.record, writeTime)
}

func (d *driver) tell(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tellLocked(e)
}

func (d *driver) tellLocked(e Event) {
	if d.o.Observe != nil {
		e.Run = d.run
		d.o.Observe(e)
	}
}
