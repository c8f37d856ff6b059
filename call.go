package caisson

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Effect is the class of a call: what may be done when nobody saw its end.
type Effect string

// Effect classes. EffectUnsafe is the default and always that of a tool that calls tools.
const (
	EffectRead         Effect = "read"
	EffectIdempotent   Effect = "idempotent"
	EffectReconcilable Effect = "reconcilable"
	EffectUnsafe       Effect = "unsafe"
)

// Reach is how far the effect of a tool goes.
type Reach string

// Reaches.
const (
	ReachInside  Reach = "inside"  // never leaves the sandbox
	ReachOutside Reach = "outside" // leaves it
	ReachLedger  Reach = "ledger"  // its whole effect is a row in the ledger
)

// ToolRef identifies a tool: two servers may each have a tool of one name.
type ToolRef struct {
	Server string `json:"server,omitempty"` // MCP server; empty for built-in tools and verbs
	Name   string `json:"name"`
}

// String returns "server/name" or "name".
func (r ToolRef) String() string {
	if r.Server == "" {
		return r.Name
	}
	return r.Server + "/" + r.Name
}

// ownFamilies are the first words of names that Caisson's own tools have. No tool
// that somebody else declares is called so.
var ownFamilies = [...]string{"ask", "git", "net", "run", "task", "workspace", "network", "agent"}

// Declared tells whether the name is one that only a verb of the user's config
// can have: words with points between them that do not begin as Caisson's own.
func (r ToolRef) Declared() bool {
	first, _, words := strings.Cut(r.Name, ".")
	return r.Server == "" && words && !slices.Contains(ownFamilies[:], first)
}

// ToolSpec says what a tool is.
type ToolSpec struct {
	Ref         ToolRef
	Description string          // for the model
	Schema      json.RawMessage // JSON Schema (2020-12) of its input, an object; strict
	Effect      Effect          // "" means EffectUnsafe
	Reach       Reach           // "" means ReachOutside
	Parallel    bool            // safe beside its like
	CallsTools  bool            // makes nested calls; forces EffectUnsafe
	Timeout     time.Duration   // longest it may take; 0: the run's remaining time alone bounds it
}

// Facets are what policy may look at in an input beside the input itself. The
// tool computes them from the prepared input; they are never taken from a model.
type Facets struct {
	Lines []string   `json:"lines,omitempty"` // shell command lines that the call would run
	Argv  [][]string `json:"argv,omitempty"`  // programs that the call would run without a shell
	Paths []PathUse  `json:"paths,omitempty"` // files it names, as the input says, cleaned against the workspace
	Dir   string     `json:"dir,omitempty"`   // absolute directory that Lines and Argv start in; empty: the workspace
}

// PathUse is a path that a call would use.
type PathUse struct {
	Path  string `json:"path"` // absolute, cleaned; links are not resolved
	Write bool   `json:"write"`
}

// Call is one wanted effect, prepared into an exact value. Judge, person and
// doer all see this same value. Only the airlock makes one.
type Call struct {
	ID           CallID          `json:"id"`
	Run          RunID           `json:"run"`
	Turn         int             `json:"turn"`
	Parent       CallID          `json:"parent,omitempty"`
	Tool         ToolRef         `json:"tool"`
	Effect       Effect          `json:"effect"`
	Reach        Reach           `json:"reach"`
	SchemaDigest Digest          `json:"schema_digest"` // of the validating part of the tool's schema
	Binding      Digest          `json:"binding"`       // of the workspace binding; empty without workspace
	Input        json.RawMessage `json:"input"`         // canonical
	// InputDigest is SHA-256 over the canonical JSON of tool, schema digest,
	// input and binding. Grants and the stuck check use it.
	InputDigest Digest `json:"input_digest"`
	// Digest is the same with the call id. Approvals are bound to it.
	Digest Digest `json:"digest"`
	// ProviderID is what the model's provider called it. May repeat or be empty.
	ProviderID string `json:"provider_id,omitempty"`
	// Facets are the tool's, of this input.
	Facets Facets `json:"facets"`
}

// SumInput returns the InputDigest of c's present value.
func (c Call) SumInput() (Digest, error) { return c.sum("") }

// Sum returns the Digest of c's present value.
func (c Call) Sum() (Digest, error) { return c.sum(c.ID) }

func (c Call) sum(id CallID) (Digest, error) {
	raw, err := CanonicalOf(struct {
		Tool    ToolRef         `json:"tool"`
		Schema  Digest          `json:"schema"`
		Input   json.RawMessage `json:"input"`
		Binding Digest          `json:"binding"`
		ID      CallID          `json:"id,omitempty"`
	}{c.Tool, c.SchemaDigest, c.Input, c.Binding, id})
	if err != nil {
		return "", err
	}
	return DigestOf(raw), nil
}

// Ruling is what a verdict says.
type Ruling string

// Rulings, in rising strictness.
const (
	Allow    Ruling = "allow"
	ReviewIt Ruling = "review"
	Deny     Ruling = "deny"
)

