package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// Open opens the channel of a sandbox: what an earlier broker left is answered,
// then requests are taken. It fails, and names it, where a process of an earlier
// life cannot be ended (CodeOrphanAlive, CodeHolderUnknown).
func (s *Service) Open(ctx context.Context, o Sandbox) (*Broker, error) {
	b := s.broker(ctx, o)
	if err := b.begin(ctx); err != nil {
		b.stop(err)
		b.work.Wait()
		b.place.close()
		b.vacate()
		return nil, fmt.Errorf("open the control channel of sandbox %s: %w", o.Record.ID, err)
	}
	s.add(b)
	go b.live() // ends with Close, End, or the lease; see Done
	return b, nil
}

func (s *Service) broker(ctx context.Context, o Sandbox) *Broker {
	b := &Broker{
		near: s.near(), s: s, o: o, since: s.o.Ledger.Now(),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), counts: make(chan struct{}, 1), ticks: make(chan struct{}, 1),
		done: make(chan struct{}), changed: make(chan struct{}),
		reasons: map[caisson.Code]parked{}, running: map[caisson.RequestID]*request{}, waiting: map[caisson.RequestID]*request{},
		repair: map[caisson.RequestID]bool{}, remove: func() {}, untold: true, pace: pace{debtors: &s.debtors},
	}
	b.of, b.id, b.instance, b.state = b, o.Record.ID, o.Record.EngineInstance, caisson.BrokerStarting
	b.displaced.ask = asking[bool](func(context.Context) (bool, error) { return b.files().Displaced(), nil })
	b.ctx, b.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if o.Owned == nil {
		b.o.Owned = b.leaseHeld
	}
	if o.Bound != nil {
		b.bound.ask, b.isBound = (*binding)(b.near), o.Bound
	}
	return b
}

func (b *Broker) begin(ctx context.Context) error {
	ch, err := b.s.o.Ledger.OpenChannel(ctx, b.o.Drive, b.o.Generation)
	if err != nil {
		return err
	}
	b.channel = ch
	b.stalls, _ = b.s.pulse()
	// Not before: whoever makes the files takes them from who has them.
	if err := b.place.make(b.o.Dir); err != nil {
		return err
	}
	if ch.Taken >= caisson.ControlConsumed {
		b.Park(caisson.CodeChannelFull, caisson.CodeChannelFull.Info().Meaning)
	}
	if err := b.recover(ctx); err != nil {
		return err
	}
	// Before anybody is told that it is healthy: who asks then for what the one
	// before had claimed shall hear of it.
	if err := b.takeLeft(ctx); err != nil {
		return err
	}
	if err := b.introduce(); err != nil {
		return err
	}
	// Before the first look into the channel, or what comes between is not seen.
	remove, err := b.s.o.Watcher.Add(b.files().Requests(), func() { signal(b.wake) }, b.stir)
	if err != nil {
		return err
	}
	unguard, sure := b.s.o.Watcher.Guard(b.o.Dir, func() { signal(b.ticks) })
	b.remove, b.guarded = func() { remove(); unguard() }, sure
	_ = b.checkBinding(ctx) // it parks the broker
	b.mu.Lock()
	to := caisson.BrokerHealthy
	if len(b.reasons) > 0 {
		to = caisson.BrokerParked
	}
	b.moveLocked(to)
	b.startLocked()
	b.mu.Unlock()
	b.tell()
	return nil
}

// Announce tells the sandbox what it may ask for; to be called when that changed.
func (b *Broker) Announce() error { return b.files().Identity(b.identity()) }

// introduce tells the sandbox what does not change while the broker lives.
func (b *Broker) introduce() error {
	if err := b.Announce(); err != nil || b.o.Guide == "" {
		return err
	}
	return b.files().Guide(b.o.Guide)
}

// recover goes on with what an earlier broker left. What is closed is not read,
// but for the names of the newest, whose answers must be there.
func (b *Broker) recover(ctx context.Context) error {
	left, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, caisson.RequestFilter{Open: true})
	if err != nil {
		return err
	}
	slices.Reverse(left) // the oldest first, as they were taken
	for _, r := range left {
		if err := b.resume(ctx, r); err != nil {
			return fmt.Errorf("request %s: %w", r.ID, err)
		}
	}
	return b.rebuild(ctx)
}

