package sqlite

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// longestBatch bounds how long one transaction gathers the writes that wait,
// so that another process's turn comes soon.
const longestBatch = 10 * time.Millisecond

// job is one write that waits for, or is in, a transaction.
type job struct {
	ctx   context.Context
	fn    func(*tx) error
	since time.Time
	lead  chan struct{} // closed when it is this one's turn to lead
	done  chan struct{} // closed when err is final

	promoted bool  // guarded by Ledger.mu
	err      error // owned by the leader until done is closed
	kept     bool  // err stands, and so does what was written
	wake     bool
}

// write runs fn in a transaction and returns when it is durable. Among the
// writers of this process one leads: it takes the turnstile, runs what all the
// others want, each under a savepoint of its own, and commits once. fn may run
// on another goroutine, never at the same time as another fn.
//
// A writer whose context ends before fn was run is taken out and nothing has
// happened; after that it gets the true result.
func (l *Ledger) write(ctx context.Context, fn func(*tx) error) error {
	if l.opts.ReadOnly {
		return caisson.Errorf(caisson.CodeWriteFailed, "the ledger is open for reading only")
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if err := l.begin(); err != nil {
		return err
	}
	defer l.idle.Done()
	j := &job{ctx: ctx, fn: fn, since: time.Now(), lead: make(chan struct{}), done: make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, j)
	lead := !l.leading
	l.leading = true
	l.mu.Unlock()
	if !lead {
		select {
		case <-j.done:
			return j.err
		case <-j.lead:
		case <-ctx.Done():
			if l.withdraw(j) {
				return ended(ctx)
			}
			select {
			case <-j.done:
				return j.err
			case <-j.lead:
			}
		}
	}
	l.leadBatch(j)
	return j.err
}

// withdraw takes out a job that was neither run nor told to lead.
func (l *Ledger) withdraw(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, j)
	if i < 0 || j.promoted {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// leadBatch ends with j done and the lead given to the next that waits.
func (l *Ledger) leadBatch(j *job) {
	var batch []*job
	err := l.turn.enter(j.ctx)
	if err == nil {
		if err = l.there(); err == nil {
			batch, err = l.runBatch()
		}
		err = errors.Join(err, l.turn.leave())
	}
	if err != nil {
		batch = append(batch, l.fail(j, storeError("write ledger", err))...)
	}
	wake, committed := false, false
	for _, b := range batch {
		wake = wake || b.wake && b.err == nil
		committed = committed || b.err == nil || b.kept
	}
	if wake && fault.Point("ledger.wake.before") == nil {
		// Waiters look once a second anyway, so a lost wake is only slow.
		_, _ = l.wake.WriteAt([]byte{1}, 0)
	}
	l.mu.Lock()
	if len(l.queue) > 0 {
		l.queue[0].promoted = true
		close(l.queue[0].lead)
	} else {
		l.leading = false
	}
	l.mu.Unlock()
	if committed {
		l.tail.look()
	}
	for _, b := range batch {
		close(b.done)
	}
}

// fail takes out the leader, if it still waits, and all that have waited as
// long as a lock may be waited for, with err. Others may be luckier.
func (l *Ledger) fail(leader *job, err error) []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	var failed []*job
	l.queue = slices.DeleteFunc(l.queue, func(j *job) bool {
		late := caisson.CodeOf(err) == caisson.CodeLedgerBusy && time.Since(j.since) >= l.opts.Busy
		if j != leader && !late {
			return false
		}
		j.err = err
		failed = append(failed, j)
		return true
	})
	return failed
}

// next takes the first job that still wants to run.
func (l *Ledger) next() *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	j := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	return j
}

// runBatch runs jobs until none waits or the time is over, and commits. An
// error is one from before any job was taken.
func (l *Ledger) runBatch() (batch []*job, err error) {
	t := &tx{l: l}
	if err := t.begin(); err != nil {
		return nil, err
	}
	begun, wrote := time.Now(), false
	var broken error
	for broken == nil && (len(batch) == 0 || time.Since(begun) < longestBatch) {
		j := l.next()
		if j == nil {
			break
		}
		batch = append(batch, j)
		if j.ctx.Err() != nil {
			j.err = ended(j.ctx)
			continue
		}
		broken = t.run(j, wrote)
		wrote = wrote || j.err == nil || j.kept
	}
	if broken == nil && wrote {
		broken = t.commit()
	} else {
		_ = t.exec(`ROLLBACK`) // there may be none: some errors end a transaction by themselves
	}
	if broken != nil {
		l.heads.forget()
		broken = storeError("write ledger", broken)
		for _, j := range batch {
			if j.err == nil || j.kept {
				j.err, j.kept = broken, false
			}
		}
	}
	return batch, nil
}

func (t *tx) begin() error {
	t.now = time.Time{}
	if err := t.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	if err := t.l.heads.refresh(t); err != nil {
		return errors.Join(err, t.exec(`ROLLBACK`))
	}
	return nil
}

// run runs one job. Where others have written before it, it gets a savepoint;
// else what it wrote is undone by beginning the transaction anew. The error
// that run returns has broken the whole transaction.
func (t *tx) run(j *job, others bool) error {
	if others {
		if err := t.exec(`SAVEPOINT job`); err != nil {
			return err
		}
	}
	t.keep, t.wake = false, false
	j.err = j.fn(t)
	if j.err == nil {
		j.err = fault.Point("ledger.job.after")
	}
	j.err = storeError("write ledger", j.err)
	j.kept, j.wake = j.err != nil && t.keep, t.wake
	if j.err != nil {
		t.l.heads.forget()
	}
	undo := j.err != nil && !j.kept
	var err error
	switch {
	case others && undo:
		err = errors.Join(t.exec(`ROLLBACK TO job`), t.exec(`RELEASE job`))
	case others:
		err = t.exec(`RELEASE job`)
	case undo:
		_ = t.exec(`ROLLBACK`) // there may be none: some errors end a transaction by themselves
		err = t.begin()
	}
	if err != nil && j.err != nil {
		err = errors.Join(j.err, err)
	}
	return err
}

func (t *tx) commit() error {
	err := fault.Point("ledger.commit.before")
	if err == nil {
		err = t.exec(`COMMIT`)
	}
	if err != nil {
		_ = t.exec(`ROLLBACK`)
		return err
	}
	if !t.now.IsZero() {
		t.l.last.Store(t.now.UnixMicro())
	}
	// The commit is done: an error armed here would be a lie, only a crash is not.
	_ = fault.Point("ledger.commit.after")
	return nil
}
