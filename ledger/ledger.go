// Package ledger is what can be done with a ledger, or with an export of one,
// without writing it.
package ledger
