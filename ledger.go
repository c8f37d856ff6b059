package caisson

import (
	"context"
	"time"
)

// Ledger is the durable record.
//
// Every write is one transaction and is durable (fsync) when its method
// returns nil; a method that returns an error has changed nothing, except that
// a deadline found to be over is recorded (reviews). Each write appends its
// events to the run's chain in the same transaction, so the record and the
// state cannot disagree. Any number of processes may use one ledger at once.
//
// Driver writes take a [Drive] and are refused with CodeLeaseLost when its
// fence is not the lease's. Inbox writes come from anyone and are
// compare-and-set.
//
// All methods are safe for concurrent use. Errors: CodeLedgerBusy,
// CodeLedgerDamaged, CodeDiskFull and CodeWriteFailed can come from every write.
type Ledger interface {
	LedgerRuns
	LedgerTurns
	LedgerCalls
	LedgerReviews
	LedgerPlaces
	LedgerControl
	LedgerTasks

	// Append adds an event of a kind that no other method writes. body is
	// marshalled and made canonical.
	Append(ctx context.Context, drive Drive, kind EventKind, body any) error
	// Note adds an EventNote to the chain of a run, or of the empty run where it is
	// not on record: what was done to what belongs to it while nobody drove it, or
	// beside its driver. Inbox.
	Note(ctx context.Context, run RunID, body any) error
	// Events returns at most limit events of a run after seq, in order (limit 0: all).
	Events(ctx context.Context, run RunID, after int64, limit int) ([]Event, error)
	// Wait returns the number of events of a run as soon as it is over after.
	// Commits of other processes are seen within 1 s, decisions, cancels and
	// messages within about 10 ms. An empty run waits for any of any run, and
	// counts all.
	Wait(ctx context.Context, run RunID, after int64) (int64, error)
	// Blob returns content that an event, call or review refers to by digest.
	Blob(ctx context.Context, digest Digest) ([]byte, error)
	// Now is the ledger's clock: the wall clock, but never before the last event.
	Now() time.Time
	// Check verifies everything: the store's own integrity, every chain, that
	// states agree with events, that terminal runs have no open calls or
	// reviews, that budgets add up, that every blob has its digest.
	Check(ctx context.Context) error
	// Close releases the ledger. It works when contexts are dead, and twice.
	Close() error
}

// Drive is the right under which a driver writes.
type Drive struct {
	Run   RunID
	Fence Fence
}

// RunFilter chooses runs. Newest first.
type RunFilter struct {
	IDs    []RunID
	Prefix string
	States []RunState
	Parent RunID
	Limit  int // 0: all
}

// RunMove is a change of a run's state.
type RunMove struct {
	To    RunState
	Stop  StopReason
	Cause Cause
	Text  string
	Exit  int
}

// LedgerRuns are runs, leases and instances.
type LedgerRuns interface {
	// CreateRun writes a run in state pending. CodeAlreadyExists where the id is in use.
	CreateRun(ctx context.Context, id RunID, spec RunSpec) (Run, error)
	Run(ctx context.Context, id RunID) (Run, error)
	Runs(ctx context.Context, filter RunFilter) ([]Run, error)
	// MoveRun moves a run along its table. It keeps Active: the clock runs
	// while the state is running. Moving to a terminal state is refused with
	// CodeStateInvalid while a call or review of the run is open, and gives
	// back what is reserved. Requests that were taken and never became a call
	// are rejected by it with CodeNotExecuted, in the same transaction.
	MoveRun(ctx context.Context, drive Drive, move RunMove) (Run, error)
	// AskCancel records that a run shall be cancelled; the first cause wins.
	// Inbox. A pending run, and no other, is cancelled by it at once.
	AskCancel(ctx context.Context, id RunID, cause Cause, by string) (Run, error)

	PutInstance(ctx context.Context, inst Instance) error
	Instance(ctx context.Context, id InstanceID) (Instance, error)
	// TakeLease gives the lease to an instance, fence + 1, if the fence is
	// still prev (0 for a run never driven); else CodeLeaseHeld. Whether the
	// old holder may be displaced is for the caller to know. If the run was in
	// state running, its clock is stopped at its last event and started anew.
	TakeLease(ctx context.Context, run RunID, inst InstanceID, prev Fence) (Lease, error)
	ReleaseLease(ctx context.Context, drive Drive) error
	// Lease returns the lease of a run, which costs less than the run. Its
	// Instance is empty where nobody holds it; Taken is not told.
	Lease(ctx context.Context, run RunID) (Lease, error)
	// Pool returns the budget of the tree that a run belongs to.
	Pool(ctx context.Context, run RunID) (Pool, error)
}