// Stricter tells whether r is stricter than s.
func (r Ruling) Stricter(s Ruling) bool { return r.rank() > s.rank() }

func (r Ruling) rank() int {
	switch r {
	case Deny:
		return 3
	case ReviewIt:
		return 2
	case Allow:
		return 1
	default:
		return 0
	}
}

// Verdict is what the gate says of a call.
type Verdict struct {
	Ruling       Ruling `json:"ruling"`
	Layer        string `json:"layer"` // floor, repository, parent, user, read-only, grant, preset
	Rule         string `json:"rule"`  // name of the rule, or "default"
	RuleDigest   Digest `json:"rule_digest,omitempty"`
	Reason       string `json:"reason"` // for people and for the model
	Again        bool   `json:"again,omitempty"`
	PolicyDigest Digest `json:"policy_digest"`
}

// Subject is what a call is judged in: the run, and the boundary it has.
type Subject struct {
	Run       RunID
	Workspace string // absolute path of the workspace inside and outside; "" without one
	Isolation Isolation
	Grants    []Grant
}

// Judge judges calls. It does no I/O and is safe for concurrent use.
type Judge interface {
	Judge(Call, Subject) Verdict
	PolicyDigest() Digest
}

// Tool is something a call can ask for.
//
// Spec and Facets are pure. A tool holds no state that outlives a call except
// through its sandbox. Tools may also implement [Previewer], [Questioner],
// [Reconciler].
type Tool interface {
	Spec() ToolSpec
	// Facets computes what policy looks at. An error refuses the call with CodeCallInvalid.
	Facets(input json.RawMessage) (Facets, error)
	// Hold makes everything ready so that Open can begin at once, and begins
	// nothing: no effect, nothing that a person or another program could notice.
	Hold(ctx context.Context, call Call, effect EffectID) (Executor, error)
}

// Executor is one call about to happen.
type Executor interface {
	// Identity is what a later process needs to end what this one leaves
	// behind; nil where the effect cannot outlive this process.
	Identity() *ProcessIdentity
	// Open does the effect and returns when it, and every process it
	// started, has ended. Called at most once. When ctx ends, the effect is
	// stopped with context.Cause(ctx); what was produced is returned.
	//
	// A Result with OutcomeFailed is an effect that says it did not succeed. An
	// error means the same, with the error as its result. An error of
	// CodeOutcomeUnknown (say, the sandbox was lost meanwhile) is OutcomeUnknown.
	Open(ctx context.Context) (Result, error)
	// Drop gives back what Hold took, when Open was not called.
	Drop()
}

// Result is what a call produced.
type Result struct {
	Outcome Outcome `json:"outcome,omitempty"` // done, failed, cancelled; empty means done
	// Text is for the model: bounded, valid UTF-8.
	Text string `json:"text"`
	// Summary is one line for people: "exit 1 in 2.1 s", "+14 −2".
	Summary string `json:"summary,omitempty"`
	// Data is for programs: exit status, digests, sizes. Never for the model.
	Data json.RawMessage `json:"data,omitempty"`
	// DataLeftOut are the bytes of Data where it was too large to be kept: there is
	// none of it then.
	DataLeftOut int64 `json:"data_left_out,omitempty"`
	// Spill names the file with the whole output, where Text does not hold it.
	Spill *Spill `json:"spill,omitempty"`
	// Cause says why it was stopped, with OutcomeCancelled or a deadline.
	Cause Cause `json:"cause,omitempty"`
	// Error is the failure's wire form, with OutcomeFailed or OutcomeRefused.
	Error *Error `json:"error,omitempty"`
	// Bytes is how much output there was before it was bounded.
	Bytes int64 `json:"bytes,omitempty"`
	// Edit is the effect of a call of ReachLedger, to be done in the transaction
	// that settles it. An error of it is the call's, and it has failed.
	Edit *LedgerEdit `json:"-"`
}

// Spill is a file outside the sandbox that holds an output.
type Spill struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"` // kept
	Total   int64  `json:"total"` // produced
	SHA256  Digest `json:"sha256"`
	Invalid bool   `json:"invalid_utf8,omitempty"`
}

// Previewer is a tool that can show a person what a call would do.
type Previewer interface {
	// Preview returns a unified diff or another plain text. It changes nothing.
	Preview(ctx context.Context, call Call) (string, error)
}

// Questioner is a tool whose whole effect is a question to a person.
type Questioner interface {
	Question(input json.RawMessage) (Question, error)
	// Answer makes the result from a decision of kind answer.
	Answer(input json.RawMessage, decision Decision) Result
}

// Reconciler is a tool of EffectReconcilable: it can find out what became of a
// call that started and whose end nobody saw.
type Reconciler interface {
	// Reconcile returns known=false where it cannot tell.
	Reconcile(ctx context.Context, call Call, effect EffectID) (result Result, known bool, err error)
}
