package control

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// look takes what has come in, unless this channel has made so much work that it
// is to wait: paced tells then when its time has come.
func (b *Broker) look(paced *time.Timer) {
	if wait := b.pace.wait(time.Now()); wait > 0 {
		paced.Reset(wait)
		return
	}
	more := b.take()
	again := b.pace.looked(time.Now(), more)
	if b.behind.Store(again); again {
		signal(b.wake)
	}
}

// take claims what has come in. It gives way after what one look has found, so
// that a flood keeps nobody from being told the state: more, where that was not
// all.
func (b *Broker) take() (more bool) {
	// While what was claimed cannot be answered nothing more is: it would pile up.
	if !b.taking() || len(b.unsaid) > 0 {
		b.stir()
		return false
	}
	b.unseen.Store(false)
	if err := b.takeLeft(b.ctx); err != nil {
		b.stir()
		return false
	}
	began := time.Now()
	ids, err := b.files().Scan(began)
	b.pace.spend(time.Since(began))
	if err != nil {
		b.stir()
		return false
	}
	if more = b.files().Counts().More; len(ids) == 0 {
		return more
	}
	seen := b.s.o.Boot()
	if !b.current() {
		b.stir()
		return more
	}
	b.keep(b.ctx)
	together := takeTogether
	if b.pace.shares { // others do not wait for many that are recorded at once
		together = takeFew
	}
	for some := range slices.Chunk(ids, together) {
		if b.ctx.Err() != nil || !b.taking() || len(b.unsaid) > 0 {
			b.stir()
			return more
		}
		began := time.Now()
		b.record(b.claimSome(some, seen))
		if b.pace.spendOn(len(some), time.Since(began)); b.pace.owes() {
			break // the others are found again when that is paid
		}
	}
	b.trim()
	return more
}

// takeTogether is how many requests are recorded together: each is a write of
// its own, and the ledger makes writes that come at once durable at once. It is
// also how many are claimed and not on record at most.
const takeTogether = 32

// takeFew is that for a channel that is flooded.
const takeFew = 8

// claimSome claims some requests and looks at them.
func (b *Broker) claimSome(ids []caisson.RequestID, seen time.Duration) (taken []*request) {
	places := 0 // that are taken by those before
	for _, id := range ids {
		r := b.claim(id, seen, places)
		if r == nil {
			continue
		}
		taken = append(taken, r)
		if r.record.Rejected == nil {
			places++
		}
	}
	_ = fault.Point("control.claimed")
	return taken
}

// record records some requests, and has them begin in their order. Those that
// are on record are released: not before, or nobody would answer them if this
// process died.
func (b *Broker) record(taken []*request) {
	errs := make([]error, len(taken))
	record := func(i int) {
		ctx, done := b.writing()
		defer done()
		errs[i] = b.s.o.Ledger.TakeRequest(ctx, b.o.Drive, taken[i].record)
		if errs[i] == nil {
			_ = fault.Point("control.recorded")
			b.files().Release(taken[i].record.ID)
		}
	}
	var recording sync.WaitGroup
	for i := 1; i < len(taken); i++ {
		recording.Go(func() { record(i) })
	}
	if len(taken) > 0 {
		record(0)
	}
	recording.Wait()
	_ = fault.Point("control.taken")
	for i, r := range taken {
		b.admit(r, errs[i])
	}
}

func (b *Broker) taking() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.quiet && b.cause == nil && b.state != caisson.BrokerStarting
}

// current proves that this process still has the sandbox, and begins another
// epoch if it did not run for a while: what clients know may be old by then.
func (b *Broker) current() bool {
	if b.owned(b.ctx) != nil {
		return false
	}
	if !b.stalled() {
		return true
	}
	stalls, _ := b.s.pulse()
	ctx, done := b.writing()
	defer done()
	ch, err := b.s.o.Ledger.OpenChannel(ctx, b.o.Drive, 0)
	if err != nil {
		b.lost(err)
		return false // with the next tick
	}
	b.mu.Lock()
	b.channel, b.stalls = ch, stalls
	b.mu.Unlock()
	b.tell()
	return true
}

// stalled tells whether the process did not run for a while since this epoch began.
func (b *Broker) stalled() bool {
	stalls, _ := b.s.pulse()
	b.mu.Lock()
	defer b.mu.Unlock()
	return stalls != b.stalls
}

// claim takes one request out of the channel and looks at it. Nil: there is
// nothing by that name that could be taken, or its id was taken before.
func (b *Broker) claim(id caisson.RequestID, seen time.Duration, places int) *request {
	body, err := b.files().Claim(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && caisson.CodeOf(err) != caisson.CodeRequestInvalid:
		b.stir()
		return nil // it is where it was
	}
	if _, answered := b.files().Has(id); answered {
		b.files().Release(id)
		b.replayed(id)
		return nil
	}
	ch := b.Status()
	r := &request{seen: seen, record: caisson.RequestRecord{
		Run: b.o.Drive.Run, Generation: ch.Generation, ID: id, Call: caisson.NewRequestCallID(b.o.Drive.Run, ch.Generation, id),
	}}
	asked, refused := b.check(id, body, err, seen, places)
	input, refused := canonical(asked.Input, refused)
	if refused != nil {
		r.record.Rejected, r.record.At = bare(refused), b.s.o.Ledger.Now()
	}
	if asked.Verb != "" {
		r.record.Verb, r.wait = asked.Verb, waitOf(asked)
	}
	if r.record.Rejected == nil { // else nothing is kept of what a client may send without end
		r.record.Input, r.input = input, input
	}
	return r
}

