package caisson

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// ControlProtocol is the version of the control channel's files that this
// program speaks.
const ControlProtocol = 1

// The control channel, as its client finds it inside. The directory is named by
// ControlEnv and is ControlDir where that is not set; the paths are below it.
const (
	ControlEnv       = "CAISSON_CONTROL"
	ControlPollEnv   = "CAISSON_CONTROL_POLL"
	ControlDir       = "/run/caisson"
	ControlRequests  = "channel/requests"     // the only place the sandbox can write
	ControlPublic    = "public"               // read-only inside
	ControlIdentity  = "public/identity.json" // a [ControlIdentityFile]
	ControlStatus    = "public/status.json"   // a [ControlStatusFile]
	ControlResponses = "public/responses"     // <id>.accepted.json, <id>.json, <id>.payload
	ControlTasks     = "public/tasks"         // the mirror of the tasks
	ControlGuide     = "public/CAISSON.md"    // what an agent should know, in words
	ControlPrivate   = "private"              // never inside: claimed requests
)

// ProgramsDir is where programs of ours are inside, the channel's client for one.
const ProgramsDir = ControlDir + "/bin"

// Bounds of the control channel.
const (
	ControlBody      = 64 << 10         // bytes of a request
	ControlWait      = 10 * time.Second // the longest a request may stay unaccepted
	ControlConsumed  = 1_000_000        // places of one generation
	ControlPlace     = 1 << 10          // bytes of a request in each place that it takes
	ControlPayload   = 4 << 20          // bytes of an output that a client is given as a file
	ControlResult    = 64 << 10         // bytes of an answer's result
	ControlRunning   = 4                // requests that run at once
	ControlQueued    = 64               // that wait for that, in order
	ControlReviews   = 16               // open reviews of requests
	ControlKept      = 1_000            // newest answers kept as files
	ControlKeptFor   = 7 * 24 * time.Hour
	ControlKeptBytes = 64 << 20
)

// RequestID names one request of one generation of a channel: 16 to 64
// characters of 0-9, a-f and "-". The client draws it.
type RequestID string

// Valid tells whether id has the form of one.
func (id RequestID) Valid() bool {
	return len(id) >= 16 && len(id) <= 64 && strings.Trim(string(id), "0123456789abcdef-") == ""
}

// ControlRequest is what a client writes as requests/<id>.json. No other key is
// allowed in it.
type ControlRequest struct {
	Version    int             `json:"version"` // ControlProtocol
	ID         RequestID       `json:"id"`      // as the file's name
	Generation int64           `json:"generation"`
	Epoch      int64           `json:"epoch"` // as last seen in the status
	Wait       int64           `json:"wait"`  // milliseconds that it may stay unaccepted, from the broker's first sight
	Verb       string          `json:"verb"`
	Input      json.RawMessage `json:"input"` // an object
}

// AnswerState is how far a request has come.
type AnswerState string

// States of an answer.
const (
	AnswerAccepted  AnswerState = "accepted"  // recorded; its effect begins now
	AnswerWaiting   AnswerState = "waiting"   // recorded; a person is asked
	AnswerCompleted AnswerState = "completed" // it has ended; see Exit
	AnswerRejected  AnswerState = "rejected"  // see Error
)

// ControlAnswer is what the broker publishes: as <id>.accepted.json once, in
// state accepted or waiting, and as <id>.json once, in state completed or
// rejected. A request that is rejected may have no first one.
type ControlAnswer struct {
	Version    int         `json:"version"`
	ID         RequestID   `json:"id"`
	Generation int64       `json:"generation"`
	State      AnswerState `json:"state"`
	Call       CallID      `json:"call,omitempty"`
	Review     ReviewID    `json:"review,omitempty"` // with waiting
	At         time.Time   `json:"at"`
	// Exit is 0 where the effect succeeded; that of the verb's program where it
	// has one.
	Exit int `json:"exit"`
	// Output is text for people and models, bounded. Where it is not whole, or
	// is not UTF-8, the file <id>.payload has its bytes from the first on: at most
	// ControlPayload, and none where the host could not keep them.
	Output  string `json:"output,omitempty"`
	Payload int64  `json:"payload,omitempty"` // bytes of <id>.payload; 0: there is none
	// Produced is how many bytes the output has in all, where Output does not show
	// all and <id>.payload does not have them either.
	Produced int64           `json:"produced,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"` // for programs
	// ResultLeftOut are the bytes of a result that is larger than ControlResult:
	// there is none of it then.
	ResultLeftOut int64  `json:"result_left_out,omitempty"`
	Error         *Error `json:"error,omitempty"` // with rejected, and where what completed did not succeed
}

