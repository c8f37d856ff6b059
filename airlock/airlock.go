package airlock

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/schema"
)

// What to do about a call whose end nobody saw and that may not be repeated.
const (
	OnUnknownAsk  = "ask"  // a person says: done, retry or stop
	OnUnknownTell = "tell" // the model is told in words, and that is all
)

// Options configure an [Airlock].
type Options struct {
	Ledger caisson.Ledger
	// Judge is today's policy. Nil says that none could be loaded: then every
	// call is refused.
	Judge caisson.Judge
	// Hooks see every call before it is judged, in this order.
	Hooks []caisson.Hook
	// Redact takes secrets out of every text before it is written: results,
	// previews, messages. Inputs are not changed, as what is recorded, judged
	// and done must be one value. Nil changes nothing.
	Redact func(string) string
	// ReviewExpiry is the time for deciding a review; 0 means 24 h.
	ReviewExpiry time.Duration
	// ApprovalTTL is the time for using an approval; 0 means 24 h.
	ApprovalTTL time.Duration
	// ParkAfter is how long Settle waits for a decision when only open reviews
	// are left; 0 means 30 s, negative not at all.
	ParkAfter time.Duration
	// Parallel is how many calls that declare it may run beside each other; 0 means 8.
	Parallel int
	// OnUnknown is OnUnknownAsk (also when empty) or OnUnknownTell.
	OnUnknown string
	// Unattended says that nobody answers: what would be a review is refused.
	Unattended bool
	// Observe is told what happens, after it is recorded. It is called from
	// several goroutines and must return at once. Nil: nobody is told.
	Observe func(Notice)
	// SettleFor is how long the result of a call that was done is tried to be
	// written while the ledger takes no writes; 0 means 5 s.
	SettleFor time.Duration
}

// NoticeKind says what a [Notice] is of.
type NoticeKind string

// Kinds of notice.
const (
	NoticeAsked   NoticeKind = "asked"   // Review is open
	NoticeStarted NoticeKind = "started" // Record has begun
	NoticeSettled NoticeKind = "settled" // Record has its outcome
	NoticeStale   NoticeKind = "stale"   // the approval of Review does not stand today
	NoticeWaiting NoticeKind = "waiting" // from now on only reviews are left
	NoticeGoing   NoticeKind = "going"   // no longer so
)

// Notice is something that happened to the calls of a run.
type Notice struct {
	Kind   NoticeKind
	Run    caisson.RunID
	Record *caisson.CallRecord
	Review *caisson.Review
	Text   string
}

// Airlock is the one door to every effect. Safe for concurrent use.
type Airlock struct {
	o Options

	mu      sync.Mutex
	schemas map[caisson.Digest]*schema.Schema
	// kept are results that were produced and could not be written: the one
	// case in which memory knows more than the ledger.
	kept map[caisson.CallID]keptResult
}

type keptResult struct {
	attempt int // of the start that produced it
	settle  caisson.CallSettle
}

