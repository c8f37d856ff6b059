package control

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/process"
)

// quiesceFor is the time within which nothing of a channel runs any more.
const quiesceFor = 7 * time.Second

// Quiesce has the broker take nothing more and ends what runs: softly at first,
// by force from half of the time on. When it returns nil nothing runs, and what
// did is answered; requests that wait for a person go on waiting, and files that
// come in stay where they are. CodeOrphanAlive names the requests that still run
// when ctx, or 7 s, are over. Either way the broker stays quiet until Resume.
func (b *Broker) Quiesce(ctx context.Context) error {
	ctx, enough := context.WithTimeout(ctx, quiesceFor)
	defer enough()
	half := time.NewTimer(halfOf(ctx))
	defer half.Stop()
	b.mu.Lock()
	b.quiet = true
	for _, r := range b.running {
		r.stop(&airlock.PauseError{Cause: caisson.CauseShutdown, Text: "the channel is being quiesced"})
	}
	b.mu.Unlock()
	var forcing sync.WaitGroup
	defer forcing.Wait()
	for {
		b.mu.Lock()
		left, changed := b.runningLocked(), b.changed
		b.mu.Unlock()
		if len(left) == 0 {
			b.mendRequests(ctx)
			return nil
		}
		select {
		case <-changed:
		case <-half.C:
			for _, id := range b.executors() {
				forcing.Go(func() { _ = process.EndTree(ctx, id) }) // its doer tells how that went
			}
		case <-ctx.Done():
			return caisson.Errorf(caisson.CodeOrphanAlive, "of sandbox %s still run the requests %s", b.o.Record.ID, strings.Join(left, ", "))
		}
	}
}

// Resume has a quiesced broker take requests again.
func (b *Broker) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet = false
	b.startLocked()
	signal(b.wake)
}

func halfOf(ctx context.Context) time.Duration {
	until, _ := ctx.Deadline()
	return time.Until(until) / 2
}

func (b *Broker) runningLocked() []string {
	var ids []string
	for id := range b.running {
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	return ids
}

func (b *Broker) executors() []caisson.ProcessIdentity {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []caisson.ProcessIdentity
	for _, r := range b.running {
		if r.executor != nil {
			out = append(out, *r.executor)
		}
	}
	return out
}

// leave does what has to be done last, when nothing runs any more. A broker that
// was displaced does nothing.
func (b *Broker) leave() {
	b.mu.Lock()
	why := b.cause
	queue := b.queue
	b.queue = nil
	b.mu.Unlock()
	if caisson.CodeOf(why) == caisson.CodeLeaseLost {
		b.settleEnd()
		return
	}
	ctx, done := b.writing()
	defer done()
	var open []*request
	for _, r := range queue {
		if r.resumed {
			open = append(open, r)
			continue
		}
		b.reject(r.record, caisson.Errorf(caisson.CodeNotExecuted, "the channel was closed before it could begin"))
	}
	b.mendUnsaid()
	b.mendRequests(ctx)
	if ending, is := why.(*caisson.CauseError); is { //nolint:errorlint // it is given bare
		b.mu.Lock()
		for _, r := range b.waiting {
			open = append(open, r)
		}
		b.mu.Unlock()
		b.cancel(ending, open)
	}
	b.settleEnd()
	b.recordMoves()
	b.tell()
}

// settleEnd notes that the broker has ended.
func (b *Broker) settleEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moveLocked(caisson.BrokerEnded)
}

// cancel gives requests that are open their outcome because the run ends: the
// airlock withdraws their reviews.
func (b *Broker) cancel(why *caisson.CauseError, open []*request) {
	ended, stop := context.WithCancelCause(context.WithoutCancel(b.ctx))
	stop(why)
	for _, r := range open {
		settled, err := b.o.Door.Settle(ended, []airlock.Request{{ID: r.record.Call, Name: r.record.Verb, Tool: b.verb(r.record.Verb), Input: string(r.input), Strict: true}})
		if b.lost(err) {
			return
		}
		if len(settled.Records) == 1 && settled.Records[0].State.Terminal() {
			b.mu.Lock()
			delete(b.waiting, r.record.ID)
			b.mu.Unlock()
			b.publish(r.record, &settled.Records[0])
		}
	}
}
