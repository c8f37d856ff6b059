// Package control is the host side of control channels: the brokers that take
// what a sandbox asks for, hand it to the airlock, and publish what became of it.
//
// The record in the ledger is the answer, the files are projections of it:
// what is published for a request is a pure function of its [caisson.RequestRecord]
// and its [caisson.CallRecord]. Every write to the ledger carries the fence of the
// run's lease, and a broker looks whether it still holds that before it
// publishes, so that one that was frozen and displaced adds nothing. A request
// that was claimed is kept until it is on record, so that whoever opens the
// channel next answers what its broker had claimed and not recorded.
//
// Not promised: that a request whose effect began, and whose end nobody saw, did
// or did not happen. It is answered as unknown.
package control
