package airlock

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/caisson-run/caisson"
)

// live is a call whose doer is at work in this process.
type live struct {
	call  caisson.Call
	order int             // of beginning
	ctx   context.Context //nolint:containedctx // it is the call's life, which nested calls share
	stop  context.CancelCauseFunc

	mu     sync.Mutex
	over   bool
	next   int
	nested sync.WaitGroup
}

// Nested is the door for the calls that a call makes.
type Nested struct {
	door *Door
	live *live
}

// Nested returns the door for the calls that the doer of parent makes, while it
// is at work: CodeCallUnknown before and after.
func (d *Door) Nested(parent caisson.CallID) (*Nested, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.live[parent]
	if l == nil {
		return nil, caisson.Errorf(caisson.CodeCallUnknown, "call %q is not under way", parent)
	}
	return &Nested{d, l}, nil
}

// Outermost returns the calls whose doers are at work now and that no other call
// made, the oldest first: what runs inside a sandbox runs for one of them.
func (d *Door) Outermost() []caisson.CallID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var at []*live
	for _, l := range d.live {
		if l.call.Parent == "" {
			at = append(at, l)
		}
	}
	slices.SortFunc(at, func(a, b *live) int { return cmp.Compare(a.order, b.order) })
	ids := make([]caisson.CallID, len(at))
	for i, l := range at {
		ids[i] = l.call.ID
	}
	return ids
}

// Settle is as [Door.Settle], with three differences. The airlock gives the
// ids, turn and parent. It does not park, as a doer is waiting: only ctx and the
// life of the parent bound the wait. And nothing outlives the parent: whatever
// ends it, open reviews are withdrawn and calls that have not begun are
// cancelled.
func (n *Nested) Settle(ctx context.Context, requests []Request) (Settled, error) {
	l := n.live
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return Settled{}, caisson.Errorf(caisson.CodeCallUnknown, "call %q is not under way", l.call.ID)
	}
	l.nested.Add(1)
	defer l.nested.Done()
	given := make([]Request, len(requests))
	for i, r := range requests {
		l.next++
		r.ID, r.Turn, r.Parent = l.call.ID.Nested(l.next), l.call.Turn, l.call.ID
		given[i] = r
	}
	l.mu.Unlock()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	return n.door.settleBatch(ctx, given, l)
}

// begin makes a call live; the returned function ends it, with all calls that it made.
func (d *Door) begin(ctx context.Context, stop context.CancelCauseFunc, call caisson.Call) (end func()) {
	l := &live{call: call, ctx: ctx, stop: stop}
	d.mu.Lock()
	d.begun++
	l.order = d.begun
	d.live[call.ID] = l
	d.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		stop(&caisson.CauseError{Cause: caisson.CauseParent, Text: parentGone})
		l.nested.Wait()
		d.mu.Lock()
		delete(d.live, call.ID)
		d.mu.Unlock()
	}
}

// parentGone is why a nested call ended without being done.
const parentGone = "parent-gone"
