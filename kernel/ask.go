package kernel

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/model"
)

// ask asks for the next answer, or for the present one again, and records it.
func (d *driver) ask() error {
	req, turn, stop, err := d.plan()
	if err != nil {
		return err
	}
	if stop != "" {
		return d.end(caisson.RunMove{To: caisson.RunStopped, Stop: stop, Cause: causeOfStop(stop), Text: overText(stop)})
	}
	ctx, done := d.writing()
	turn, err = d.o.Ledger.AskTurn(ctx, d.drive, turn)
	done()
	if err != nil {
		return d.notAsked(err)
	}
	d.keep(turn)
	pass("kernel.asked")
	d.tell(Event{Kind: EventAsked, Turn: turn})
	answer, got, err := d.hear(turn, req)
	if err != nil {
		return d.cut(turn, req, got, err)
	}
	pass("kernel.heard")
	if answer.Usage.Tokens() == 0 { // a provider that does not say
		answer.Usage = caisson.Usage{Input: tokensOf(sizeOf(req)), Output: tokensOf(sizeOfMessage(answer.Message))}
	}
	d.redact(answer)
	ctx, done = d.writing()
	defer done()
	turn, err = d.o.Ledger.AnswerTurn(ctx, d.drive, turn.N, *answer, d.spent(answer.Usage))
	if err != nil {
		return d.unwritten(fmt.Errorf("record answer: %w", err))
	}
	d.keep(turn)
	d.cuts = 0
	pass("kernel.answered")
	d.tell(Event{Kind: EventAnswered, Turn: turn})
	return nil
}

// redact takes secrets out of an answer's text. A part that a provider has
// signed stays as it is: it would not take it back changed.
func (d *driver) redact(answer *caisson.ModelAnswer) {
	parts := slices.Clone(answer.Message.Parts)
	for i := range parts {
		if parts[i].Kind != caisson.PartCall && len(parts[i].Opaque) == 0 {
			parts[i].Text = d.o.Redact(parts[i].Text)
		}
	}
	answer.Message.Parts = parts
}

// plan makes the request and the turn that asks for it. stop says that the
// budget does not allow one.
func (d *driver) plan() (req caisson.ModelRequest, turn caisson.Turn, stop caisson.StopReason, err error) {
	accounts, err := d.accounts()
	if err != nil {
		return req, turn, "", err
	}
	now, why := levelOf(accounts)
	if now == levelOver {
		return req, turn, why, nil
	}
	if _, closed := d.told(noteClose); closed {
		now = levelClosing
	}
	for {
		input := d.noted(d.input(), now, why)
		req = caisson.ModelRequest{System: d.o.System, Messages: d.transcript(input), Tools: shown(d.toolsAt(now))}
		in := tokensOf(sizeOf(req))
		out, tight := d.fit(accounts, in, now == levelClosing)
		switch {
		case out >= leastOutput, now == levelClosing && out >= leastClosing:
			req.MaxOutput = out
			return req, caisson.Turn{Input: input, Reserve: d.bound(in, out)}, "", nil
		case now == levelClosing || tight == "":
			if tight == "" {
				tight = why
			}
			return req, turn, tight, nil
		}
		now, why = levelClosing, tight
	}
}

// noted adds the note that a level asks for, where the model was not told yet.
func (d *driver) noted(input []caisson.Message, now level, why caisson.StopReason) []caisson.Message {
	kind := noteFinish
	switch now {
	case levelClosing:
		kind = noteClose
	case levelFinishing:
	default:
		return input
	}
	if _, told := d.told(kind); told {
		return input
	}
	return append(input[:len(input):len(input)], note(kind.text(why)))
}

func (d *driver) toolsAt(now level) map[string]caisson.Tool {
	switch now {
	case levelClosing:
		return nil
	case levelFinishing:
		return reading(d.o.Tools)
	default:
		return d.toolsNow()
	}
}

// notAsked takes a refusal to ask. Nothing was sent.
func (d *driver) notAsked(err error) error {
	if caisson.CodeOf(err) != caisson.CodeBudgetExceeded {
		return d.unwritten(fmt.Errorf("ask for an answer: %w", err))
	}
	name, _ := caisson.AsError(err).Detail["stop"].(string)
	stop := caisson.StopReason(name)
	if stop == "" {
		stop = caisson.StopTokenBudget
	}
	return d.end(caisson.RunMove{To: caisson.RunStopped, Stop: stop, Cause: causeOfStop(stop), Text: err.Error()})
}

// unwritten takes a write of a turn that did not succeed.
func (d *driver) unwritten(err error) error {
	d.refresh()
	if stopped, moved := d.interrupted(); stopped || moved != nil {
		return moved
	}
	if caisson.CodeOf(err) == caisson.CodeLeaseLost {
		return err
	}
	return d.fault(err)
}

// hear listens to one answer. got is what came of it before it was cut.
func (d *driver) hear(turn caisson.Turn, req caisson.ModelRequest) (answer *caisson.ModelAnswer, got heard, err error) {
	for event, err := range d.o.Model.Stream(d.work, req) {
		if err != nil {
			return nil, got, err
		}
		if event.Kind == caisson.ModelDone {
			return event.Answer, got, nil
		}
		got.bytes += len(event.Delta)
		if event.Kind == caisson.ModelText {
			got.text += event.Delta
		}
		d.tell(Event{Kind: EventModel, Turn: turn, Model: event})
	}
	return nil, got, caisson.Errorf(caisson.CodeModelError, "model %s ended its stream without an answer", d.o.Model.Ref())
}

type heard struct {
	text  string
	bytes int
}

// cut records what came of an answer, charges it, and decides what then.
func (d *driver) cut(turn caisson.Turn, req caisson.ModelRequest, got heard, why error) error {
	used := caisson.Amount{}
	if got.bytes > 0 || caisson.CodeOf(why) != caisson.CodeModelError {
		// Providers bill what they produced; a request that was refused is free.
		used = d.spent(caisson.Usage{Input: tokensOf(sizeOf(req)), Output: tokensOf(got.bytes)})
		used.Turns = 0
		used.Tokens, used.Cost = min(used.Tokens, turn.Reserve.Tokens), min(used.Cost, turn.Reserve.Cost)
	}
	if err := d.abandon(turn, why.Error(), got.text, used); err != nil {
		return err
	}
	d.cuts++
	switch {
	case d.work.Err() != nil:
		return nil // the next step sees why
	case model.Transient(why) && d.cuts < d.o.Attempts:
		return nil // asked again
	default:
		return d.end(caisson.RunMove{To: caisson.RunFailed, Stop: caisson.StopModelError, Text: why.Error()})
	}
}

func (d *driver) abandon(turn caisson.Turn, why, text string, used caisson.Amount) error {
	ctx, done := d.writing()
	defer done()
	turn, err := d.o.Ledger.AbandonTurn(ctx, d.drive, turn.N, d.o.Redact(why), d.o.Redact(text), used)
	if err != nil {
		return d.unwritten(fmt.Errorf("record cut answer: %w", err))
	}
	d.keep(turn)
	d.tell(Event{Kind: EventAbandoned, Turn: turn, Text: why})
	return nil
}

// keep puts a turn as it now is into its place.
func (d *driver) keep(turn caisson.Turn) {
	if last := d.last(); last != nil && last.N == turn.N {
		*last = turn
		return
	}
	d.turns = append(d.turns, turn)
}

// pass marks a point at which a test may end the process.
func pass(point string) { _ = fault.Point(point) }
