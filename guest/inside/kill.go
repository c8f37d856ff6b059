package inside

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/proctree"
)

// stop asks the tree to end, then ends it.
func (c *command) stop(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	sigs := []unix.Signal{unix.SIGTERM}
	if c.master != nil {
		// A shell that has a terminal ignores the first, and ends when its terminal goes.
		sigs = append(sigs, unix.SIGHUP)
	}
	c.each(append(sigs, unix.SIGCONT)...) // a stopped process does not see the others
	select {
	case <-c.gone:
	case <-timer.C:
		c.kill()
	}
}

const (
	// killWait is between two looks at a tree that is being killed and does not
	// grow. It needs the processors more than a look does.
	killWait = 50 * time.Millisecond
	// holderBound is how long a holder that was told to go on, and has nothing
	// below it but what has ended, may take to end. Killed, it cannot tell how
	// its command ended.
	holderBound = time.Second
)

// kill ends the tree whatever it does, and returns when it has ended.
func (c *command) kill() {
	c.ending.Do(func() {
		killed := killedOnce{}
		last, wait := time.Now(), time.Millisecond
		for pass := 0; ; pass++ {
			if pass > 2 && wait == time.Millisecond {
				c.freeze() // it makes processes faster than they are found
			}
			fresh, there := c.killBelow(killed)
			if wait = min(2*wait, killWait); fresh > 0 {
				wait = time.Millisecond
			}
			if there > 0 {
				last = time.Now()
			} else {
				c.wakeHolder(time.Since(last) > holderBound)
			}
			select {
			case <-c.gone:
				return
			case <-time.After(wait):
			}
		}
	})
}

// killedOnce are processes that a SIGKILL was sent to, by pid, with when they
// began. It is not lost, and they may be there for long after.
type killedOnce map[int]uint64

func (k killedOnce) has(p proctree.Process) bool {
	start, known := k[p.PID]
	return known && start == p.Start
}

func (k killedOnce) add(p proctree.Process) { k[p.PID] = p.Start }

// killBelow kills what is below the holder and was not killed before. It
// returns how many these were, and how many are there.
func (c *command) killBelow(killed killedOnce) (fresh, there int) {
	all, err := proctree.All()
	if err != nil {
		return 0, 1
	}
	below := proctree.Below(all, c.holder, nil)
	for _, p := range below {
		if killed.has(p) {
			continue
		}
		c.left.Add(1) // first: the tree may have ended, and been told of, when the signal was sent
		if !p.Signal(unix.SIGKILL) {
			c.left.Add(-1)
			continue
		}
		killed.add(p)
		fresh++
	}
	return fresh, len(below)
}

// wakeHolder lets a holder go on that was stopped from inside. One that does
// not end then is ended; what is below it falls to the guest.
func (c *command) wakeHolder(end bool) {
	p, there := proctree.Of(c.holder)
	if !there {
		return
	}
	p.Signal(unix.SIGCONT)
	if end {
		p.Signal(unix.SIGKILL)
	}
}

// freezePasses bounds how often a tree that grows while it is stopped is looked
// at before it is killed anyway.
const freezePasses = 50

// freeze stops everything below the holder, until nothing new is found. What is
// killed makes room for what others make, where their number is bounded; what
// is stopped does not.
func (c *command) freeze() {
	stopped := map[int]uint64{} // by pid, when it began
	for range freezePasses {
		all, err := proctree.All()
		if err != nil {
			return
		}
		grown := false
		for _, p := range proctree.Below(all, c.holder, nil) {
			if start, known := stopped[p.PID]; known && start == p.Start {
				continue
			}
			stopped[p.PID] = p.Start
			grown = true
			p.Signal(unix.SIGSTOP)
		}
		if !grown {
			return
		}
	}
}

// each sends signals to everything below the holder.
func (c *command) each(sigs ...unix.Signal) {
	all, err := proctree.All()
	if err != nil {
		return
	}
	for _, p := range proctree.Below(all, c.holder, nil) {
		p.Signal(sigs...)
	}
}
