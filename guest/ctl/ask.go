package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
)

// recoverVerb is the broker's own verb that publishes an answer again.
const recoverVerb = "recover"

// ask sends a request and prints what becomes of it.
func (c *client) ask(ctx context.Context, verb string) (int, error) {
	input, err := c.input()
	if err != nil {
		return 0, err
	}
	id := c.cmd.id
	if id == "" {
		id = newID()
	} else if c.answer(id, ".json") != nil || c.answer(id, ".accepted.json") != nil {
		return 0, caisson.Errorf(caisson.CodeRequestReplayed, "a request %s was taken before", id).WithHint("`caisson-guest ctl wait %s` waits for its answer.", id)
	}
	a, err := c.settle(ctx, id, verb, input)
	if err != nil {
		return c.rejected(id, err), nil
	}
	return c.print(a), nil
}

// settle sends a request and returns its answer: the first one with --detach.
func (c *client) settle(ctx context.Context, id caisson.RequestID, verb string, input json.RawMessage) (*answer, error) {
	w := c.watch()
	defer w.close()
	sent := c.status
	err := c.send(caisson.ControlRequest{
		Version: caisson.ControlProtocol, ID: id, Generation: c.identity.Generation, Epoch: sent.Epoch,
		Wait: c.cmd.wait.Milliseconds(), Verb: verb, Input: input,
	})
	if err != nil {
		return nil, err
	}
	return c.follow(ctx, w, &request{id: id, sent: sent, verb: verb, untilTaken: time.Now().Add(c.cmd.wait)})
}

// request is one that is followed.
type request struct {
	id   caisson.RequestID
	sent caisson.ControlStatusFile // the status that it was sent by
	verb string
	// untilTaken is when it is taken back; zero once it was taken. Like all times
	// here it is compared by the monotonic clock.
	untilTaken time.Time
	// known is the epoch in which somebody knew of it, or would not say.
	known int64
	told  bool // that a person is asked
}

// tellWaiting says once that a person is asked, which may take long.
func (c *client) tellWaiting(r *request, accepted *answer) {
	if r.told || accepted.State != caisson.AnswerWaiting {
		return
	}
	r.told = true
	fmt.Fprintf(c.opts.Stderr, "caisson-guest: a person is asked (%s); `caisson-guest ctl wait %s` comes back to it\n", accepted.Review, r.id)
}

// follow waits for the answer.
func (c *client) follow(ctx context.Context, w *watch, r *request) (*answer, error) {
	var end time.Time
	if c.cmd.timeout > 0 {
		end = time.Now().Add(c.cmd.timeout)
	}
	for {
		if a := c.answer(r.id, ".json"); a != nil {
			return a, nil
		}
		accepted := c.answer(r.id, ".accepted.json")
		if accepted != nil {
			r.untilTaken = time.Time{}
			if c.cmd.detach {
				return accepted, nil
			}
			c.tellWaiting(r, accepted)
		}
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return nil, c.leave(r, caisson.Errorf(caisson.CodeInterrupted, "it was interrupted, and the request taken back"))
		case !end.IsZero() && !now.Before(end):
			return nil, c.leave(r, caisson.Errorf(caisson.CodeBrokerUnavailable, "nobody took the request within %v", c.cmd.timeout))
		case !r.untilTaken.IsZero() && !now.Before(r.untilTaken):
			if c.takeBack(r.id) {
				return nil, caisson.Errorf(caisson.CodeBrokerUnavailable, "nobody took the request within %v", c.cmd.wait)
			}
			r.untilTaken = time.Time{}
		case accepted == nil && !c.waits(r.id):
			if err := c.lost(ctx, r); err != nil {
				return nil, err
			}
		}
		w.wait(ctx, now, end, r.untilTaken)
	}
}

// leave ends the waiting: with why where the request could be taken back, and
// with CodeResultUnknown where it was taken.
func (c *client) leave(r *request, why *caisson.Error) error {
	if c.takeBack(r.id) {
		return why
	}
	if a := c.answer(r.id, ".accepted.json"); a != nil && a.State == caisson.AnswerWaiting {
		return caisson.Errorf(caisson.CodeResultUnknown, "the request waits for a person").WithHint("`caisson-guest ctl wait %s` goes on waiting.", r.id)
	}
	return caisson.Errorf(caisson.CodeResultUnknown, "the request was taken, and its end was not seen").WithHint("`caisson-guest ctl wait %s` goes on waiting.", r.id)
}

// lost asks, where the channel was opened anew since a request was sent, whether
// it is known: who took it may have ended before there was a record of it. Who is
// asked may end too, so that it is asked until somebody can tell.
func (c *client) lost(ctx context.Context, r *request) error {
	if err := c.readStatus(); err != nil {
		return nil //nolint:nilerror // it is looked at again
	}
	s := c.status
	if s.Epoch == r.sent.Epoch || s.Epoch == r.known || s.State != caisson.BrokerHealthy {
		return nil
	}
	if s.Generation != r.sent.Generation {
		return caisson.Errorf(caisson.CodeResultUnknown, "the channel began another generation before the request was answered")
	}
	if c.answer(r.id, ".json") != nil {
		return nil // it was answered when the channel was opened
	}
	if r.verb == recoverVerb { // it has no effect, so that it may be sent again
		return caisson.Errorf(caisson.CodeBrokerUnavailable, "who took the request ended before it was answered")
	}
	a, err := c.askRecover(ctx, r.id)
	switch {
	case err != nil:
		return nil //nolint:nilerror // nobody can tell now
	case a.Error != nil && a.Error.Code == caisson.CodeNotFound:
		return caisson.Errorf(caisson.CodeNotExecuted, "who took the request ended before it was recorded")
	case a.State != caisson.AnswerRejected || !a.Error.Code.Info().Retryable:
		r.known = s.Epoch
	}
	return nil
}

