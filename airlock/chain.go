package airlock

import (
	"context"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
)

// loop runs until nothing goes on and nothing is left that could.
func (b *batch) loop() {
	done := b.ctx.Done()
	for {
		if done != nil && b.ctx.Err() != nil {
			done = nil
			b.onDone(context.Cause(b.ctx))
		}
		idling := b.busy == 0 && len(b.chain) == 0
		if idling && !b.anyWaiting() {
			b.going() // what was waited for may have ended without a call that begins
			return
		}
		if b.busy == 0 && (b.err != nil || b.halted) {
			return
		}
		park := b.idle(idling) // before a call begins: it tells that the run goes on
		b.advance()
		if idling && b.parent == nil && b.allLapsed() {
			b.parked = true
			return
		}
		expiry := b.nextExpiry()
		select {
		case e := <-b.ends:
			b.onEnd(e)
		case err := <-b.wake:
			b.fail(err)
			b.fail(b.onWake())
		case <-expiry:
			b.fail(b.onWake())
		case <-park:
			before := b.waitingIDs()
			b.fail(b.onWake())
			if b.err == nil && b.ctx.Err() == nil && len(b.chain) == 0 && b.sameWaiting(before) {
				b.parked = true
				return
			}
		case <-done:
		}
	}
}

// advance begins what is free to begin. Calls run in order, one at a time, but
// for those that declare that they may run beside their like.
func (b *batch) advance() {
	for !b.over() && len(b.chain) > 0 {
		it := b.chain[0]
		parallel := it.req.Tool.Spec().Parallel
		if b.busy > 0 && (b.alone || !parallel || b.busy >= b.door.lock.o.Parallel) {
			return
		}
		b.chain = b.chain[1:]
		b.busy++
		b.alone = !parallel
		it.place = running
		go func() { b.ends <- b.do(it) }() // loop does not return before it has it
	}
}

func (b *batch) enqueue(it *item) {
	it.place = queued
	b.chain = append(b.chain, it)
}

func (b *batch) anyWaiting() bool { return len(b.waitingIDs()) > 0 }

func (b *batch) waitingIDs() []caisson.ReviewID {
	var ids []caisson.ReviewID
	for _, it := range b.items {
		if it.place == waiting {
			ids = append(ids, it.review.ID)
		}
	}
	return ids
}

func (b *batch) sameWaiting(before []caisson.ReviewID) bool {
	now := b.waitingIDs()
	if len(now) != len(before) {
		return false
	}
	for i := range now {
		if now[i] != before[i] {
			return false
		}
	}
	return true
}

// idle notes whether only reviews are left, and returns what says that it is
// time to park. A nested batch never parks: a live process waits for it.
func (b *batch) idle(idling bool) <-chan time.Time {
	switch {
	case idling && b.timer == nil:
		b.timer = time.NewTimer(max(b.door.lock.o.ParkAfter, 0))
		b.tell(NoticeWaiting)
	case !idling:
		b.going()
	}
	if b.timer == nil || b.parent != nil {
		return nil
	}
	return b.timer.C
}

// going ends the time in which only reviews are left, if it is that time.
func (b *batch) going() {
	if b.timer == nil {
		return
	}
	b.timer.Stop()
	b.timer = nil
	b.tell(NoticeGoing)
}

// tell tells of the whole run; what is nested, or was asked from inside, says
// nothing about that.
func (b *batch) tell(kind NoticeKind) {
	inside := slices.ContainsFunc(b.items, func(it *item) bool {
		_, _, request := it.req.ID.Request()
		return request
	})
	if b.parent == nil && !inside {
		b.door.lock.notify(Notice{Kind: kind, Run: b.door.drive.Run})
	}
}

// answered begins the time until parking anew.
func (b *batch) answered() {
	if b.timer != nil {
		b.timer.Reset(max(b.door.lock.o.ParkAfter, 0))
	}
}

// nextExpiry fires when the time for deciding an open review is over.
func (b *batch) nextExpiry() <-chan time.Time {
	var next time.Time
	for _, it := range b.items {
		if it.place == waiting && it.review.State == caisson.ReviewOpen && (next.IsZero() || it.review.Expires.Before(next)) {
			next = it.review.Expires
		}
	}
	if next.IsZero() {
		return nil
	}
	// Beyond the moment, as the last moment still counts, and the ledger's
	// clock may differ a little.
	return time.After(max(next.Sub(b.ledger().Now()), 0) + 5*time.Millisecond)
}

// watch begins to watch the run's record for decisions, which any process may write.
func (b *batch) watch() {
	if b.watching {
		return
	}
	b.watching = true
	b.watchers.Go(func() {
		seen := int64(-1) // whatever was decided before counts too
		for {
			n, err := b.ledger().Wait(b.ctx, b.door.drive.Run, seen)
			if b.ctx.Err() != nil {
				return
			}
			seen = n
			select {
			case b.wake <- err:
			case <-b.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
}

// onWake looks whether the run shall be cancelled, and at every open review.
func (b *batch) onWake() error {
	if b.over() {
		return nil
	}
	stored, err := b.ledger().Run(b.io(), b.door.drive.Run)
	if err != nil {
		return err
	}
	if stored.CancelAsked != "" {
		b.stop(&caisson.CauseError{Cause: stored.CancelAsked, Text: "cancel was asked"})
		return nil
	}
	for i := 0; i < len(b.items) && !b.over(); i++ { // looking at one may add its retry
		it := b.items[i]
		if it.place != waiting || it.review.State != caisson.ReviewOpen {
			continue
		}
		review, err := b.ledger().Review(b.io(), it.review.ID)
		if err != nil {
			return err
		}
		if review.State == caisson.ReviewExpired || b.expired(review) {
			if err := b.lapsed(it, review); err != nil {
				return err
			}
			continue
		}
		if review.State == caisson.ReviewOpen {
			continue
		}
		it.review, it.place = review, idle
		b.answered()
		if err := b.reviewed(it); err != nil {
			return err
		}
	}
	return nil
}

// onEnd takes what a doer's goroutine hands back.
func (b *batch) onEnd(e ended) {
	it := e.item
	b.busy--
	b.alone = b.alone && b.busy > 0
	it.place = idle
	if e.known {
		it.rec, it.known = e.rec, true
	}
	switch {
	case e.err != nil:
		b.fail(e.err)
	case e.then == afterNone:
		b.fail(b.finish(it, e.rec))
	case e.then == afterUnknown:
		it.partial = e.partial
		b.fail(b.lost(it))
	case e.then == afterStale && !b.over():
		b.fail(b.askAgain(it, it.verdict, "the approval was not used in time"))
	case e.then == afterJudged && !b.over():
		if err := b.read(it); err != nil {
			b.fail(err)
		} else {
			b.fail(b.look(it))
		}
	case e.then == afterCancelled:
		b.fail(b.cancelAsked())
	}
	if it.place == idle && b.ending != nil && b.err == nil {
		b.fail(b.cancel(it, b.ending))
	}
}

// finish notes an outcome.
func (b *batch) finish(it *item, rec caisson.CallRecord) error {
	it.rec, it.known, it.place = rec, true, over
	if it.of != nil {
		return b.retryEnded(it)
	}
	return nil
}
