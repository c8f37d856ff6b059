package control

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// A channel spends what it has saved at once, and then its part of the time that
// goes by, which it shares with all that have spent too much.
func TestPace(t *testing.T) {
	var debtors atomic.Int64
	now := time.Now()
	// flood looks as often as it may for some time, and returns what it spent.
	flood := func(work time.Duration, lasting time.Duration, all ...*pace) (spent time.Duration) {
		for end := now.Add(lasting); now.Before(end); now = now.Add(time.Millisecond) {
			for _, p := range all {
				if p.wait(now) == 0 {
					p.spend(work)
					p.looked(now, false)
					spent += work
				}
			}
		}
		return spent
	}
	a, b := &pace{debtors: &debtors}, &pace{debtors: &debtors}
	if spent := flood(time.Millisecond, 10*time.Second, a); spent < 1250*time.Millisecond || spent > 1600*time.Millisecond {
		t.Errorf("one spends %v of 10s", spent)
	}
	if n := debtors.Load(); n > 1 {
		t.Errorf("%d debtors", n)
	}
	flood(time.Millisecond, 10*time.Second, a, b) // b spends what it has saved
	if spent := flood(5*time.Millisecond, 10*time.Second, a, b); spent < 1100*time.Millisecond || spent > 1400*time.Millisecond {
		t.Errorf("two spend %v of 10s", spent)
	}
	now = now.Add(5 * time.Second)
	a.wait(now)
	b.wait(now)
	if n := debtors.Load(); n != 0 {
		t.Errorf("%d debtors after a while in which nothing was spent", n)
	}
	// Who has spent too much is left alone for a while, however little it was.
	p := &pace{debtors: &debtors}
	p.wait(now)
	p.spend(paceSaved + time.Microsecond)
	if !p.looked(now, false) || p.wait(now.Add(time.Millisecond)) < pacePause-2*time.Millisecond || p.wait(now.Add(pacePause)) > 0 {
		t.Errorf("it waits %v", p.wait(now))
	}
	m := &pace{debtors: &debtors}
	if m.wait(now); !m.looked(now, true) || m.wait(now) != pacePause {
		t.Errorf("after a look that has not seen all it waits %v", m.wait(now))
	}
	// A quiet one never waits.
	q := &pace{debtors: &debtors}
	for range 1000 {
		if wait := q.wait(now); wait > 0 {
			t.Fatalf("a quiet one waits %v", wait)
		}
		q.spendOn(1, time.Second)
		q.looked(now, false)
		now = now.Add(2 * time.Millisecond)
	}
	// Many at once cost what others had to wait for them.
	before := q.debt
	if q.spendOn(caisson.ControlRunning+1, time.Millisecond); q.debt-before != 4*paceRequest+paceCrowd {
		t.Errorf("five cost %v", q.debt-before)
	}
	before = q.debt
	if q.spendOn(caisson.ControlRunning+1, time.Second); q.debt-before != time.Second {
		t.Errorf("five that took a second cost %v", q.debt-before)
	}
	for _, each := range []*pace{a, b, m, p, q} {
		each.end()
	}
	if n := debtors.Load(); n != 0 {
		t.Errorf("%d debtors are left", n)
	}
}
