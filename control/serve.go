package control

import (
	"context"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/internal/fault"
)

// enqueue has a taken request run now, or when those before it have ended.
func (b *Broker) enqueue(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, r)
	b.startLocked()
}

// startLocked begins what may begin.
func (b *Broker) startLocked() {
	signal(b.counts)
	for len(b.queue) > 0 && len(b.running) < caisson.ControlRunning && b.cause == nil && !b.quiet && b.state != caisson.BrokerStarting {
		r := b.queue[0]
		if b.refusalLocked(r) != nil || b.heldLocked() != nil {
			signal(b.urgent)
			return // the loop rejects what does not stay, and comes back
		}
		b.queue = b.queue[1:]
		ctx, stop := context.WithCancelCause(b.ctx)
		r.stop = stop
		b.running[r.record.ID] = r
		b.work.Go(func() {
			defer stop(nil)
			b.serve(ctx, r)
		})
	}
}

// heldLocked is why nothing begins that was taken before: every reason to be
// parked but that of a full channel, in which what it has taken is still done.
func (b *Broker) heldLocked() *caisson.Error {
	reason, why := b.reasonLocked()
	if reason == "" || reason == caisson.CodeChannelFull {
		return nil
	}
	return caisson.Errorf(reason, "%s", why.text)
}

// refusalLocked is why a request does not stay in the queue. One that is
// accepted does: it waits until the broker is healthy again.
func (b *Broker) refusalLocked(r *request) *caisson.Error {
	switch {
	case r.wait == 0:
		return nil
	case b.s.o.Boot()-r.seen > r.wait:
		return lateError()
	default:
		return b.heldLocked()
	}
}

// expireQueued rejects what has waited for its turn too long, or in vain.
func (b *Broker) expireQueued() {
	type refused struct {
		record caisson.RequestRecord
		why    *caisson.Error
	}
	b.mu.Lock()
	var out []refused
	b.queue = slices.DeleteFunc(b.queue, func(r *request) bool {
		why := b.refusalLocked(r)
		if why != nil {
			out = append(out, refused{r.record, why})
		}
		return why != nil
	})
	b.mu.Unlock()
	for _, r := range out {
		b.reject(r.record, r.why)
	}
	if len(out) > 0 {
		b.mu.Lock()
		b.startLocked()
		b.mu.Unlock()
	}
}

// nextLate is the time until the next queued request has waited too long.
func (b *Broker) nextLate() (next time.Duration, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.o.Boot()
	for _, r := range b.queue {
		if left := r.seen + r.wait - now; r.wait > 0 && (!any || left < next) {
			next, any = left, true
		}
	}
	return max(next, 0) + time.Millisecond, any
}

// serve hands one request to the airlock, and publishes what became of it.
func (b *Broker) serve(ctx context.Context, r *request) {
	if r.resumed && b.checkBinding(ctx) != nil {
		b.putBack(r)
		return
	}
	agains := b.agains.Load()
	settled, err := b.o.Door.Settle(ctx, []airlock.Request{{
		ID: r.record.Call, Name: r.record.Verb, Tool: b.verb(r.record.Verb), Input: string(r.input), Strict: true, New: !r.resumed, Ask: func() error { return b.mayAsk(r) }, Begin: func() error { return b.mayBegin(ctx) },
	}})
	b.mu.Lock()
	r.executor = nil
	b.mu.Unlock()
	_ = fault.Point("control.settled")
	var call *caisson.CallRecord
	if len(settled.Records) == 1 {
		call = &settled.Records[0]
	}
	switch {
	case b.lost(err):
		b.over(r)
	case call != nil && call.State.Terminal():
		b.publish(r.record, call)
		b.over(r)
	case err == nil && len(settled.Waiting) > 0:
		b.await(r, settled.Waiting[0])
	default:
		// It was stopped before it began, the ledger takes no writes, or the run
		// takes no calls now. Nothing more is begun for it: it gets the answer that
		// is true with the next tick, or when the broker ends.
		b.mendLater(r.record.ID)
		b.over(r)
		if b.agains.Load() != agains { // it was looked for what is to be tried again, and this was not yet
			signal(b.ticks)
		}
	}
	if settled.Abort && b.o.Aborted != nil {
		b.o.Aborted()
	}
}

// mayBegin looks whether the run takes calls now. The start of a call says so
// too; but what waits for that, as an approved request does, is tried again and
// again, and each time its doer would be made ready.
func (b *Broker) mayBegin(ctx context.Context) error {
	run, err := b.s.o.Ledger.Run(ctx, b.o.Drive.Run)
	switch {
	case err != nil:
		return err
	case run.State == caisson.RunRunning, run.State == caisson.RunCancelling: // the start says why it is refused
		return nil
	default:
		return caisson.Errorf(caisson.CodeStateInvalid, "run %s starts no call while it is %s", run.ID, run.State)
	}
}