// rebuild publishes the newest answers that are in the record and not there.
func (b *Broker) rebuild(ctx context.Context) error {
	newest := caisson.RequestFilter{Generation: b.Status().Generation, Limit: caisson.ControlKept, Names: true}
	names, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, newest)
	if err != nil {
		return err
	}
	var missing []caisson.RequestID
	for _, r := range names {
		if !b.files().Noted(r.ID) && !b.open(r.ID) {
			missing = append(missing, r.ID)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	records, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, caisson.RequestFilter{Generation: b.Status().Generation, IDs: missing})
	if err != nil {
		return err
	}
	oldest := b.s.o.Ledger.Now().Add(-caisson.ControlKeptFor)
	for _, r := range slices.Backward(records) { // the newest is to be kept the longest
		if r.At.Before(oldest) {
			continue
		}
		if err := b.projectStored(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// stored reads the call of a request; nil where there is none.
func (b *Broker) stored(ctx context.Context, r caisson.RequestRecord) (*caisson.CallRecord, error) {
	call, err := b.s.o.Ledger.Call(ctx, r.Call)
	switch caisson.CodeOf(err) {
	case "":
		return &call, nil
	case caisson.CodeCallUnknown, caisson.CodeNotFound:
		return nil, nil //nolint:nilnil // none is an answer
	default:
		return nil, err
	}
}

func (b *Broker) projectStored(ctx context.Context, r caisson.RequestRecord) error {
	var call *caisson.CallRecord
	if r.Rejected == nil {
		var err error
		if call, err = b.stored(ctx, r); err != nil {
			return err
		}
	}
	return b.project(ctx, r, call)
}

// republish publishes the answer of a request again, as it is now.
func (b *Broker) republish(ctx context.Context, id caisson.RequestID) (caisson.ControlAnswer, error) {
	found, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, caisson.RequestFilter{Generation: b.Status().Generation, IDs: []caisson.RequestID{id}})
	if err != nil {
		return caisson.ControlAnswer{}, err
	}
	if len(found) == 0 {
		return caisson.ControlAnswer{}, b.ofOlder(ctx, id)
	}
	call, err := b.stored(ctx, found[0])
	if err != nil {
		return caisson.ControlAnswer{}, err
	}
	answer, any := answerOf(found[0], call)
	if !any {
		return answer, caisson.Errorf(caisson.CodeStateInvalid, "the request was taken and is not accepted yet")
	}
	return answer, b.project(ctx, found[0], call)
}

// ofOlder is why a request has no answer that could be published in this
// generation. One of an older generation is told from one that never was, or who
// asks would send it again: it may have been done.
func (b *Broker) ofOlder(ctx context.Context, id caisson.RequestID) error {
	found, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, caisson.RequestFilter{IDs: []caisson.RequestID{id}, Limit: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return caisson.Errorf(caisson.CodeNotFound, "there is no record of a request of that id")
	}
	call, err := b.stored(ctx, found[0])
	if err != nil {
		return err
	}
	how := "nobody knows how it ended"
	switch answer, _ := answerOf(found[0], call); {
	case answer.State == caisson.AnswerCompleted:
		how = fmt.Sprintf("it was completed with exit %d", answer.Exit)
	case answer.State == caisson.AnswerRejected:
		how = fmt.Sprintf("it was rejected: %s", answer.Error.Code)
	}
	return caisson.Errorf(caisson.CodeGenerationStale, "the request was taken in generation %d of the channel, which is over; %s", found[0].Generation, how).
		WithHint("No other answer comes of it. Look at what it did before doing it again.")
}

// resume goes on with a request by what is recorded of it. It is how an earlier
// life's are taken up, and how those are answered that could not be meanwhile.
func (b *Broker) resume(ctx context.Context, r caisson.RequestRecord) error {
	call, err := b.stored(ctx, r)
	if err != nil {
		return err
	}
	switch {
	case r.Rejected != nil, call != nil && call.State.Terminal():
		return b.projectStored(ctx, r)
	case call == nil:
		r.Rejected = caisson.Errorf(caisson.CodeNotExecuted, "the channel was opened anew before it could begin")
		if err := b.s.o.Ledger.RejectRequest(ctx, b.o.Drive, r.Generation, r.ID, r.Rejected); err != nil {
			return err
		}
		return b.projectOf(ctx, r, nil)
	case call.State == caisson.CallStarted && call.Executor != nil:
		// Whatever it has left running is ended before anybody says what became of it.
		ending, done := context.WithTimeout(ctx, endFor)
		defer done()
		if err := process.EndTree(ending, *call.Executor); err != nil {
			return err
		}
	}
	if call.State == caisson.CallPrepared || call.State == caisson.CallJudged || r.Generation != b.Status().Generation {
		return b.close(ctx, r, *call)
	}
	return b.goOn(ctx, r, call)
}

// endFor bounds how long the end of a killed tree is waited for.
const endFor = 10 * time.Second

// close gives a call that nobody goes on with its outcome: it did not start, or
// nobody knows.
func (b *Broker) close(ctx context.Context, r caisson.RequestRecord, call caisson.CallRecord) error {
	why := caisson.Errorf(caisson.CodeNotExecuted, "the channel was opened anew before it could begin")
	s := caisson.CallSettle{Call: call.Call, Outcome: caisson.OutcomeNotStarted, Result: caisson.Result{
		Outcome: caisson.OutcomeNotStarted, Text: "It was not begun: " + why.Error() + ".", Summary: "not started", Error: why,
	}}
	if call.State == caisson.CallStarted {
		why = caisson.Errorf(caisson.CodeOutcomeUnknown, "it was begun, and the channel was opened anew before its end was seen")
		s.Outcome, s.Used = caisson.OutcomeUnknown, call.Reserve
		s.Result = caisson.Result{Outcome: caisson.OutcomeUnknown, Text: why.Error(), Summary: "unknown", Error: why}
	}
	settled, err := b.s.o.Ledger.SettleCall(ctx, b.o.Drive, s)
	if err != nil {
		return err
	}
	return b.projectOf(ctx, r, &settled)
}

// projectOf publishes what concerns this generation: the files of an older one
// would stand in the way of another request of the same id.
func (b *Broker) projectOf(ctx context.Context, r caisson.RequestRecord, call *caisson.CallRecord) error {
	if r.Generation != b.Status().Generation {
		return nil
	}
	return b.project(ctx, r, call)
}

// goOn takes up a request whose review is open or decided, or whose effect began.
func (b *Broker) goOn(ctx context.Context, r caisson.RequestRecord, call *caisson.CallRecord) error {
	next := &request{record: r, input: call.Call.Input, resumed: true, review: call.Review}
	if call.State == caisson.CallAsked {
		review, err := b.s.o.Ledger.Review(ctx, call.Review)
		if err != nil {
			return err
		}
		next.expires = review.Expires
	}
	if err := b.project(ctx, r, call); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch call.State {
	case caisson.CallAsked:
		b.waitLocked(next)
	case caisson.CallDecided:
		next.asked = true
		b.asking++
		b.queue = append(b.queue, next)
	default:
		b.queue = append(b.queue, next)
	}
	b.startLocked()
	return nil
}

// mend tries again what could not be written or published, and looks at what
// only time changes.
func (b *Broker) mend() {
	ctx, done := b.writing()
	defer done()
	b.recordMoves()
	b.mendUnsaid()
	b.mendRequests(ctx)
	if b.anyLapsed() {
		b.decided()
	}
	b.mu.Lock()
	untold := b.untold
	b.mu.Unlock()
	if untold {
		b.tell()
	}
	_ = b.files().Trim(time.Now(), b.open) // what cannot be removed is tried again
}

func (b *Broker) mendRequests(ctx context.Context) {
	b.mending.Lock()
	defer b.mending.Unlock()
	b.mu.Lock()
	var ids []caisson.RequestID
	for id := range b.repair {
		ids = append(ids, id)
	}
	b.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	found, err := b.s.o.Ledger.Requests(ctx, b.o.Drive.Run, caisson.RequestFilter{Generation: b.Status().Generation, IDs: ids})
	if err != nil {
		return
	}
	known := map[caisson.RequestID]caisson.RequestRecord{}
	for _, r := range found {
		known[r.ID] = r
	}
	for _, id := range ids {
		b.mu.Lock()
		held := b.heldByLocked(id)
		// Before anything is done: whoever goes on with it may note it again. While
		// it runs it stays noted, as that may be for what it ends with.
		if b.running[id] == nil {
			delete(b.repair, id)
		}
		b.mu.Unlock()
		r, is := known[id]
		if !is {
			continue
		}
		again := b.resume
		if held { // only a file of it is missing
			again = b.projectStored
		}
		if err := again(ctx, r); err != nil {
			b.mendLater(id)
			if b.lost(err) {
				return
			}
		}
	}
}

// recoverTool is the verb that publishes the answer of a request again.
type recoverTool struct{ b *Broker }

// RecoverVerb is the name of the broker's own verb. Its input is {"id": …}.
const RecoverVerb = "recover"

const recoverSchema = `{"type":"object","properties":{"id":{"type":"string","minLength":16,"maxLength":64,"description":"the id of the request whose answer is wanted again"}},"required":["id"],"additionalProperties":false}`

func (t recoverTool) Spec() caisson.ToolSpec {
	return caisson.ToolSpec{
		Ref: caisson.ToolRef{Name: RecoverVerb}, Description: "Publish the answer of an earlier request of this channel again.",
		Schema: json.RawMessage(recoverSchema), Effect: caisson.EffectRead, Reach: caisson.ReachInside, Parallel: true,
	}
}

func (t recoverTool) Facets(json.RawMessage) (caisson.Facets, error) { return caisson.Facets{}, nil }

func (t recoverTool) Hold(_ context.Context, call caisson.Call, _ caisson.EffectID) (caisson.Executor, error) {
	var in struct {
		ID caisson.RequestID `json:"id"`
	}
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "%w", err)
	}
	return recovering{t.b, in.ID}, nil
}

type recovering struct {
	b  *Broker
	id caisson.RequestID
}

func (recovering) Identity() *caisson.ProcessIdentity { return nil }
func (recovering) Drop()                              {}

func (r recovering) Open(ctx context.Context) (caisson.Result, error) {
	answer, err := r.b.republish(ctx, r.id)
	if err != nil {
		return caisson.Result{}, err
	}
	data, err := json.Marshal(struct {
		ID    caisson.RequestID   `json:"id"`
		State caisson.AnswerState `json:"state"`
	}{r.id, answer.State})
	return caisson.Result{Text: fmt.Sprintf("Request %s is %s; its answer is there again.", r.id, answer.State), Summary: string(answer.State), Data: data}, err
}