// canonical is the one form in which an input goes on from here: what has none
// is refused, as nothing else may be done in its place.
func canonical(input json.RawMessage, refused *caisson.Error) (json.RawMessage, *caisson.Error) {
	out, err := caisson.Canonical(input)
	if err == nil || refused != nil {
		return out, refused
	}
	return nil, caisson.Errorf(caisson.CodeRequestInvalid, "the request is not valid: input has no canonical form").With("field", "input")
}

// bare is an error without its cause, which is for this process alone.
func bare(e *caisson.Error) *caisson.Error {
	c := *e
	c.Err = nil
	return &c
}

// check looks at a request in the order in which a client is told what is
// wrong: what it cannot help, then what it did not know, then what it did wrong.
func (b *Broker) check(id caisson.RequestID, body []byte, unread error, seen time.Duration, places int) (caisson.ControlRequest, *caisson.Error) {
	var r caisson.ControlRequest
	if err := b.parkedError(); err != nil {
		return r, err
	}
	if unread != nil {
		return r, caisson.AsError(unread)
	}
	now := b.Status()
	r, refused := decode(body, id, now.Generation, now.Epoch, b.s.o.Boot()-seen)
	if refused != nil {
		if refused.Code == caisson.CodeGenerationStale || refused.Code == caisson.CodeRequestExpired {
			b.doubtStatus()
		}
		return r, refused
	}
	if b.verb(r.Verb) == nil {
		return r, caisson.Errorf(caisson.CodeVerbDenied, "there is no such verb for this sandbox")
	}
	if err := b.checkBinding(b.ctx); err != nil {
		return r, caisson.Errorf(caisson.CodeWorkspaceBindingLost, "%s", caisson.CodeWorkspaceBindingLost.Info().Meaning)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.running)+len(b.queue)+places >= caisson.ControlRunning+caisson.ControlQueued {
		return r, caisson.Errorf(caisson.CodeBusy, "%d requests run and %d wait", len(b.running), len(b.queue)+places)
	}
	return r, nil
}

// parkedError is the answer of a parked broker.
func (b *Broker) parkedError() *caisson.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.reasons) == 0 {
		return nil
	}
	reason, why := b.reasonLocked()
	return caisson.Errorf(reason, "%s", why.text)
}

// verbs are what may be asked for: those of the host, and the broker's own.
func (b *Broker) verbs() []caisson.Tool {
	var all []caisson.Tool
	if b.o.Verbs != nil {
		all = b.o.Verbs()
	}
	return append(all[:len(all):len(all)], recoverTool{b})
}

func (b *Broker) verb(name string) caisson.Tool {
	for _, tool := range b.verbs() {
		if VerbOf(tool) == name {
			return tool
		}
	}
	return nil
}

// admit has a request go on whose id the ledger was asked to use up.
func (b *Broker) admit(r *request, err error) {
	switch caisson.CodeOf(err) {
	case "":
		if r.record.Rejected != nil {
			b.publish(r.record, nil)
			return
		}
		b.enqueue(r)
	case caisson.CodeRequestReplayed:
		b.files().Release(r.record.ID)
		b.replayed(r.record.ID)
	case caisson.CodeChannelFull:
		b.Park(caisson.CodeChannelFull, caisson.CodeChannelFull.Info().Meaning)
		b.unrecorded(r, caisson.Errorf(caisson.CodeChannelFull, "%s", caisson.CodeChannelFull.Info().Meaning))
	case caisson.CodeLeaseLost, caisson.CodeGenerationStale:
		// Whoever displaced us took the channel with it, and what is claimed and not
		// recorded.
		b.end(caisson.Errorf(caisson.CodeLeaseLost, "the channel is another's now: %w", err))
	default:
		b.unrecorded(r, caisson.Errorf(caisson.CodeNotExecuted, "it could not be recorded, and was not begun"))
	}
}

// maxReplays bounds how many replays are recorded in one life of a broker: they
// use up no ids, so nothing else bounds them.
const maxReplays = 100

// replay is the event of a request whose id was taken before.
type replay struct {
	Generation int64             `json:"generation"`
	ID         caisson.RequestID `json:"id"`
}

// replayed takes a request whose id was taken before. It changes nothing about
// the first and gets no answer of its own: an answer of that id is the first
// one's, and is published again where it is not there any more.
func (b *Broker) replayed(id caisson.RequestID) {
	b.replays++
	generation := b.Status().Generation
	if b.replays <= maxReplays {
		ctx, done := b.writing()
		err := b.s.o.Ledger.Append(ctx, b.o.Drive, caisson.EventRequestReplayed, replay{generation, id})
		done()
		if b.lost(err) {
			return
		}
	}
	if _, answered := b.files().Has(id); answered {
		return
	}
	_, _ = b.republish(b.ctx, id) // it is tried again by whoever asks to recover it
}

// trim removes old answers, now and then.
func (b *Broker) trim() {
	b.mu.Lock()
	due := b.published >= trimEvery
	if due {
		b.published = 0
	}
	b.mu.Unlock()
	if due {
		_ = b.files().Trim(time.Now(), b.open) // what cannot be removed is tried again
	}
}

// trimEvery is after how many answers old ones are removed.
const trimEvery = 64

// open tells whether a request is not over.
func (b *Broker) open(id caisson.RequestID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.repair[id] || b.heldByLocked(id)
}

// heldByLocked tells whether a request is in somebody's hands here.
func (b *Broker) heldByLocked(id caisson.RequestID) bool {
	return b.running[id] != nil || b.waiting[id] != nil || slices.ContainsFunc(b.queue, func(r *request) bool { return r.record.ID == id })
}
