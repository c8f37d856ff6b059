// Package caisson is the vocabulary of Caisson: identifiers, states, errors and
// the contracts between its parts. It does no I/O and depends on nothing but the
// standard library.
//
// Everything an agent wants to do is a [Call]. A call is prepared into one exact
// value with a [Digest], judged by policy ([Verdict]), asked of a person where
// policy says so ([Review], [Decision]), recorded before it happens, done inside
// a [Sandbox], and its [Outcome] recorded in the [Ledger].
//
// What this package does not promise: that a value which satisfies a contract's
// Go types satisfies its comments. Each contract has a conformance suite
// (ledger/ledgertest, sandbox/sandboxtest) which an implementation must pass.
package caisson

// Version is the release this source belongs to. Set by the linker in releases.
var Version = "0.1.0-dev"
