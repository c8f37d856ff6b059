package caisson

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

// Identifiers are types, never bare strings, so that the compiler keeps a run
// from being looked up as a review.
type (
	// RunID names one run: "r" and lower-case base32 characters.
	RunID string
	// CallID names one call: "run.turn.n", that of a request from inside
	// "run.c<generation>.<request>", nested calls "parent.n". It is ours; an
	// identifier that a model provider gave is only data.
	CallID string
	// ReviewID names one review: "q" and a number that rises in the ledger.
	ReviewID string
	// EffectID is derived from a call id and given to its doer as the
	// idempotency key.
	EffectID string
	// WorkspaceID names one workspace: "w" and lower-case base32 characters.
	WorkspaceID string
	// SandboxID names one sandbox: "s" and lower-case base32 characters.
	SandboxID string
	// TaskID names one task: "T" and base32 characters.
	TaskID string
	// InstanceID names one running caisson process.
	InstanceID string
)

// Fence rises by one each time a lease is taken. A write with a smaller fence
// than the ledger's is refused.
type Fence int64

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID returns prefix and n random characters of Crockford's base32 alphabet
// in lower case (five bits each).
func newID(prefix string, n int) string {
	raw := make([]byte, (n*5+7)/8)
	_, _ = rand.Read(raw) // never fails since Go 1.24: it crashes the program instead
	return prefix + idEncoding.EncodeToString(raw)[:n]
}

// NewRunID returns a random run id of 30 bits. The ledger refuses one that is
// in use; the caller draws another.
func NewRunID() RunID { return RunID(newID("r", 6)) }

// NewWorkspaceID returns a random workspace id.
func NewWorkspaceID() WorkspaceID { return WorkspaceID(newID("w", 8)) }

// NewSandboxID returns a random sandbox id.
func NewSandboxID() SandboxID { return SandboxID(newID("s", 10)) }

// NewTaskID returns a random task id of 30 bits.
func NewTaskID() TaskID { return TaskID(newID("T", 6)) }

// NewInstanceID returns a random instance id of 80 bits.
func NewInstanceID() InstanceID { return InstanceID(newID("i", 16)) }

// NewCallID returns the id of the nth (from 1) call of a turn (from 1) of a run.
func NewCallID(run RunID, turn, n int) CallID {
	return CallID(fmt.Sprintf("%s.%d.%d", run, turn, n))
}

// Nested returns the id of the nth (from 1) call that the call id made.
func (id CallID) Nested(n int) CallID { return CallID(string(id) + "." + strconv.Itoa(n)) }

// Run returns the run that the call belongs to.
func (id CallID) Run() RunID {
	run, _, _ := strings.Cut(string(id), ".")
	return RunID(run)
}

// EffectIDOf derives the effect id of a call. The same call always has the same
// effect id, also when it is done again after a crash.
func EffectIDOf(id CallID) EffectID {
	return EffectID("e-" + string(DigestOf([]byte("caisson.effect\x00"+string(id))).Short(24)))
}
