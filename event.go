package caisson

import (
	"encoding/json"
	"time"
)

// EventKind names an event: "noun.participle".
type EventKind string

// Kinds of event. Append only; readers must skip kinds they do not know.
const (
	EventRunCreated      EventKind = "run.created"
	EventRunMoved        EventKind = "run.moved"
	EventCancelAsked     EventKind = "cancel.asked"
	EventLeaseTaken      EventKind = "lease.taken"
	EventLeaseReleased   EventKind = "lease.released"
	EventTurnAsked       EventKind = "turn.asked"
	EventTurnAnswered    EventKind = "turn.answered"
	EventTurnAbandoned   EventKind = "turn.abandoned"
	EventCallJudged      EventKind = "call.judged"
	EventCallStarted     EventKind = "call.started"
	EventCallSettled     EventKind = "call.settled"
	EventReviewOpened    EventKind = "review.opened"
	EventReviewDecided   EventKind = "review.decided"
	EventReviewExpired   EventKind = "review.expired"
	EventReviewWithdrawn EventKind = "review.withdrawn"
	EventReviewStale     EventKind = "review.stale" // an approval that does not stand today
	EventGrantRevoked    EventKind = "grant.revoked"
	EventPolicyLoaded    EventKind = "policy.loaded"
	EventIsolation       EventKind = "isolation.reported"
	EventSandboxMoved    EventKind = "sandbox.moved"
	EventWorkspace       EventKind = "workspace.recorded"
	EventImported        EventKind = "workspace.imported"
	EventSnapshot        EventKind = "workspace.snapshot"
	EventNote            EventKind = "note"
	EventViewerAttached  EventKind = "viewer.attached" // to the terminal of a session
	EventViewerDetached  EventKind = "viewer.detached"
	EventRecorded        EventKind = "session.recorded" // what its terminal showed
	EventNetworkOpened   EventKind = "network.opened"   // the hosts that may be reached, from now on
	EventNetworkRefused  EventKind = "network.refused"  // the first refusal of a kind to a target
	EventChannelOpened   EventKind = "channel.opened"   // a control channel, of a generation and an epoch
	EventRequestTaken    EventKind = "request.taken"    // from inside, its id used up
	EventRequestRejected EventKind = "request.rejected" // before it became a call
	EventRequestReplayed EventKind = "request.replayed" // its id was taken before; nothing was changed
	EventBrokerMoved     EventKind = "broker.moved"
	EventTaskEdited      EventKind = "task.edited"
	EventNetworkUsed     EventKind = "network.used" // by target, since the one before
)

// Event is one entry of a run's hash chain. Entries that belong to no run (a
// workspace made by hand) are in the chain of the empty run id.
type Event struct {
	Run  RunID           `json:"run"`
	Seq  int64           `json:"seq"` // from 1, without gaps
	At   time.Time       `json:"at"`  // UTC, microseconds; never before the one before
	Kind EventKind       `json:"kind"`
	Body json.RawMessage `json:"body"` // canonical
	Prev Digest          `json:"prev"` // hash of the one before; empty for the first
	Hash Digest          `json:"hash"`
}

// Sum returns what e's hash must be: SHA-256 over the bytes of Prev followed by
// the canonical JSON of run, seq, at, kind and body.
func (e Event) Sum() (Digest, error) {
	raw, err := CanonicalOf(struct {
		Run  RunID           `json:"run"`
		Seq  int64           `json:"seq"`
		At   time.Time       `json:"at"`
		Kind EventKind       `json:"kind"`
		Body json.RawMessage `json:"body"`
	}{e.Run, e.Seq, e.At.UTC(), e.Kind, e.Body})
	if err != nil {
		return "", err
	}
	return DigestOf(append([]byte(e.Prev), raw...)), nil
}

// Chain verifies events of one run as they are added in order.
type Chain struct {
	Last Event
	Any  bool
}

// Add verifies that e follows the chain; CodeChainBroken names the first that
// does not.
func (c *Chain) Add(e Event) error {
	broken := func(what string) error {
		return Errorf(CodeChainBroken, "event %d of run %q: %s", e.Seq, e.Run, what).With("run", e.Run).With("seq", e.Seq)
	}
	wantSeq, wantPrev := int64(1), Digest("")
	if c.Any {
		wantSeq, wantPrev = c.Last.Seq+1, c.Last.Hash
	}
	switch {
	case e.Seq != wantSeq:
		return broken("an event before it is missing or it stands twice")
	case c.Any && e.Run != c.Last.Run:
		return broken("belongs to another run")
	case e.Prev != wantPrev:
		return broken("does not follow the one before")
	case c.Any && e.At.Before(c.Last.At):
		return broken("is older than the one before")
	}
	sum, err := e.Sum()
	if err != nil {
		return broken(err.Error())
	}
	if sum != e.Hash {
		return broken("its content was changed")
	}
	c.Last, c.Any = e, true
	return nil
}
