package control

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// takeLeft takes what somebody claimed who had the channel and has ended, as if
// it had come in just now. What he had recorded, or answered, is on record as
// what it is, and only released. An error: not all of it was taken.
func (b *Broker) takeLeft(ctx context.Context) error {
	for some := range slices.Chunk(b.files().Left(), takeTogether) {
		known, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, caisson.RequestFilter{IDs: some, Names: true})
		if err != nil {
			return err
		}
		now, older := map[caisson.RequestID]bool{}, map[caisson.RequestID]bool{}
		for _, r := range known {
			if r.Generation == b.Status().Generation {
				now[r.ID] = true
			} else {
				older[r.ID] = true
			}
		}
		some = slices.DeleteFunc(some, func(id caisson.RequestID) bool {
			_, answered := b.files().Has(id)
			if now[id] || answered {
				b.files().Release(id)
			}
			return now[id] || answered
		})
		if len(some) == 0 {
			continue
		}
		taken := slices.DeleteFunc(b.claimSome(some, b.s.o.Boot()), func(r *request) bool {
			was := older[r.record.ID] && r.record.Rejected != nil && r.record.Rejected.Code == caisson.CodeGenerationStale
			if was { // recorded in the generation that it is for
				b.files().Release(r.record.ID)
			}
			return was
		})
		if b.record(taken); b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
	}
	return nil
}

// unrecorded answers a request that the ledger did not take. Its id is used up
// for as long as the answer is there; nothing was done under it. An answer that
// cannot be published now is with the next tick; the request stays claimed until
// then, for whoever opens the channel next.
func (b *Broker) unrecorded(r *request, why *caisson.Error) {
	r.record.Rejected, r.record.At = why, b.s.o.Ledger.Now()
	r.record.Input, r.input = nil, nil
	ctx, done := b.writing()
	defer done()
	if err := b.project(ctx, r.record, nil); err != nil {
		b.unsaid = append(b.unsaid, r)
		b.stir()
		return
	}
	b.files().Release(r.record.ID)
	_ = fault.Point("control.published")
}

// mendUnsaid answers what could not be answered when it was not recorded.
func (b *Broker) mendUnsaid() {
	unsaid := b.unsaid
	b.unsaid = nil
	for _, r := range unsaid {
		b.unrecorded(r, r.record.Rejected)
	}
}
