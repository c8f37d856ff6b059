package control

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
)

// move is a change of the broker's state, as it stands in the record.
type move struct {
	From   caisson.BrokerState `json:"from"`
	To     caisson.BrokerState `json:"to"`
	Reason caisson.Code        `json:"reason,omitempty"`
	Text   string              `json:"text,omitempty"`
	Detail string              `json:"detail,omitempty"` // never told inside
	Epoch  int64               `json:"epoch"`
}

// Park gives a reason not to take requests: from now on each is answered with
// it. What runs goes on. A second reason is told when the first, by the rank in
// [caisson.ParkReasons], is gone. The text may name nothing that the sandbox
// must not know.
func (b *Broker) Park(reason caisson.Code, text string) {
	b.park(reason, parked{text: text})
}

// parked is why the broker is, in words: for inside, and for the record alone.
type parked struct{ text, detail string }

// parkFor parks for something that went wrong outside, whose text may name what
// is no business of the sandbox.
func (b *Broker) parkFor(reason caisson.Code, err error) {
	b.park(reason, parked{reason.Info().Meaning, err.Error()})
}

func (b *Broker) park(reason caisson.Code, why parked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, is := b.reasons[reason]; is && old.text == why.text {
		return
	}
	b.reasons[reason] = why
	b.settleStateLocked()
}

// Unpark takes a reason back.
func (b *Broker) Unpark(reason caisson.Code) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == caisson.BrokerHealthy {
		return // it has none
	}
	if _, is := b.reasons[reason]; !is {
		return
	}
	delete(b.reasons, reason)
	b.settleStateLocked()
}

// reasonLocked is the reason that is told, if there is one.
func (b *Broker) reasonLocked() (caisson.Code, parked) {
	for _, code := range caisson.ParkReasons() {
		if why, is := b.reasons[code]; is {
			return code, why
		}
	}
	for _, code := range slices.Sorted(maps.Keys(b.reasons)) { // without a rank
		return code, b.reasons[code]
	}
	return "", parked{}
}

// settleStateLocked makes the state fit the reasons.
func (b *Broker) settleStateLocked() {
	if b.state == caisson.BrokerStarting || b.state == caisson.BrokerEnded {
		return
	}
	to := caisson.BrokerHealthy
	if len(b.reasons) > 0 {
		to = caisson.BrokerParked
	}
	b.moveLocked(to)
	b.startLocked()
}

// moveLocked notes a change of state or reason, to be recorded and told.
func (b *Broker) moveLocked(to caisson.BrokerState) {
	m := move{From: b.state, To: to, Epoch: b.channel.Epoch}
	if to == caisson.BrokerParked {
		reason, why := b.reasonLocked()
		m.Reason, m.Text, m.Detail = reason, why.text, why.detail
	}
	if m.From == to && m.Reason == b.told {
		signal(b.urgent)
		return
	}
	b.told = m.Reason
	b.state, b.since = to, b.s.o.Ledger.Now()
	if m.From != caisson.BrokerStarting || to != caisson.BrokerHealthy { // that one is told by the opening
		b.moves = append(b.moves, m)
	}
	signal(b.urgent)
	signal(b.wake) // what was not taken while it was parked
}

// recordMoves writes the changes of state into the record. While the ledger
// takes no writes they are kept, and tried again with the next tick.
func (b *Broker) recordMoves() {
	for {
		b.mu.Lock()
		if len(b.moves) == 0 {
			b.mu.Unlock()
			return
		}
		m := b.moves[0]
		b.mu.Unlock()
		ctx, done := b.writing()
		err := b.s.o.Ledger.Append(ctx, b.o.Drive, caisson.EventBrokerMoved, m)
		done()
		if err != nil {
			b.lost(err)
			return
		}
		b.mu.Lock()
		b.moves = b.moves[1:]
		b.mu.Unlock()
	}
}

// writing is the context of what must not be torn when the broker ends.
func (b *Broker) writing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(b.ctx), writeFor)
}

// writeFor bounds one write: a ledger that several processes share answers
// within milliseconds, a disk in trouble within seconds.
const writeFor = 30 * time.Second

// Status is what the sandbox is told of its broker.
func (b *Broker) Status() caisson.ControlStatusFile {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := caisson.ControlStatusFile{
		State: b.state, Since: b.since, Generation: b.channel.Generation, Epoch: b.channel.Epoch,
		Running: len(b.running), Queued: len(b.queue), Waiting: []caisson.RequestID{},
	}
	if b.state == caisson.BrokerParked {
		reason, why := b.reasonLocked()
		s.Reason, s.Text = reason, why.text
	}
	for id := range b.waiting {
		s.Waiting = append(s.Waiting, id)
	}
	slices.Sort(s.Waiting)
	return s
}

// Unmovable is how many requests could not be taken, as their files cannot be moved:
// nobody is answered for them.
func (b *Broker) Unmovable() int { return b.files().Unmovable() }

// tell publishes the status where it is not what was published last: most counts
// have settled by then. One that cannot be written is tried again with the next
// tick.
func (b *Broker) tell() {
	now := b.Status()
	b.mu.Lock()
	told := !b.untold && sameStatus(b.shown, now)
	b.mu.Unlock()
	if told {
		return
	}
	ctx, done := b.writing()
	defer done()
	err := b.owned(ctx)
	if err == nil {
		err = b.files().Status(now)
	}
	b.mu.Lock()
	b.untold, b.shown = err != nil, now
	b.mu.Unlock()
}

func sameStatus(a, b caisson.ControlStatusFile) bool {
	if !slices.Equal(a.Waiting, b.Waiting) {
		return false
	}
	a.Waiting, b.Waiting = nil, nil
	return reflect.DeepEqual(a, b)
}

// doubtStatus has the status told again though nothing has changed: a client has
// read one that is not ours.
func (b *Broker) doubtStatus() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.untold = true
	signal(b.counts)
}

// identity is what the sandbox is told of the channel.
func (b *Broker) identity() caisson.ControlIdentityFile {
	id := caisson.ControlIdentityFile{
		Versions: []int{caisson.ControlProtocol}, Run: b.o.Drive.Run, Sandbox: b.o.Record.ID, Generation: b.Status().Generation,
		Workspace: b.o.Workspace, Branch: b.o.Branch, Verbs: []caisson.ControlVerb{},
		Limits: caisson.ControlLimits{
			Body: caisson.ControlBody, Wait: caisson.ControlWait.Milliseconds(),
			Running: caisson.ControlRunning, Queued: caisson.ControlQueued, Reviews: caisson.ControlReviews,
		},
	}
	for _, tool := range b.verbs() {
		spec := tool.Spec()
		effect := spec.Effect
		if effect == "" || spec.CallsTools {
			effect = caisson.EffectUnsafe
		}
		id.Verbs = append(id.Verbs, caisson.ControlVerb{Name: VerbOf(tool), Description: spec.Description, Schema: spec.Schema, Effect: effect})
	}
	return id
}
