package caisson

import "slices"

// The states of everything that has states. Each is a closed table: a move that
// is not in it is refused with CodeStateInvalid. docs/states.md is drawn from
// these tables.
type (
	// TurnState is the state of one model answer.
	TurnState string
	// CallState is the state of one call; its terminal states are outcomes.
	CallState string
	// Outcome is how a call ended.
	Outcome string
	// RunState is the state of a run.
	RunState string
	// ReviewState is the state of a review.
	ReviewState string
	// SandboxState is the state of a sandbox.
	SandboxState string
	// BrokerState is the state of the host side of a control channel.
	BrokerState string
	// TaskState is the state of a task.
	TaskState string
)

// States of a turn.
const (
	TurnAsked     TurnState = "asked"
	TurnAnswered  TurnState = "answered"
	TurnAbandoned TurnState = "abandoned"
)

// States of a call before its outcome.
const (
	CallPrepared CallState = "prepared"
	CallJudged   CallState = "judged"
	CallAsked    CallState = "asked"
	CallDecided  CallState = "decided"
	CallStarted  CallState = "started"
)

// Outcomes of a call.
const (
	OutcomeDone       Outcome = "done"        // it happened as asked
	OutcomeFailed     Outcome = "failed"      // it happened, and says that it did not succeed
	OutcomeRefused    Outcome = "refused"     // policy or a person said no; nothing happened
	OutcomeCancelled  Outcome = "cancelled"   // stopped; what it did before is in its result
	OutcomeNotStarted Outcome = "not-started" // it never began and never will
	OutcomeUnknown    Outcome = "unknown"     // it began and nobody saw its end
)

// States of a run.
const (
	RunPending    RunState = "pending"
	RunRunning    RunState = "running"
	RunWaiting    RunState = "waiting" // parked or live, only reviews are left
	RunPaused     RunState = "paused"  // stopped by a person or a fault, to be resumed
	RunCancelling RunState = "cancelling"
	RunSucceeded  RunState = "succeeded"
	RunStopped    RunState = "stopped" // ended by a bound: budget, turns, deadline, stuck
	RunFailed     RunState = "failed"
	RunCancelled  RunState = "cancelled"
)

// States of a review.
const (
	ReviewOpen      ReviewState = "open"
	ReviewDecided   ReviewState = "decided"
	ReviewExpired   ReviewState = "expired"
	ReviewWithdrawn ReviewState = "withdrawn"
)

// States of a sandbox.
const (
	SandboxCreating SandboxState = "creating"
	SandboxRunning  SandboxState = "running"
	SandboxStopped  SandboxState = "stopped"
	SandboxRemoved  SandboxState = "removed"
	SandboxLost     SandboxState = "lost"
)

// States of a broker.
const (
	BrokerStarting BrokerState = "starting"
	BrokerHealthy  BrokerState = "healthy"
	BrokerParked   BrokerState = "parked" // with a reason; answers at once that it does nothing
	BrokerEnded    BrokerState = "ended"
)

// States of a task.
const (
	TaskActive    TaskState = "active"
	TaskBlocked   TaskState = "blocked"
	TaskCompleted TaskState = "completed"
	TaskCancelled TaskState = "cancelled"
	TaskArchived  TaskState = "archived"
)

// Edge is an allowed move.
type Edge struct{ From, To, Why string }

// StateTable is the closed table of one kind of state.
type StateTable struct {
	Name    string
	Initial string
	Edges   []Edge
}

// Can tells whether the move is in the table. Staying is no move.
func (t StateTable) Can(from, to string) bool {
	return slices.ContainsFunc(t.Edges, func(e Edge) bool { return e.From == from && e.To == to })
}

// Terminal tells whether nothing leads out of state.
func (t StateTable) Terminal(state string) bool {
	return !slices.ContainsFunc(t.Edges, func(e Edge) bool { return e.From == state })
}

