package control

import (
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson"
)

// A sandbox that floods its channel makes the host work, and nothing that bounds
// the sandbox bounds that. So what its broker spends on looking into the channel
// and on taking what is found is counted, and beyond paceSaved it may spend one
// part in paceShare of the time that goes by: of all channels together that have
// spent more than they had.
const (
	paceShare = 8
	// paceSaved is how much a channel that was quiet may spend at once.
	paceSaved = 250 * time.Millisecond
	// pacePause is how long it is left alone at least when it has spent that, or a
	// look has not seen all, so that each look finds enough to be worth it.
	pacePause = 20 * time.Millisecond
	// paceRequest is what taking a request costs beside finding it: it is recorded
	// and answered by others, so that no clock of the loop tells. paceCrowd is that
	// of each beyond those that can run at once, of which clients that wait for
	// their answers do not send so many.
	paceRequest = 200 * time.Microsecond
	paceCrowd   = time.Millisecond
)

// pace is what a channel may spend. It is the loop's alone.
type pace struct {
	debtors *atomic.Int64 // channels of the service that share one part
	debt    time.Duration // below 0: what is saved
	at      time.Time     // as of when
	until   time.Time     // it is left alone; the debt may last longer
	// shares: it is one of the debtors. It is from when it has spent too much until
	// half is saved again: floods that pay by turns would have a part each.
	shares bool
}

// earn brings the debt up to now.
func (p *pace) earn(now time.Time) {
	if p.at.IsZero() {
		p.debt = -paceSaved
	} else {
		p.debt = max(p.debt-now.Sub(p.at)/p.price(), -paceSaved)
	}
	p.at = now
	p.count()
}

// price is for how much time there is one part to spend.
func (p *pace) price() time.Duration {
	if !p.shares {
		return paceShare
	}
	return time.Duration(paceShare * p.debtors.Load())
}

func (p *pace) spend(d time.Duration) {
	p.debt += d
	p.count()
}

// spendOn notes that n requests were taken at once, which took some time: if they
// were many, that is also the time for which others had to wait for the ledger.
func (p *pace) spendOn(n int, took time.Duration) {
	few := min(n, caisson.ControlRunning)
	cost := time.Duration(few)*paceRequest + time.Duration(n-few)*paceCrowd
	if n > few {
		cost = max(cost, took)
	}
	p.spend(cost)
}

func (p *pace) owes() bool { return p.debt > 0 }

func (p *pace) count() {
	switch {
	case !p.shares && p.owes():
		p.shares = true
		p.debtors.Add(1)
	case p.shares && p.debt <= -paceSaved/2:
		p.end()
	}
}

// end is that of the channel.
func (p *pace) end() {
	if p.shares {
		p.shares = false
		p.debtors.Add(-1)
	}
}

// looked ends a look, of which more says that it has not seen all, and tells
// whether there must be another: for what is there, or for what it could not
// spend on.
func (p *pace) looked(now time.Time, more bool) bool {
	p.earn(now)
	if more = more || p.owes(); more {
		p.until = now.Add(pacePause)
	}
	return more
}

// wait is how long the channel is to be left alone; 0: not at all.
func (p *pace) wait(now time.Time) time.Duration {
	p.earn(now)
	return max(p.debt*p.price(), p.until.Sub(now), 0)
}
