package ledger

import (
	"encoding/json"
	"time"

	"github.com/caisson-run/caisson"
)

// InlineMax is the largest content, in bytes, that stands in an event or row
// itself. More is kept once, by digest.
const InlineMax = 256

// Content is a value inside an event's body: itself where it is small, else the
// digest by which [caisson.Ledger.Blob] returns its JSON. The chain covers it
// either way.
type Content struct {
	Value  json.RawMessage `json:"value,omitempty"`
	Digest caisson.Digest  `json:"sha256,omitempty"`
	Bytes  int64           `json:"bytes,omitempty"`
}

// IsZero tells whether there is none.
func (c Content) IsZero() bool { return len(c.Value) == 0 && c.Digest == "" }

// Bodies of events, by kind. Fields may be added; none changes its meaning.
type (
	// RunCreated is the body of EventRunCreated. Spec is a RunSpec.
	RunCreated struct {
		Spec   Content       `json:"spec"`
		Parent caisson.RunID `json:"parent,omitempty"`
		Root   caisson.RunID `json:"root"`
		By     string        `json:"by,omitempty"`
	}
	// RunMoved is the body of EventRunMoved. Text is a string.
	RunMoved struct {
		From   caisson.RunState   `json:"from"`
		To     caisson.RunState   `json:"to"`
		Stop   caisson.StopReason `json:"stop,omitempty"`
		Cause  caisson.Cause      `json:"cause,omitempty"`
		Text   Content            `json:"text,omitzero"`
		Exit   int                `json:"exit,omitempty"`
		Active time.Duration      `json:"active"`
	}
	// CancelAsked is the body of EventCancelAsked.
	CancelAsked struct {
		Cause caisson.Cause `json:"cause"`
		By    string        `json:"by,omitempty"`
	}
	// Leased is the body of EventLeaseTaken and EventLeaseReleased.
	Leased struct {
		Instance caisson.InstanceID `json:"instance"`
		Fence    caisson.Fence      `json:"fence"`
	}
	// TurnAsked is the body of EventTurnAsked. Input is a []Message.
	TurnAsked struct {
		N       int            `json:"n"`
		Attempt int            `json:"attempt"`
		Input   Content        `json:"input,omitzero"`
		Reserve caisson.Amount `json:"reserve,omitzero"`
	}
	// TurnEnded is the body of EventTurnAnswered, where Answer is a
	// ModelAnswer, and of EventTurnAbandoned, where Text is a string.
	TurnEnded struct {
		N       int            `json:"n"`
		Attempt int            `json:"attempt"`
		Answer  Content        `json:"answer,omitzero"`
		Why     string         `json:"why,omitempty"`
		Text    Content        `json:"text,omitzero"`
		Used    caisson.Amount `json:"used,omitzero"`
	}
	// CallEvent is the body of EventCallJudged, EventCallStarted and
	// EventCallSettled. Value is a Call, Judged a Verdict, Executor a
	// ProcessIdentity, Result a Result. Charged is what an earlier start, whose
	// end nobody saw, had reserved.
	CallEvent struct {
		Call     caisson.CallID    `json:"call"`
		Tool     caisson.ToolRef   `json:"tool"`
		Digest   caisson.Digest    `json:"digest"`
		Value    Content           `json:"value"`
		Ruling   caisson.Ruling    `json:"ruling,omitempty"`
		Rule     string            `json:"rule,omitempty"`
		Judged   Content           `json:"judged,omitzero"`
		Review   caisson.ReviewID  `json:"review,omitempty"`
		Effect   caisson.EffectID  `json:"effect_id,omitempty"`
		Attempt  int               `json:"attempt,omitempty"`
		Executor Content           `json:"executor,omitzero"`
		Sandbox  caisson.SandboxID `json:"sandbox,omitempty"`
		Reserve  caisson.Amount    `json:"reserve,omitzero"`
		Charged  caisson.Amount    `json:"charged,omitzero"`
		Outcome  caisson.Outcome   `json:"outcome,omitempty"`
		Result   Content           `json:"result,omitzero"`
		Used     caisson.Amount    `json:"used,omitzero"`
		Of       caisson.CallID    `json:"of,omitempty"`
	}
	// ReviewOpened is the body of EventReviewOpened. Value is a Call, Judged a
	// Verdict, Question a Question, Preview a string.
	ReviewOpened struct {
		Review   caisson.ReviewID   `json:"review"`
		Call     caisson.CallID     `json:"call"`
		Tool     caisson.ToolRef    `json:"tool"`
		Kind     caisson.ReviewKind `json:"kind"`
		Digest   caisson.Digest     `json:"digest"`
		Value    Content            `json:"value"`
		Ruling   caisson.Ruling     `json:"ruling,omitempty"`
		Rule     string             `json:"rule,omitempty"`
		Judged   Content            `json:"judged,omitzero"`
		Schema   Content            `json:"schema,omitzero"`
		Question Content            `json:"question,omitzero"`
		Preview  Content            `json:"preview,omitzero"`
		Expires  time.Time          `json:"expires"`
	}
	// ReviewDecided is the body of EventReviewDecided. Decision is a Decision.
	ReviewDecided struct {
		Review   caisson.ReviewID     `json:"review"`
		Call     caisson.CallID       `json:"call"`
		Digest   caisson.Digest       `json:"digest"`
		Kind     caisson.DecisionKind `json:"kind"`
		By       string               `json:"by"`
		Decision Content              `json:"decision"`
		UseBy    time.Time            `json:"use_by,omitzero"`
		Grant    string               `json:"grant,omitempty"`
	}
	// ReviewEnded is the body of EventReviewExpired and EventReviewWithdrawn.
	ReviewEnded struct {
		Review caisson.ReviewID `json:"review"`
		Call   caisson.CallID   `json:"call"`
		Reason string           `json:"reason,omitempty"`
	}
	// GrantRevoked is the body of EventGrantRevoked.
	GrantRevoked struct {
		Grant string `json:"grant"`
		By    string `json:"by"`
	}
	// SandboxMoved is the body of EventSandboxMoved. Record is a SandboxRecord.
	// From is empty for a new one, and equal to To where only the record changed.
	SandboxMoved struct {
		Sandbox caisson.SandboxID    `json:"sandbox"`
		From    caisson.SandboxState `json:"from,omitempty"`
		To      caisson.SandboxState `json:"to"`
		Record  Content              `json:"record"`
	}
	// WorkspaceRecorded is the body of EventWorkspace. Record is a Workspace.
	WorkspaceRecorded struct {
		Workspace caisson.WorkspaceID `json:"workspace"`
		Name      string              `json:"name"`
		Branch    string              `json:"branch"`
		Removed   bool                `json:"removed,omitempty"`
		Record    Content             `json:"record"`
	}
	// ChannelOpened is the body of EventChannelOpened.
	ChannelOpened struct {
		Generation int64 `json:"generation"`
		Epoch      int64 `json:"epoch"`
	}
	// RequestEvent is the body of EventRequestTaken and of EventRequestRejected,
	// where Rejected is an Error. InputDigest and InputBytes are of what the client
	// sent: its call has it, and of what never becomes a call nobody keeps it.
	// Places are those that it takes, where they are more than one. Input, what
	// the client sent, is in ledgers of schema version 2 that were written by
	// programs which kept it.
	RequestEvent struct {
		Generation  int64             `json:"generation"`
		Request     caisson.RequestID `json:"request"`
		Verb        string            `json:"verb"`
		InputDigest caisson.Digest    `json:"input_sha256,omitempty"`
		InputBytes  int64             `json:"input_bytes,omitempty"`
		Input       Content           `json:"input,omitzero"`
		Rejected    Content           `json:"rejected,omitzero"`
		Places      int64             `json:"places,omitempty"`
	}
	// TaskEdited is the body of EventTaskEdited, which stands in the chain of
	// the run whose call it was, or in that of no run. Record is the Task,
	// Activity a TaskActivity, Content a text that the edit brought along, by
	// its own digest. Kept is what the pools of the run were charged for it.
	TaskEdited struct {
		Task     caisson.TaskID    `json:"task"`
		Version  int64             `json:"version"`
		State    caisson.TaskState `json:"state"`
		Record   Content           `json:"record"`
		Activity Content           `json:"activity"`
		Content  Content           `json:"content,omitzero"`
		Kept     int64             `json:"kept,omitempty"`
	}
)