// LedgerTurns are model answers.
type LedgerTurns interface {
	// AskTurn records that an answer is asked for and reserves its bound. N is
	// the next turn, or the present one after it was abandoned (Attempt + 1).
	// CodeBudgetExceeded, with the stop reason in detail "stop", where the
	// pool does not allow the reserve.
	AskTurn(ctx context.Context, drive Drive, turn Turn) (Turn, error)
	// AnswerTurn records the whole answer, and settles the reserve.
	AnswerTurn(ctx context.Context, drive Drive, n int, answer ModelAnswer, used Amount) (Turn, error)
	// AbandonTurn records that the answer was cut. text is what had come.
	AbandonTurn(ctx context.Context, drive Drive, n int, why, text string, used Amount) (Turn, error)
	// Turns returns the last attempt of every turn of a run, in order.
	Turns(ctx context.Context, run RunID) ([]Turn, error)
}

// CallStart is what StartCall writes.
type CallStart struct {
	Call     Call
	Verdict  Verdict  // today's
	Review   ReviewID // whose approval is used; "" where the verdict is allow
	Executor *ProcessIdentity
	Sandbox  SandboxID
	Reserve  Amount
	Of       CallID
}

// CallSettle is what SettleCall writes.
type CallSettle struct {
	Call    Call
	Verdict *Verdict // where the call has no row yet, or is refused today
	Outcome Outcome
	Result  Result
	Used    Amount
	Of      CallID
	// Review, with a decision of kind answer, is consumed by this settle.
	Review ReviewID
	// Edit is the effect of a call of [ReachLedger], done in this transaction;
	// then Result is what it returns, where it returns one. Its error is that of
	// the settle, which has changed nothing then. Only with OutcomeDone.
	Edit *LedgerEdit
}

// LedgerCalls are calls. A call with the id of a request comes on record only
// when that request was taken and not rejected: CodeStateInvalid else.
type LedgerCalls interface {
	// JudgeCall records a prepared call and its verdict: state judged. The row
	// is made if there is none; a row in judged, asked or decided goes (back)
	// to judged. A row of another digest with that id is replaced only when it
	// was modified by a person (the review's decision says so), else CodeCallUnknown.
	JudgeCall(ctx context.Context, drive Drive, call Call, verdict Verdict) (CallRecord, error)
	// StartCall is taken only when the executor is held at its gate. In one
	// transaction it checks: fence; run running and no cancel asked
	// (CodeCancelled); the review, if named, decided with approve or modify, of
	// exactly this digest (for modify: the call's new value is recorded), not
	// consumed, not over its UseBy (CodeReviewExpired); the pool
	// (CodeBudgetExceeded). It writes: the row (also where there was none), the
	// review consumed, the reserve, the effect id, the executor, started. A
	// row already started may start again only if its effect is read or
	// idempotent, or if its reach is the ledger: then it had no effect.
	StartCall(ctx context.Context, drive Drive, start CallStart) (CallRecord, error)
	// SettleCall writes the outcome, once: CodeStateInvalid where there is one.
	// It makes the row where there is none (refused, not-started). The request
	// whose call it is is closed by it.
	SettleCall(ctx context.Context, drive Drive, settle CallSettle) (CallRecord, error)
	Call(ctx context.Context, id CallID) (CallRecord, error)
	// Calls returns the calls of a run's turns, and those that they made, in the
	// order of turn and number. Calls of requests are not among them and cost
	// nothing here: see Requests and OpenCalls.
	Calls(ctx context.Context, run RunID) ([]CallRecord, error)
	// OpenCalls returns the calls of a run that have no outcome, whoever asked
	// for them, in the order in which they came on record.
	OpenCalls(ctx context.Context, run RunID) ([]CallRecord, error)
}

// ReviewFilter chooses reviews. Oldest first.
type ReviewFilter struct {
	Run    RunID
	Call   CallID // costs nothing for those of other calls
	States []ReviewState
	Limit  int
}

// LedgerReviews are questions to people.
type LedgerReviews interface {
	// AskReview records the call with its verdict, and the review, in one
	// transaction; the call is asked. The ledger gives the id and Created, and
	// sets State. An earlier open review of the call is withdrawn.
	AskReview(ctx context.Context, drive Drive, review Review, expire time.Duration) (Review, error)
	Review(ctx context.Context, id ReviewID) (Review, error)
	Reviews(ctx context.Context, filter ReviewFilter) ([]Review, error)
	// Decide is an inbox write, compare-and-set on (id, open, digest):
	// CodeReviewAlreadyDecided, CodeReviewDigestMismatch,
	// CodeDecisionKindMismatch, CodeReviewExpired, CodeReviewWithdrawn. The
	// call is decided in the same transaction; useFor bounds an approval; a
	// grant that comes with it becomes a row.
	Decide(ctx context.Context, id ReviewID, digest Digest, decision Decision, useFor time.Duration) (Review, error)
	// EndReview ends an open review as expired (only when it is) or withdrawn.
	EndReview(ctx context.Context, drive Drive, id ReviewID, state ReviewState, reason string) (Review, error)
	// Grants returns the grants of a run that are not revoked.
	Grants(ctx context.Context, run RunID) ([]Grant, error)
	RevokeGrant(ctx context.Context, run RunID, id string, by string) error
}

