package airlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
)

// place is where in the batch a call is.
type place int

const (
	idle    place = iota // looked at or not, nothing goes on
	queued               // in the chain, free to run
	waiting              // its review is open
	running              // its doer is at work
	retried              // its retry is in the batch
	over                 // it has its outcome
)

// item is one call of a batch. Only the batch's own goroutine touches it,
// but for a running one's doer, which reads it.
type item struct {
	req   Request
	place place
	known bool // the ledger has a row of it: rec
	rec   caisson.CallRecord

	call    caisson.Call // as prepared today
	verdict caisson.Verdict
	review  caisson.Review // open, or the one whose approval is used
	repeat  bool           // it began before and may be done again
	partial caisson.Result // what it produced before its end was lost from sight
	of      *item          // the unknown call that it retries
}

// ended is what a doer's goroutine hands back.
type ended struct {
	item    *item
	rec     caisson.CallRecord
	known   bool // rec is what the ledger has now
	err     error
	then    after          // what the owner has to do where rec has no outcome
	partial caisson.Result // what an unknown call produced
}

type after int

const (
	afterNone      after = iota
	afterUnknown         // it began, and its end is unknown
	afterStale           // its approval does not stand
	afterJudged          // policy is stricter than when it joined the chain
	afterCancelled       // the run shall be cancelled
	afterIdle            // the batch ended before it began
)

// batch is one Settle. One goroutine owns it: the caller's.
type batch struct {
	door   *Door
	ctx    context.Context //nolint:containedctx // one batch is one call of Settle
	stop   context.CancelCauseFunc
	parent *live

	items    []*item // as requested, retries behind
	asked    int     // how many were requested
	chain    []*item
	busy     int
	alone    bool // the one that runs must run alone
	ends     chan ended
	wake     chan error
	watching bool
	watchers sync.WaitGroup

	err    error // why nothing more is begun
	halted bool  // nothing more is begun, open reviews stay
	ending error // the cause that cancels what has not begun
	abort  bool
	parked bool
	timer  *time.Timer // until parking; while only reviews are left
}

func newBatch(ctx context.Context, d *Door, requests []Request, parent *live) *batch {
	b := &batch{door: d, parent: parent, asked: len(requests), ends: make(chan ended), wake: make(chan error, 1)}
	b.ctx, b.stop = context.WithCancelCause(ctx)
	for _, r := range requests {
		b.items = append(b.items, &item{req: r})
	}
	return b
}

// close ends what the batch started. Its doers have ended before.
func (b *batch) close() {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.stop(nil)
	b.watchers.Wait()
}

func (b *batch) run() error {
	if err := b.load(); err != nil {
		return err
	}
	if err := b.restoreDenials(); err != nil {
		return err
	}
	for i := 0; i < b.asked && !b.over(); i++ {
		if it := b.items[i]; it.place == idle {
			b.fail(b.look(it))
		}
	}
	b.loop()
	if b.err != nil {
		return b.err
	}
	if b.ctx.Err() != nil && !b.abort {
		return context.Cause(b.ctx)
	}
	return nil
}

// over tells whether nothing more is begun.
func (b *batch) over() bool { return b.err != nil || b.halted || b.abort || b.ctx.Err() != nil }

// fail notes why nothing more is begun. A driver that lost its lease stops its doers.
func (b *batch) fail(err error) {
	switch {
	case err == nil, b.err != nil:
		return
	case errors.Is(err, errNotLooked):
		return // the end of the context says it
	}
	b.err = err
	if caisson.CodeOf(err) == caisson.CodeLeaseLost {
		b.stop(&caisson.CauseError{Cause: caisson.CauseLeaseLost, Text: err.Error()})
	}
}

// load reads what the ledger knows of the calls.
func (b *batch) load() error {
	for _, it := range b.items {
		if err := b.read(it); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) read(it *item) error {
	if it.req.New && !it.known && it.place == idle {
		return nil
	}
	rec, err := b.ledger().Call(b.io(), it.req.ID)
	switch {
	case caisson.CodeOf(err) == caisson.CodeCallUnknown, caisson.CodeOf(err) == caisson.CodeNotFound:
		return nil
	case err != nil:
		return fmt.Errorf("read call %s: %w", it.req.ID, err)
	}
	it.rec, it.known = rec, true
	if rec.Review == "" {
		return nil
	}
	if it.review, err = b.ledger().Review(b.io(), rec.Review); err != nil {
		return fmt.Errorf("read review %s: %w", rec.Review, err)
	}
	return nil
}

// io is the context of what is read: a cancel must not be taken for a fault of the ledger.
func (b *batch) io() context.Context { return context.WithoutCancel(b.ctx) }

func (b *batch) ledger() caisson.Ledger { return b.door.lock.o.Ledger }

// settled is what Settle returns.
func (b *batch) settled() Settled {
	s := Settled{Abort: b.abort}
	for _, it := range b.items[:b.asked] {
		rec := it.rec
		if !it.known {
			rec = caisson.CallRecord{Call: it.call, State: caisson.CallPrepared}
			if rec.Call.ID == "" {
				rec.Call = b.door.skeleton(it.req)
			}
		}
		s.Records = append(s.Records, rec)
	}
	if b.parked {
		for _, it := range b.items {
			if it.place == waiting {
				s.Waiting = append(s.Waiting, it.review.ID)
			}
		}
	}
	return s
}
