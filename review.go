package caisson

import (
	"encoding/json"
	"time"
)

// ReviewKind says what answers a review takes.
type ReviewKind string

// Kinds of review.
const (
	// ReviewCall asks whether a call may happen: approve, reject, modify, abort.
	ReviewCall ReviewKind = "call"
	// ReviewQuestion is a free question of the agent: answer, reject, abort.
	ReviewQuestion ReviewKind = "question"
	// ReviewUnknown asks what to do about a call whose end nobody saw: answer
	// with "done", "retry" or "stop", or abort.
	ReviewUnknown ReviewKind = "unknown"
)

// Question is a free question.
type Question struct {
	Text    string   `json:"text"`
	Options []string `json:"options,omitempty"`
	Multi   bool     `json:"multi,omitempty"` // more than one option may be chosen
}

// Review is a durable question to a person about one call. It is written
// before anyone is shown it.
type Review struct {
	ID       ReviewID        `json:"id"`
	Run      RunID           `json:"run"`
	Call     Call            `json:"call"` // the prepared value, its digest included
	Kind     ReviewKind      `json:"kind"`
	Schema   json.RawMessage `json:"schema,omitempty"` // validating schema of the tool, for modify
	Verdict  Verdict         `json:"verdict"`
	Question *Question       `json:"question,omitempty"`
	Preview  string          `json:"preview,omitempty"` // diff or text for people, bounded
	State    ReviewState     `json:"state"`
	Reason   string          `json:"reason,omitempty"` // of an end without decision
	Created  time.Time       `json:"created"`
	Expires  time.Time       `json:"expires"` // the last moment to decide
	Decision *Decision       `json:"decision,omitempty"`
	// UseBy is the last moment at which an approval can be used.
	UseBy    time.Time `json:"use_by,omitzero"`
	Consumed bool      `json:"consumed,omitempty"` // used by a start, once
}

// DecisionKind is what a person answers.
type DecisionKind string

// Kinds of decision.
const (
	Approve DecisionKind = "approve"
	Reject  DecisionKind = "reject"
	Modify  DecisionKind = "modify"
	Answer  DecisionKind = "answer"
	Abort   DecisionKind = "abort" // reject, and end the run
)

// Fits tells whether a decision of kind d answers a review of kind k.
func (d DecisionKind) Fits(k ReviewKind) bool {
	switch d {
	case Approve, Modify:
		return k == ReviewCall
	case Reject:
		return k != ReviewUnknown
	case Answer:
		return k != ReviewCall
	case Abort:
		return true
	default:
		return false
	}
}

// Decision is the answer to a review.
type Decision struct {
	Kind     DecisionKind    `json:"kind"`
	Feedback string          `json:"feedback,omitempty"` // told to the model
	Input    json.RawMessage `json:"input,omitempty"`    // of modify
	Options  []string        `json:"options,omitempty"`  // of answer
	Text     string          `json:"text,omitempty"`     // of answer
	// ApproveModified approves the modified call even where policy says
	// review, if its Digest is exactly this one.
	ApproveModified Digest    `json:"approve_modified,omitempty"`
	Grant           *Grant    `json:"grant,omitempty"` // with approve
	By              string    `json:"by"`
	At              time.Time `json:"at"`
}

// Grant lets like calls of the same run pass without asking again.
type Grant struct {
	ID   string  `json:"id"`
	Run  RunID   `json:"run"`
	Tool ToolRef `json:"tool"`
	// InputDigest grants exactly this input; Command grants command lines
	// that match this allow pattern. Exactly one is set.
	InputDigest  Digest    `json:"input_digest,omitempty"`
	Command      string    `json:"command,omitempty"`
	PolicyDigest Digest    `json:"policy_digest"` // void under another policy
	Review       ReviewID  `json:"review"`
	At           time.Time `json:"at"`
	Revoked      bool      `json:"revoked,omitempty"`
}