// New returns an airlock.
func New(o Options) *Airlock {
	if o.ReviewExpiry == 0 {
		o.ReviewExpiry = 24 * time.Hour
	}
	if o.ApprovalTTL == 0 {
		o.ApprovalTTL = 24 * time.Hour
	}
	if o.ParkAfter == 0 {
		o.ParkAfter = 30 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.SettleFor == 0 {
		o.SettleFor = 5 * time.Second
	}
	return &Airlock{o: o, schemas: map[caisson.Digest]*schema.Schema{}, kept: map[caisson.CallID]keptResult{}}
}

// Enter returns the door of one run for the process that drives it. subject is
// asked before every verdict; the grants in it are not used: those of the
// ledger are, so that a revoked one stops to count at once.
func (a *Airlock) Enter(drive caisson.Drive, subject func() caisson.Subject, binding caisson.Digest, sandbox caisson.SandboxID) *Door {
	return &Door{lock: a, drive: drive, subject: subject, binding: binding, sandbox: sandbox, claimed: map[caisson.CallID]bool{}, live: map[caisson.CallID]*live{}}
}

func (a *Airlock) notify(n Notice) {
	if a.o.Observe != nil {
		a.o.Observe(n)
	}
}

func (a *Airlock) redact(text string) string {
	if a.o.Redact == nil {
		return text
	}
	return a.o.Redact(text)
}

// maxSchemas bounds the memory that compiled schemas take: servers may change
// theirs as often as they like.
const maxSchemas = 1024

func (a *Airlock) schema(raw json.RawMessage) (*schema.Schema, error) {
	key := caisson.DigestOf(raw)
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.schemas[key]; s != nil {
		return s, nil
	}
	s, err := schema.Compile(raw)
	if err != nil {
		return nil, err
	}
	if len(a.schemas) >= maxSchemas {
		clear(a.schemas)
	}
	a.schemas[key] = s
	return s, nil
}

// Door is where the calls of one run go through. It is held by the run's
// driver; all that it writes carries the driver's fence. Safe for concurrent use.
type Door struct {
	lock    *Airlock
	drive   caisson.Drive
	subject func() caisson.Subject
	binding caisson.Digest
	sandbox caisson.SandboxID

	mu      sync.Mutex
	claimed map[caisson.CallID]bool
	live    map[caisson.CallID]*live
	begun   int // calls that have begun in this life
}

// Settle takes all calls of one turn, wherever each one is, and returns when
// every call has its outcome; or when only open reviews are left and none was
// answered for ParkAfter; or when ctx ends.
//
// It is also the recovery. A call that the ledger knows goes on from there: one
// with an outcome is replayed, one that nobody began is judged anew, one that
// began and whose end nobody saw is unknown unless its class allows to repeat
// it, or its reach is the ledger: its effect is written with its outcome, so it
// had none, and is done again or has failed. Whatever the run's last driver left running must have been ended before.
//
// When ctx ends, running calls are stopped and settle with what they produced.
// If its cause is a shutdown, a lost lease, a [PauseError] or none, all others
// stay as they are; any other cause cancels them. The error is then the cause.
// Another error means that the ledger takes no writes, or that the right to
// write is lost; what was recorded is safe and nothing is ever done again for it.
//
// An id that is not of this run, stands twice or is in use right now is refused
// with CodeCallUnknown before anything happens.
func (d *Door) Settle(ctx context.Context, requests []Request) (Settled, error) {
	return d.settleBatch(ctx, requests, nil)
}

func (d *Door) settleBatch(ctx context.Context, requests []Request, parent *live) (Settled, error) {
	if err := d.claim(requests, parent); err != nil {
		return Settled{}, err
	}
	defer d.release(requests)
	b := newBatch(ctx, d, requests, parent)
	defer b.close()
	err := b.run()
	return b.settled(), err
}

// claim makes sure that each id is ours and taken once.
func (d *Door) claim(requests []Request, parent *live) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[caisson.CallID]bool{}
	for _, r := range requests {
		prefix := string(d.drive.Run) + "."
		if parent != nil {
			prefix = string(parent.call.ID) + "."
		}
		switch {
		case !strings.HasPrefix(string(r.ID), prefix) || len(r.ID) == len(prefix):
			return caisson.Errorf(caisson.CodeCallUnknown, "call %q is not of run %s", r.ID, d.drive.Run)
		case parent == nil && r.Parent != "", parent != nil && r.Parent != parent.call.ID:
			return caisson.Errorf(caisson.CodeCallUnknown, "call %q names a parent that does not ask for it", r.ID)
		case seen[r.ID] || d.claimed[r.ID]:
			return caisson.Errorf(caisson.CodeCallUnknown, "call %q stands twice", r.ID)
		}
		seen[r.ID] = true
	}
	for id := range seen {
		d.claimed[id] = true
	}
	return nil
}

func (d *Door) release(requests []Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range requests {
		delete(d.claimed, r.ID)
	}
}
