package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/caisson-run/caisson"
)

// lookEvery is how often a waiter looks by itself: commits of other processes
// that wake nobody, and wakes that were lost, are seen within this time.
const lookEvery = time.Second

// watch is the watch of the wake file that all waiters of a ledger share, from
// the first wait until the ledger is closed: watches are few on a host, and to
// end one takes the kernel tens of milliseconds, which no decision should wait for.
type watch struct {
	fs    *fsnotify.Watcher
	ended chan struct{} // closed when its goroutine has ended
}

// Wait implements [caisson.Ledger].
func (l *Ledger) Wait(ctx context.Context, run caisson.RunID, after int64) (int64, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	defer l.idle.Done()
	var watching bool
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		l.mu.Lock()
		changed := l.changed // before the look, or a commit between would be missed
		l.mu.Unlock()
		count, err := l.count(ctx, run)
		if err != nil || count > after {
			return count, err
		}
		if !watching {
			// Look once more after the watch began.
			l.startWatch()
			watching = true
			continue
		}
		timer.Reset(lookEvery)
		select {
		case <-ctx.Done():
			return count, ended(ctx)
		case <-l.closing:
			return count, errClosed()
		case <-changed:
		case <-timer.C:
			if l.opts.ReadOnly {
				continue
			}
			if err := l.there(); err != nil {
				return count, err
			}
		}
	}
}

func (l *Ledger) count(ctx context.Context, run caisson.RunID) (count int64, err error) {
	s := reader{ctx, l}
	if run == "" {
		err = s.row(`SELECT n FROM events ORDER BY n DESC LIMIT 1`).Scan(&count)
	} else {
		err = s.row(`SELECT e.seq FROM runs r JOIN events e ON e.rid = r.rid WHERE r.id = ? ORDER BY e.seq DESC LIMIT 1`, string(run)).Scan(&count)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, notFound("run", string(run))
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil && ctx.Err() != nil {
		return 0, ended(ctx)
	}
	return count, storeError("read ledger", err)
}

// startWatch begins the watch, once. Where the host gives none, waiters only
// look each second.
func (l *Ledger) startWatch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch != nil {
		return
	}
	w := &watch{ended: make(chan struct{})}
	l.watch = w
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(l.opts.Path + ".wake")
		if err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		close(w.ended)
		return
	}
	w.fs = watcher
	go func() { // ends when Close closes the watcher
		defer close(w.ended)
		for {
			select {
			case _, ok := <-watcher.Events:
				if !ok {
					return
				}
				l.broadcast()
			case _, ok := <-watcher.Errors:
				if !ok {
					return
				}
				l.broadcast() // events may be lost
			}
		}
	}()
}

// endWatch ends the watch; nobody waits any more.
func (l *Ledger) endWatch() {
	if l.watch == nil {
		return
	}
	if l.watch.fs != nil {
		_ = l.watch.fs.Close()
	}
	<-l.watch.ended
}

func (l *Ledger) broadcast() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}
