// Package control is the host side of control channels: the brokers that take
// what a sandbox asks for, hand it to the airlock, and publish what became of it.
//
// The record in the ledger is the answer, the files are projections of it:
// what is published for a request is a pure function of its [caisson.RequestRecord]
// and its [caisson.CallRecord]. Every write to the ledger carries the fence of the
// run's lease, and a broker looks whether it still holds that before it
// publishes, so that one that was frozen and displaced adds nothing.
//
// Not promised: that a request whose effect began, and whose end nobody saw, did
// or did not happen. It is answered as unknown. A request that was claimed and
// not yet recorded when the process died is answered by nobody; nothing was begun
// for it, and asking to recover it tells that there is no such request.
package control