// ControlVerb tells a client of one verb.
type ControlVerb struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the input
	Effect      Effect          `json:"effect"`
}

// ControlIdentityFile tells a client what it talks to.
type ControlIdentityFile struct {
	Versions   []int         `json:"versions"` // of the protocol
	Run        RunID         `json:"run"`
	Sandbox    SandboxID     `json:"sandbox"`
	Generation int64         `json:"generation"`
	Workspace  string        `json:"workspace,omitempty"` // path
	Branch     string        `json:"branch,omitempty"`
	Verbs      []ControlVerb `json:"verbs"`
	Limits     ControlLimits `json:"limits"`
}

// ControlLimits are the bounds that a client can run into.
type ControlLimits struct {
	Body    int   `json:"body"`
	Wait    int64 `json:"wait"` // milliseconds
	Running int   `json:"running"`
	Queued  int   `json:"queued"`
	Reviews int   `json:"reviews"`
}

// ControlStatusFile is replaced whenever one of its values changes.
type ControlStatusFile struct {
	State      BrokerState `json:"state"`
	Reason     Code        `json:"reason,omitempty"` // with parked
	Text       string      `json:"text,omitempty"`
	Since      time.Time   `json:"since"` // of state and reason
	Generation int64       `json:"generation"`
	Epoch      int64       `json:"epoch"`
	Running    int         `json:"running"`
	Queued     int         `json:"queued"`
	Waiting    []RequestID `json:"waiting"` // for a person
}

// ParkReasons are the reasons for which a broker is parked, the one that is
// told first where there are several.
func ParkReasons() []Code {
	return []Code{CodeHandoffActive, CodeEngineUnknown, CodeEngineAbsentGCFailed, CodeWorkspaceBindingLost, CodeChannelFull}
}

// Channel is what the ledger keeps of a run's control channel.
type Channel struct {
	Run RunID `json:"run"`
	// Generation is one life of the channel, from 1. It rises when the sandbox
	// is replaced; requests of an older one are refused.
	Generation int64 `json:"generation"`
	// Epoch rises each time the channel is opened, and whenever its broker finds
	// that it did not run for a while.
	Epoch int64 `json:"epoch"`
	// Taken are the places taken in this generation, which bounds its ids and its
	// bytes: each request takes one for its id, and more if it is longer than
	// ControlPlace.
	Taken int64 `json:"taken"`
}

// Places are how many of ControlConsumed a request takes. One that is rejected
// as it is taken leaves no input behind, and takes one.
func (r RequestRecord) Places() int64 {
	if r.Rejected != nil {
		return 1
	}
	return max(1, int64(len(r.Verb)+len(r.Input)+ControlPlace-1)/ControlPlace)
}

// RequestRecord is a request in the ledger: its id is used up. What became of
// it is told by its call, or by Rejected where it never became one.
type RequestRecord struct {
	Run        RunID     `json:"run"`
	Generation int64     `json:"generation"`
	ID         RequestID `json:"id"`
	Verb       string    `json:"verb"`
	// Input is what the client sent; it is kept until the request is rejected or
	// its call has an outcome, and not at all where it was rejected as it was taken.
	Input    json.RawMessage `json:"input,omitempty"`
	Call     CallID          `json:"call"` // derived from the id: see NewRequestCallID
	Rejected *Error          `json:"rejected,omitempty"`
	At       time.Time       `json:"at"`
}

// NewRequestCallID returns the id of the call of a request.
func NewRequestCallID(run RunID, generation int64, id RequestID) CallID {
	return CallID(string(run) + ".c" + strconv.FormatInt(generation, 10) + "." + string(id))
}

// Request is the reverse of [NewRequestCallID]; ok is false for any other call,
// also for one that the call of a request made.
func (id CallID) Request() (generation int64, request RequestID, ok bool) {
	run, rest, _ := strings.Cut(string(id), ".c")
	number, name, _ := strings.Cut(rest, ".")
	generation, err := strconv.ParseInt(number, 10, 64)
	request = RequestID(name)
	if err != nil || generation < 1 || !request.Valid() || strings.Contains(run, ".") || NewRequestCallID(RunID(run), generation, request) != id {
		return 0, "", false
	}
	return generation, request, true
}