// Again has what is tried again with each tick tried now: the run takes calls
// again.
func (b *Broker) Again() {
	b.agains.Add(1)
	signal(b.ticks)
}

// putBack has a request wait until the broker is healthy again.
func (b *Broker) putBack(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, r)
	b.endedLocked(r)
}

// mayAsk takes one of the places for reviews.
func (b *Broker) mayAsk(r *request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.asked {
		return nil
	}
	if b.asking >= caisson.ControlReviews {
		return caisson.Errorf(caisson.CodeBusy, "%d requests wait for a person", b.asking)
	}
	r.asked = true
	b.asking++
	return nil
}

// over takes a request out of what runs, and begins the next.
func (b *Broker) over(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.asked {
		r.asked = false
		b.asking--
	}
	b.endedLocked(r)
}

func (b *Broker) endedLocked(r *request) {
	delete(b.running, r.record.ID)
	close(b.changed)
	b.changed = make(chan struct{})
	b.startLocked()
}

// Observe takes the airlock's notices of calls of requests of this channel;
// others it leaves alone. It is called synchronously: when the start of a call
// is recorded and before its effect begins, so that accepted is published in
// between; and when a person is asked. That a person is asked for a request says
// nothing about the run: notices that it waits or goes on must not be given to
// whoever moves the run.
func (b *Broker) Observe(n airlock.Notice) {
	switch n.Kind {
	case airlock.NoticeStarted:
		if r := b.runningCall(n.Record.Call.ID); r != nil {
			b.started(r, n.Record)
		}
	case airlock.NoticeAsked:
		if r := b.runningCall(n.Review.Call.ID); r != nil {
			b.mu.Lock()
			r.review, r.expires, r.wait = n.Review.ID, n.Review.Expires, 0
			b.mu.Unlock()
			b.publish(r.record, &caisson.CallRecord{Call: n.Review.Call, State: caisson.CallAsked, Review: n.Review.ID, Created: n.Review.Created})
		}
	default:
	}
}

func (b *Broker) runningCall(id caisson.CallID) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.running {
		if r.record.Call == id {
			return r
		}
	}
	return nil
}

// started publishes accepted. Where that cannot be, because another has the
// sandbox or the disk is full, the call is stopped before its effect begins.
func (b *Broker) started(r *request, call *caisson.CallRecord) {
	b.mu.Lock()
	r.executor, r.wait = call.Executor, 0
	b.mu.Unlock()
	_ = fault.Point("control.started")
	if err := b.project(b.ctx, r.record, call); err != nil {
		r.stop(&airlock.PauseError{Cause: caisson.CauseUnknown, Text: "its answer could not be published"})
	}
	_ = fault.Point("control.accepted")
}

// publish projects the record to the channel's files. What cannot be published
// now is tried again with the next tick.
func (b *Broker) publish(r caisson.RequestRecord, call *caisson.CallRecord) {
	ctx, done := b.writing()
	defer done()
	if err := b.project(ctx, r, call); err != nil {
		b.mendLater(r.ID)
	}
	_ = fault.Point("control.published")
}

func (b *Broker) mendLater(id caisson.RequestID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.repair[id] = true
}

// project makes the files of a request what the record says.
func (b *Broker) project(ctx context.Context, r caisson.RequestRecord, call *caisson.CallRecord) error {
	answer, any := answerOf(r, call)
	if !any {
		return nil
	}
	if err := b.owned(ctx); err != nil {
		return err
	}
	b.keep(ctx)
	if answer.State == caisson.AnswerAccepted || answer.State == caisson.AnswerWaiting {
		return b.files().Accept(answer)
	}
	if _, answered := b.files().Has(r.ID); answered {
		return nil // it stays, and a payload takes time to be read
	}
	answer, payload := withPayload(answer, call, b.s.o.Redact)
	b.mu.Lock()
	b.published++
	if answer.Payload > 0 {
		b.published = trimEvery // bytes count too
	}
	b.mu.Unlock()
	return b.files().Answer(answer, payload)
}

// reject writes a rejection of a request that was taken and never became a call.
func (b *Broker) reject(r caisson.RequestRecord, why *caisson.Error) {
	ctx, done := b.writing()
	defer done()
	err := b.s.o.Ledger.RejectRequest(ctx, b.o.Drive, r.Generation, r.ID, why)
	if err != nil {
		if !b.lost(err) {
			b.mendLater(r.ID)
		}
		return
	}
	r.Rejected, r.At = why, b.s.o.Ledger.Now()
	b.publish(r, nil)
}
