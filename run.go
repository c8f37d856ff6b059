package caisson

import "time"

// RunSpec says what a run is to do. It is written once.
type RunSpec struct {
	Prompt    string      `json:"prompt,omitempty"`
	Argv      []Bytes     `json:"argv,omitempty"` // of a foreign agent; then no model
	Model     string      `json:"model,omitempty"`
	Workspace WorkspaceID `json:"workspace,omitempty"`
	Engine    string      `json:"engine"`
	Require   []Control   `json:"require,omitempty"`
	Limits    Limits      `json:"limits"`
	Env       []string    `json:"env,omitempty"` // names only; values are never recorded
	// Hide are patterns of files that are masked for as long as the run is.
	Hide []string `json:"hide,omitempty"`
	// Network are hosts that may be reached beside those of the config, as it
	// writes them; "none" alone closes those too.
	Network   []string `json:"network,omitempty"`
	Budget    Budget   `json:"budget"`
	Preset    string   `json:"preset"`
	OnUnknown string   `json:"on_unknown"` // ask or tell
	Parent    RunID    `json:"parent,omitempty"`
	Root      RunID    `json:"root"` // whose pool it draws from; its own id at the top
	// RepoPolicy is the digest of the repository's policy at the base commit.
	RepoPolicy Digest `json:"repo_policy,omitempty"`
	// Session says that it is a person's own command in a sandbox, and no agent.
	Session Session `json:"session,omitempty"`
	// ReadOnly: what runs cannot change the workspace.
	ReadOnly bool `json:"read_only,omitempty"`
	// Dir is where the person stood, for listings.
	Dir string `json:"dir"`
	By  string `json:"by"`
}

// Session is how a person's own command in a sandbox meets the person. Empty is
// a run of an agent.
type Session string

// Sessions.
const (
	SessionStreams  Session = "streams"  // its streams are those of the process that drives it
	SessionTerminal Session = "terminal" // it has a terminal that people attach to and leave
	// SessionServed is a sandbox that is kept open, with no program of its own:
	// its calls are the requests that come from inside.
	SessionServed Session = "served"
)

// Run is one execution of one agent.
type Run struct {
	ID      RunID      `json:"id"`
	Spec    RunSpec    `json:"spec"`
	State   RunState   `json:"state"`
	Stop    StopReason `json:"stop,omitempty"`
	Cause   Cause      `json:"cause,omitempty"`
	Text    string     `json:"text,omitempty"` // why, for people; or the agent's last words
	Exit    int        `json:"exit"`           // of a foreign agent
	Created time.Time  `json:"created"`
	Updated time.Time  `json:"updated"`
	// Active is the time spent running, over all lives; waiting for a person
	// does not count. ActiveSince is when the present life began to run.
	Active      time.Duration `json:"active"`
	ActiveSince time.Time     `json:"active_since,omitzero"`
	CancelAsked Cause         `json:"cancel_asked,omitempty"`
	CancelBy    string        `json:"cancel_by,omitempty"`
	Turns       int           `json:"turns"`
	Head        Digest        `json:"head"` // hash of its last event
	Events      int64         `json:"events"`
	Lease       Lease         `json:"lease"`
}

// Amount is what a run may use, or has used. 0 in a budget is no bound.
type Amount struct {
	Tokens int64         `json:"tokens,omitempty"`
	Cost   int64         `json:"cost,omitempty"` // micro US dollars
	Wall   time.Duration `json:"wall,omitempty"` // running time, over all lives
	Turns  int64         `json:"turns,omitempty"`
	Calls  int64         `json:"calls,omitempty"`
	Output int64         `json:"output,omitempty"` // bytes of call output
}

// Budget bounds a run tree.
type Budget = Amount

// Plus returns the sum.
func (a Amount) Plus(b Amount) Amount {
	return Amount{a.Tokens + b.Tokens, a.Cost + b.Cost, a.Wall + b.Wall, a.Turns + b.Turns, a.Calls + b.Calls, a.Output + b.Output}
}

// Minus returns the difference.
func (a Amount) Minus(b Amount) Amount {
	return Amount{a.Tokens - b.Tokens, a.Cost - b.Cost, a.Wall - b.Wall, a.Turns - b.Turns, a.Calls - b.Calls, a.Output - b.Output}
}

// Over returns the first bound of a budget that a goes over, and "" if none.
func (a Amount) Over(budget Budget) StopReason {
	switch {
	case budget.Tokens > 0 && a.Tokens > budget.Tokens:
		return StopTokenBudget
	case budget.Cost > 0 && a.Cost > budget.Cost:
		return StopCostBudget
	case budget.Wall > 0 && a.Wall > budget.Wall:
		return StopDeadline
	case budget.Turns > 0 && a.Turns > budget.Turns:
		return StopMaxTurns
	case budget.Calls > 0 && a.Calls > budget.Calls:
		return StopMaxCalls
	case budget.Output > 0 && a.Output > budget.Output:
		return StopOutputBudget
	default:
		return ""
	}
}

// Pool is the budget of a run tree and what was done with it.
type Pool struct {
	Limit    Budget `json:"limit"`
	Reserved Amount `json:"reserved"`
	Used     Amount `json:"used"`
	// Kept is what edits of tasks, by calls of the tree, have had the record keep,
	// in bytes: each version of a task and of its artifacts as a whole, also where
	// what is equal is stored once.
	Kept int64 `json:"kept,omitempty"`
}

// Turn is one model answer and all the calls it asked for.
type Turn struct {
	Run     RunID        `json:"run"`
	N       int          `json:"n"`       // from 1
	Attempt int          `json:"attempt"` // from 1; rises when an answer was cut
	State   TurnState    `json:"state"`
	Answer  *ModelAnswer `json:"answer,omitempty"`
	Input   []Message    `json:"input,omitempty"` // user messages that begin this turn
	Reserve Amount       `json:"reserve"`
	Used    Amount       `json:"used"`
	Asked   time.Time    `json:"asked"`
	Ended   time.Time    `json:"ended,omitzero"`
}

// CallRecord is a call in the ledger.
type CallRecord struct {
	Call     Call             `json:"call"`
	State    CallState        `json:"state"`
	Verdict  *Verdict         `json:"verdict,omitempty"`
	Review   ReviewID         `json:"review,omitempty"` // the latest
	Effect   EffectID         `json:"effect_id,omitempty"`
	Attempts int              `json:"attempts,omitempty"` // starts
	Executor *ProcessIdentity `json:"executor,omitempty"`
	Sandbox  SandboxID        `json:"sandbox,omitempty"`
	Reserve  Amount           `json:"reserve,omitzero"`
	Used     Amount           `json:"used,omitzero"`
	Result   *Result          `json:"result,omitempty"`
	Of       CallID           `json:"of,omitempty"` // the unknown call that it retries
	Created  time.Time        `json:"created"`
	Started  time.Time        `json:"started,omitzero"`
	Ended    time.Time        `json:"ended,omitzero"`
}
