// Package gate is policy: it reads rules once, strictly, and then judges calls.
//
// A call is judged in four layers, each for itself: the floor (catastrophic
// commands, which no setting opens), the repository's rules, the boundary that a
// parent set, and the user's rules with the read-only allowance and the preset
// behind them. Inside a layer the first rule that matches speaks; of the layers
// the strictest verdict wins. A grant turns only a review into allow.
//
// What is promised: the same policy, call and subject give the same verdict, and
// policies of one digest give the same verdicts. Judging does no I/O, takes
// bounded time and is safe for concurrent use. What is not: that a command line
// does only what it was read as. The boundary confines; the gate says what a
// person wants asked or refused.
package gate