// askRecover asks for the answer of a request and returns what is answered to that.
func (c *client) askRecover(ctx context.Context, id caisson.RequestID) (*answer, error) {
	input, err := json.Marshal(map[string]caisson.RequestID{"id": id})
	if err != nil {
		return nil, err
	}
	ask := *c
	ask.cmd.detach, ask.cmd.timeout = false, 2*caisson.ControlWait // reading a record takes no person's time
	return ask.settle(ctx, newID(), recoverVerb, input)
}

// recover has an answer published again and prints it.
func (c *client) recover(ctx context.Context, id caisson.RequestID) (int, error) {
	a, err := c.askRecover(ctx, id)
	if err != nil {
		return c.rejected(id, err), nil
	}
	if a.State != caisson.AnswerCompleted || a.Exit != 0 {
		return c.print(a), nil
	}
	if again := c.answer(id, ".json"); again != nil {
		return c.print(again), nil
	}
	if again := c.answer(id, ".accepted.json"); again != nil {
		c.print(again)
	}
	return caisson.ExitRetryable, nil // it has not ended: ask again later
}

// await waits for the answer of a request that was sent before.
func (c *client) await(ctx context.Context, id caisson.RequestID) (int, error) {
	w := c.watch()
	defer w.close()
	if c.answer(id, ".json") == nil && c.answer(id, ".accepted.json") == nil && !c.waits(id) {
		// It was removed with other old ones, or there never was one.
		a, err := c.askRecover(ctx, id)
		if err != nil {
			return c.rejected(id, err), nil
		}
		never := a.Error != nil && a.Error.Code == caisson.CodeNotFound
		older := a.Error != nil && a.Error.Code == caisson.CodeGenerationStale && a.State == caisson.AnswerCompleted // else it is the asking that is
		if never || older {
			return c.print(a), nil // there will be no other answer
		}
	}
	a, err := c.follow(ctx, w, &request{id: id, sent: c.status})
	if err != nil {
		return c.rejected(id, err), nil
	}
	return c.print(a), nil
}

// print prints an answer and returns the exit status that it means.
func (c *client) print(a *answer) int {
	ended := a.State == caisson.AnswerCompleted || a.State == caisson.AnswerRejected
	switch {
	case c.cmd.detach && (!ended || a.State == caisson.AnswerCompleted):
		fmt.Fprintln(c.opts.Stdout, a.ID)
		return caisson.ExitOK
	case !c.cmd.text:
		_, _ = c.opts.Stdout.Write(a.raw) // who reads it may have gone; the status stands
	default:
		c.printText(a)
	}
	return Exit(a.ControlAnswer)
}

func (c *client) printText(a *answer) {
	text := []byte(a.Output)
	if a.Payload > 0 {
		if payload, err := read(c.responsePath(a.ID, ".payload")); err == nil {
			text = payload
		}
	}
	if a.Produced > 0 {
		defer fmt.Fprintf(c.opts.Stderr, "caisson-guest ctl: this is not all: the output has %d bytes, and %d are here\n", a.Produced, len(text))
	}
	_, _ = c.opts.Stdout.Write(text) // as in print
	if n := len(text); n > 0 && text[n-1] != '\n' && a.Payload == 0 {
		fmt.Fprintln(c.opts.Stdout)
	}
	if a.Error != nil {
		c.complain(a.Error)
	}
}

// rejected prints an answer that the client gives itself.
func (c *client) rejected(id caisson.RequestID, err error) int {
	why := caisson.AsError(err)
	a := answer{ControlAnswer: caisson.ControlAnswer{
		Version: caisson.ControlProtocol, ID: id, Generation: c.identity.Generation, State: caisson.AnswerRejected,
		At: time.Now().UTC(), Error: why,
	}}
	a.Exit = exitOf(why.Code)
	if c.cmd.text {
		c.complain(why)
		return a.Exit
	}
	_, _ = c.printJSON(a.ControlAnswer) // as in print
	return a.Exit
}

// fail reports what was no request.
func (c *client) fail(err error) int {
	why := caisson.AsError(err)
	c.complain(why)
	return exitOf(why.Code)
}

func (c *client) complain(why *caisson.Error) {
	fmt.Fprintf(c.opts.Stderr, "caisson-guest ctl: %s (%s)\n", why.Error(), why.Code)
	if hint := why.HintText(); hint != "" {
		fmt.Fprintln(c.opts.Stderr, hint)
	}
}

// Exit returns the exit status that an answer means to a client.
func Exit(a caisson.ControlAnswer) int {
	switch {
	case a.State == caisson.AnswerRejected && a.Error != nil:
		return exitOf(a.Error.Code)
	case a.State == caisson.AnswerRejected || a.Exit != 0:
		return caisson.ExitFailed
	}
	return caisson.ExitOK
}

// exitOf is narrower than the code table: a status other than these says nothing
// about asking again.
func exitOf(code caisson.Code) int {
	info := code.Info()
	switch {
	case info.Retryable:
		return caisson.ExitRetryable
	case info.Exit == caisson.ExitUsage, info.Exit == caisson.ExitUnknown, info.Exit == caisson.ExitRefused, info.Exit == caisson.ExitInterrupted:
		return info.Exit
	}
	return caisson.ExitFailed
}