// States returns all states in the order in which the table names them.
func (t StateTable) States() []string {
	states := []string{t.Initial}
	for _, e := range t.Edges {
		for _, s := range []string{e.From, e.To} {
			if !slices.Contains(states, s) {
				states = append(states, s)
			}
		}
	}
	return states
}

// Move returns an error with CodeStateInvalid if the move is not in the table.
func (t StateTable) Move(from, to string) error {
	if t.Can(from, to) {
		return nil
	}
	return Errorf(CodeStateInvalid, "a %s cannot go from %s to %s", t.Name, from, to)
}

// StateTables returns all tables, in reading order.
func StateTables() []StateTable {
	return []StateTable{TurnStates(), CallStates(), RunStates(), ReviewStates(), SandboxStates(), BrokerStates(), TaskStates()}
}

// TurnStates is the table of turns.
func TurnStates() StateTable {
	return StateTable{"turn", "asked", []Edge{
		{"asked", "answered", "the whole answer is recorded"},
		{"asked", "abandoned", "the answer was cut; charged, asked again as another turn attempt"},
	}}
}

// CallStates is the table of calls.
func CallStates() StateTable {
	edges := []Edge{
		{"prepared", "judged", "the gate has spoken"},
		{"prepared", "refused", "its input is not valid, or policy says no"},
		{"prepared", "cancelled", "stopped before it began"},
		{"prepared", "not-started", "it can never begin"},
		{"judged", "asked", "review: the question is recorded"},
		{"judged", "started", "allow: recorded before it happens"},
		{"judged", "refused", "deny"},
		{"judged", "cancelled", "stopped before it began"},
		{"judged", "not-started", "it can never begin"},
		{"asked", "decided", "a person has answered"},
		{"asked", "judged", "the review ended without a decision, or today's verdict differs: judged again"},
		{"asked", "refused", "policy says no today"},
		{"asked", "cancelled", "the review was withdrawn"},
		{"asked", "not-started", "its parent is gone"},
		{"decided", "started", "approved, and still allowed"},
		{"decided", "asked", "the approval does not stand: asked anew"},
		{"decided", "judged", "modified, or today's verdict differs: judged again"},
		{"decided", "refused", "rejected, or policy says no today"},
		{"decided", "done", "an answer to a question is the whole effect"},
		{"decided", "cancelled", "stopped before it began"},
		{"decided", "not-started", "it can never begin"},
		{"started", "done", "it happened as asked"},
		{"started", "failed", "it happened and did not succeed"},
		{"started", "cancelled", "its process tree was ended"},
		{"started", "unknown", "nobody saw its end"},
		{"started", "started", "a call that may be repeated begins again with the same effect id"},
	}
	return StateTable{"call", "prepared", edges}
}

// RunStates is the table of runs.
func RunStates() StateTable {
	edges := []Edge{
		{"pending", "running", "a process took the lease"},
		{"pending", "cancelled", "cancelled before it began"},
		{"running", "waiting", "only reviews are left"},
		{"waiting", "running", "a review was decided"},
		{"running", "paused", "stopped by a person, or a fault that a person can mend"},
		{"waiting", "paused", "stopped by a person"},
		{"paused", "running", "resumed"},
		{"running", "cancelling", "cancel was asked"},
		{"waiting", "cancelling", "cancel was asked"},
		{"paused", "cancelling", "cancel was asked"},
		{"cancelling", "cancelled", "the tree of work has ended"},
		{"running", "succeeded", "end-turn"},
		{"running", "stopped", "a bound was reached"},
		{"running", "failed", "model-error or internal-error"},
	}
	return StateTable{"run", "pending", edges}
}

// ReviewStates is the table of reviews.
func ReviewStates() StateTable {
	return StateTable{"review", "open", []Edge{
		{"open", "decided", "a person decided in time"},
		{"open", "expired", "nobody did"},
		{"open", "withdrawn", "the call no longer wants an answer"},
	}}
}

