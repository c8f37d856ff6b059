// Package airlock is the one door to every effect: prepare, judge, ask, start,
// do, settle, and the recovery of calls found after a crash.
//
// It knows neither models nor files nor sandboxes. What it does not promise:
// that an effect whose end nobody saw did or did not happen; such a call is
// unknown, and says so.
package airlock

import "github.com/caisson-run/caisson"

// Request is one wanted effect, as its caller found it: a tool call of a model,
// a verb asked for from inside, a permission that a foreign agent asks.
type Request struct {
	ID         caisson.CallID
	Turn       int
	Parent     caisson.CallID
	ProviderID string       // what the caller's protocol calls it; data only
	Name       string       // as asked for
	Tool       caisson.Tool // nil: there is no such tool; the call is refused with CodeToolUnknown
	Input      string       // as written, not yet parsed
	// Strict: an input that is not JSON is refused and not mended. For who writes
	// it himself, as a program does; a model is cut off in the middle of it.
	Strict bool
	// New: the ledger has no row of it, as its id was made just now.
	New bool
	// Ask, where set, is called before a person is asked about it: with an error
	// nobody is, and the call ends as not started, with that error.
	Ask func() error
	// Begin, where set, is called before its doer is made ready, which may have
	// effects of its own: with an error it is not, the call stays as it is, and
	// Settle returns that error.
	Begin func() error
}

// Settled is what became of a batch of requests.
type Settled struct {
	// Records are in the order of the requests. Those that are still asked or
	// decided belong to open reviews.
	Records []caisson.CallRecord
	// Waiting are the reviews without which nothing more can be done. Empty:
	// every record has its outcome. One whose time for deciding is over is
	// among them too; the next Settle asks anew.
	Waiting []caisson.ReviewID
	// Abort says that a person aborted; every record has its outcome.
	Abort bool
}
