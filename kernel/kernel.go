// Package kernel drives one run: it asks a model, hands the calls of each
// answer to the airlock, and goes on until the run ends, waits or pauses.
//
// Everything it decides by is in the ledger, so starting and taking up again
// are one path. What it guarantees: an answer that is recorded is never asked
// for twice, calls come only from a recorded answer, and each gets exactly one
// result, in order. What it does not: that an answer which was cut was not paid for.
package kernel

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// Door is where calls go through.
type Door interface {
	// Settle returns when every call has its outcome, or when only open reviews
	// are left and the time for parking is over. It may be asked again for the
	// same calls; those with an outcome come back from the record.
	Settle(ctx context.Context, requests []airlock.Request) (airlock.Settled, error)
}

// Instruction is a text of the workspace that is told to the model with the prompt.
type Instruction struct {
	Name string // AGENTS.md
	Text string
}

// Options configure a [Kernel].
type Options struct {
	Ledger caisson.Ledger
	Model  caisson.Model
	Door   Door
	// Tools by the name that the model knows them by.
	Tools map[string]caisson.Tool
	// System is the system text. Instructions come before the prompt and are
	// recorded with it; a run that has begun keeps those it began with.
	System       string
	Instructions []Instruction
	// MaxOutput bounds one answer, in tokens; 0: what the model says, or 8192.
	MaxOutput int64
	// StuckAfter is how many times in a row the same call may give the same
	// result before the run stops; 0: 5.
	StuckAfter int
	// Attempts is how often in this life an answer that is cut is asked for; 0: 3.
	Attempts int
	// TurnEnd is told when all calls of a turn have their outcome, and of the
	// last answer before the run ends; not of a turn in whose middle the run is
	// stopped. After a crash it may be told of the same turn again. An error
	// pauses the run. Nil: nobody is told.
	TurnEnd func(ctx context.Context, turn caisson.Turn, settled airlock.Settled) error
	// Ending is told before the run ends for good, and returns when no doer of a
	// call that another than the kernel asked for is at work. Nil is nothing.
	Ending func(ctx context.Context, cause caisson.Cause) error
	// Redact takes secrets out of the model's text and of reasons before they
	// are written. Inputs of calls are not changed, as what is recorded, judged
	// and done must be one value. Nil changes nothing.
	Redact func(string) string
	// Observe is told what happens, for display, unredacted. It must return at once and
	// is called from one goroutine at a time. Nil: nobody is told.
	Observe func(Event)
}

// EventKind says what an [Event] is of.
type EventKind string

// Kinds of event.
const (
	EventRun       EventKind = "run"       // Run has moved
	EventAsked     EventKind = "asked"     // Turn is being asked
	EventModel     EventKind = "model"     // Model: a piece of the answer to Turn
	EventAnswered  EventKind = "answered"  // Turn is recorded
	EventAbandoned EventKind = "abandoned" // the answer to Turn was cut: Text says why
	EventSettled   EventKind = "settled"   // all calls of Turn have their outcome
)

// Event is something that happened in a run.
type Event struct {
	Kind  EventKind
	Run   caisson.Run
	Turn  caisson.Turn
	Model caisson.ModelEvent
	Text  string
}

// Kernel drives runs. Safe for concurrent use by different runs, if what its
// options hold is.
type Kernel struct {
	o    Options
	mu   sync.Mutex
	live map[caisson.RunID]*driver
}

// New returns a kernel.
func New(o Options) *Kernel {
	if o.StuckAfter <= 0 {
		o.StuckAfter = 5
	}
	if o.Redact == nil {
		o.Redact = func(text string) string { return text }
	}
	if o.Attempts <= 0 {
		o.Attempts = 3
	}
	return &Kernel{o: o, live: map[caisson.RunID]*driver{}}
}

// Check tells whether the model can be used under the budget:
// CodeCostUnmeasurable where cost is bounded and the model's price is not known.
func Check(budget caisson.Budget, model caisson.Model) error {
	if _, known := model.Price(); budget.Cost > 0 && !known {
		return caisson.Errorf(caisson.CodeCostUnmeasurable, "the price of model %s is not known, and the budget bounds cost", model.Ref())
	}
	return nil
}

// Run takes up the run where the ledger says it is, and drives it until it has
// ended, waits for people, or is paused; the run as it is then is returned.
// drive is the caller's lease; what the last driver left running has been ended.
//
// When ctx ends, the run is paused with the cause of ctx (a [caisson.CauseError],
// else unknown): what runs is stopped, what is open stays open. A run ends
// early for good only by its own budget or by a cancel in the ledger, which is
// noticed within about 1 s at any time.
//
// An error means that the run's state could not be written, or that the right
// to drive it is lost; nothing that was recorded is lost. CodeCostUnmeasurable:
// see [Check]; a run that has not begun is stopped, another stays as it is.
func (k *Kernel) Run(ctx context.Context, drive caisson.Drive) (caisson.Run, error) {
	record, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	run, err := k.o.Ledger.Run(record, drive.Run)
	if err != nil || run.State.Terminal() {
		return run, err
	}
	d := &driver{o: k.o, drive: drive, record: record, spec: run.Spec, run: run}
	if err := Check(run.Spec.Budget, k.o.Model); err != nil {
		return d.refuse(err)
	}
	if err := d.load(); err != nil {
		return d.run, err
	}
	if run.State != caisson.RunCancelling && run.CancelAsked == "" {
		if err := d.move(caisson.RunMove{To: caisson.RunRunning}); err != nil {
			return d.run, err
		}
	}
	work, stop := context.WithCancelCause(record)
	defer stop(nil)
	d.work, d.stop = work, stop
	if ctx.Err() != nil {
		stop(pauseOf(context.Cause(ctx)))
	}
	leave := k.enlist(d)
	end := d.watch(ctx)
	err = d.loop()
	leave()
	end() // from here on d.run is ours alone
	return d.run, err
}

// Cancel ends a run whose cancel was asked, and which nothing of is at work any
// more: its open reviews are withdrawn, its open calls get an outcome. It needs
// nothing but the ledger, so it works for a run that could not be taken up.
// Any other run stays as it is.
func (k *Kernel) Cancel(ctx context.Context, drive caisson.Drive) (caisson.Run, error) {
	record, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	run, err := k.o.Ledger.Run(record, drive.Run)
	if err != nil || run.State.Terminal() || run.CancelAsked == "" {
		return run, err
	}
	d := &driver{o: k.o, drive: drive, record: record, spec: run.Spec, run: run}
	if err := d.load(); err != nil {
		return d.run, err
	}
	if err := d.cancelled(); !errors.Is(err, errOver) {
		return d.run, err
	}
	return d.run, nil
}

// refuse leaves a run whose cost could not be measured as it is, unless it has not begun.
func (d *driver) refuse(why error) (caisson.Run, error) {
	if d.run.State != caisson.RunPending {
		return d.run, why
	}
	if err := d.move(caisson.RunMove{To: caisson.RunRunning}); err != nil {
		return d.run, err
	}
	if err := d.move(caisson.RunMove{To: caisson.RunStopped, Stop: caisson.StopCostUnmeasurable, Text: why.Error()}); err != nil {
		return d.run, err
	}
	return d.run, why
}

// writeTime bounds one write. A ledger that several processes share answers
// within milliseconds, a disk in trouble within seconds.
const writeTime = 30 * time.Second