// SandboxStates is the table of sandboxes.
func SandboxStates() StateTable {
	return StateTable{"sandbox", "creating", []Edge{
		{"creating", "running", "the guest is proved and its self-tests passed"},
		{"creating", "removed", "it could not be made"},
		{"running", "stopped", "all its processes have ended"},
		{"running", "lost", "the engine says so"},
		{"stopped", "running", "started again"},
		{"stopped", "removed", "nothing of it is left"},
		{"lost", "removed", "nothing of it is left"},
		{"lost", "stopped", "it is kept open: all its processes have ended, and it can be started again"},
	}}
}

// BrokerStates is the table of brokers.
func BrokerStates() StateTable {
	return StateTable{"broker", "starting", []Edge{
		{"starting", "healthy", "what an earlier one left is answered, and the channel is open"},
		{"starting", "parked", "the same, and there is a reason not to take requests"},
		{"starting", "ended", "it could not be opened"},
		{"healthy", "parked", "a reason has come"},
		{"parked", "healthy", "no reason is left"},
		{"healthy", "ended", "the sandbox has ended, or another process has it"},
		{"parked", "ended", "the sandbox has ended, or another process has it"},
	}}
}

// TaskStates is the table of tasks.
func TaskStates() StateTable {
	return StateTable{"task", "active", []Edge{
		{"active", "blocked", "something is in the way"},
		{"blocked", "active", "nothing is in the way any more"},
		{"active", "completed", "no open finding of weight, its criteria are met, its work is merged or waived"},
		{"active", "cancelled", "it is no longer wanted"},
		{"blocked", "cancelled", "it is no longer wanted"},
		{"completed", "active", "restored"},
		{"cancelled", "active", "restored"},
		{"completed", "archived", "put away for good"},
		{"cancelled", "archived", "put away for good"},
	}}
}

// Terminal tells whether the run has ended for good.
func (s RunState) Terminal() bool { return RunStates().Terminal(string(s)) }

// Terminal tells whether the call has its outcome.
func (s CallState) Terminal() bool { return CallStates().Terminal(string(s)) }

// Outcome returns the outcome of a call that has one, else "".
func (s CallState) Outcome() Outcome {
	if s.Terminal() {
		return Outcome(s)
	}
	return ""
}

// StopReason is why a run is where it is.
type StopReason string

// Stop reasons of a run. Only StopEndTurn is success.
const (
	StopEndTurn          StopReason = "end-turn"
	StopTokenBudget      StopReason = "token-budget"
	StopCostBudget       StopReason = "cost-budget"
	StopCostUnmeasurable StopReason = "cost-unmeasurable"
	StopDeadline         StopReason = "deadline"
	StopMaxTurns         StopReason = "max-turns"
	StopMaxCalls         StopReason = "max-calls"
	StopOutputBudget     StopReason = "output-budget"
	StopCancelled        StopReason = "cancelled"
	StopRejected         StopReason = "rejected" // a person aborted
	StopWaiting          StopReason = "waiting"
	StopPaused           StopReason = "paused"
	StopStuck            StopReason = "stuck" // the same call repeated
	StopModelError       StopReason = "model-error"
	StopAgentFailed      StopReason = "agent-failed" // a foreign agent ended with a status other than 0
	StopInternalError    StopReason = "internal-error"
)

// Cause is why something was stopped. The first cause wins; a cause is never guessed.
type Cause string

// Causes.
const (
	CauseUser      Cause = "user"
	CauseParent    Cause = "parent"
	CauseDeadline  Cause = "deadline"
	CauseBudget    Cause = "budget"
	CausePolicy    Cause = "policy"
	CauseHook      Cause = "hook"
	CauseLeaseLost Cause = "lost-lease"
	CauseShutdown  Cause = "shutdown"
	CauseUnknown   Cause = "unknown"
)

// CauseError carries a cause through context.Cause.
type CauseError struct {
	Cause Cause
	Text  string
}

// Error implements error.
func (e *CauseError) Error() string {
	if e.Text != "" {
		return string(e.Cause) + ": " + e.Text
	}
	return string(e.Cause)
}