// WorkspaceFilter chooses workspaces. Newest first.
type WorkspaceFilter struct {
	IDs       []WorkspaceID
	CommonDir string
	Removed   bool // also those
}

// SandboxFilter chooses sandboxes.
type SandboxFilter struct {
	Run      RunID
	Instance InstanceID
	States   []SandboxState
}

// LedgerPlaces are workspaces and sandboxes.
type LedgerPlaces interface {
	// PutWorkspace writes or replaces a workspace; its name is unique among
	// those of its repository that are not removed (CodeAlreadyExists).
	PutWorkspace(ctx context.Context, w Workspace) error
	Workspace(ctx context.Context, id WorkspaceID) (Workspace, error)
	Workspaces(ctx context.Context, filter WorkspaceFilter) ([]Workspace, error)
	// PutSandbox writes a new sandbox (creating) or moves one along its table.
	PutSandbox(ctx context.Context, record SandboxRecord) error
	Sandboxes(ctx context.Context, filter SandboxFilter) ([]SandboxRecord, error)
}

// LedgerEdit is the whole effect of a call whose reach is the ledger.
type LedgerEdit struct {
	Task *TaskEdit
	// Result tells what it did, given the task as it then is. Pure and quick;
	// nil: the Result of the settle stands.
	Result func(Task) Result
}

// RequestFilter chooses requests of a run. Newest first.
type RequestFilter struct {
	Generation int64 // 0: all
	IDs        []RequestID
	Open       bool // only those that have neither a rejection nor a call with an outcome
	// Names: of the records only Run, Generation, ID and Call are wanted, which
	// costs much less.
	Names bool
	Limit int // 0: all
}

// LedgerControl is the record of control channels. All writes are a driver's.
type LedgerControl interface {
	// OpenChannel returns the channel with its epoch raised by one; it makes it
	// in generation 1. A generation that is one higher begins anew, with no id
	// used up; CodeStateInvalid for any other, and 0 is the present one.
	// Requests of older generations stay as they are.
	OpenChannel(ctx context.Context, drive Drive, generation int64) (Channel, error)
	// Channel returns CodeNotFound for a run that has none.
	Channel(ctx context.Context, run RunID) (Channel, error)
	// TakeRequest uses up the id in the present generation, with the rejection
	// where there is one; the ledger gives At and Call. CodeRequestReplayed where
	// it was used before, in whatever state, and CodeChannelFull when
	// ControlConsumed places are taken; both change nothing. Of a request with a
	// rejection the input is not kept. CodeGenerationStale for
	// another generation than the present. CodeRequestInvalid for an id without
	// the form of one, and for what cannot be kept: an input that has no
	// canonical form, or more than ControlBody of it and the verb.
	TakeRequest(ctx context.Context, drive Drive, request RequestRecord) error
	// RejectRequest writes the rejection of a request that was taken, has none
	// and has no call; else CodeStateInvalid. Nothing of its input is kept.
	RejectRequest(ctx context.Context, drive Drive, generation int64, id RequestID, why *Error) error
	Requests(ctx context.Context, run RunID, filter RequestFilter) ([]RequestRecord, error)
}

// LedgerTasks are tasks.
type LedgerTasks interface {
	// EditTask is an inbox write. The ledger gives ID, Key, Created, Updated and
	// Version; the state of a new task is active, and that of any other moves
	// along its table (CodeStateInvalid). CodeNotFound where there is no task of
	// the id; CodeTaskConflict where the branch is that of another task of the
	// repository that is active or blocked; CodeLimitInvalid where Content is
	// longer than TaskArtifact, CodeUsage where it is no text.
	EditTask(ctx context.Context, edit TaskEdit) (Task, error)
	// Task returns CodeNotFound where there is none.
	Task(ctx context.Context, id TaskID) (Task, error)
	Tasks(ctx context.Context, filter TaskFilter) ([]Task, error)
	// TaskActivity returns at most limit entries of a history after n, in order
	// (limit 0: all).
	TaskActivity(ctx context.Context, id TaskID, after int64, limit int) ([]TaskActivity, error)
}
