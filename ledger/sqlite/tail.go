package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/caisson-run/caisson"
)

// lookEvery is how often the tail looks by itself: commits of other processes
// that wake nobody, and wakes that were lost, are seen within this time.
const lookEvery = time.Second

// tail reads what is new in a ledger for all that wait for it, and rings for those
// whom it concerns: with a hundred runs that are waited for, a look of each at each
// commit of any would cost more than the commit.
//
// From the first wait until the ledger is closed it has one goroutine, and one watch
// of the wake file: watches are few on a host, and to end one takes the kernel tens
// of milliseconds, which no decision should wait for. While nobody waits it looks at
// nothing.
type tail struct {
	nudge chan struct{} // something may be new

	mu      sync.Mutex
	waiters map[caisson.RunID]map[chan struct{}]bool // "": those of any run
	started bool
	ended   chan struct{} // closed when the goroutine has ended
}

func newTail() *tail {
	return &tail{nudge: make(chan struct{}, 1), waiters: map[caisson.RunID]map[chan struct{}]bool{}, ended: make(chan struct{})}
}

// join returns what is rung when there may be something new of a run.
func (t *tail) join(run caisson.RunID) (rung chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiters) == 0 {
		t.look() // it did not
	}
	if t.waiters[run] == nil {
		t.waiters[run] = map[chan struct{}]bool{}
	}
	rung = make(chan struct{}, 1)
	t.waiters[run][rung] = true
	return rung
}

func (t *tail) leave(run caisson.RunID, rung chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.waiters[run], rung); len(t.waiters[run]) == 0 {
		delete(t.waiters, run)
	}
}

// waited tells whether anybody waits.
func (t *tail) waited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiters) > 0
}

// ring rings for those who wait for one of the runs, and for any; nil rings for all.
func (t *tail) ring(runs []caisson.RunID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if runs == nil {
		for _, all := range t.waiters {
			signal(all)
		}
		return
	}
	signal(t.waiters[""])
	for _, run := range runs {
		signal(t.waiters[run])
	}
}

func signal(waiters map[chan struct{}]bool) {
	for rung := range waiters {
		select {
		case rung <- struct{}{}:
		default:
		}
	}
}

// look has the tail look. It never blocks.
func (t *tail) look() {
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

// startTail begins it, once; what is new is looked for from then on. Where the host
// gives no watch, it only looks each second.
func (l *Ledger) startTail() {
	l.tail.mu.Lock()
	first := !l.tail.started
	l.tail.started = true
	l.tail.mu.Unlock()
	if !first {
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(l.opts.Path + ".wake"); err != nil {
			_ = watcher.Close()
		}
	}
	var events <-chan fsnotify.Event
	var lost <-chan error
	if err == nil {
		events, lost = watcher.Events, watcher.Errors
	}
	go func() { // ends when the ledger is closed
		defer close(l.tail.ended)
		l.follow(events, lost)
		if events != nil {
			_ = watcher.Close()
		}
	}()
}

// endTail waits for its end; the ledger is closing.
func (l *Ledger) endTail() {
	l.tail.mu.Lock()
	started := l.tail.started
	l.tail.mu.Unlock()
	if started {
		<-l.tail.ended
	}
}

// follow looks when it is told to, and each second while somebody waits.
func (l *Ledger) follow(events <-chan fsnotify.Event, lost <-chan error) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	seen := int64(-1) // whoever was first may have missed what came until now
	log := rested{path: logOf(l.opts.Path)}
	for ok := true; ; {
		byItself := false
		select {
		case <-l.closing:
			return
		case <-l.tail.nudge:
		case _, ok = <-events:
		case _, ok = <-lost: // events may be, too
		case <-timer.C:
			byItself = true
		}
		if !ok {
			events, lost, ok = nil, nil, true
		}
		if !l.tail.waited() {
			timer.Stop()
			seen = -1
			continue
		}
		timer.Reset(lookEvery)
		if byItself && log.still(time.Now()) && (l.opts.ReadOnly || l.there() == nil) {
			continue
		}
		seen = l.news(seen)
	}
}

// rested tells that nothing can have been committed. To be told that a log was
// written is of no use: that comes before the commit can be seen. But one that was
// not written for long holds nothing that could not be seen the last time.
type rested struct {
	path    string
	written time.Time // by the clock of its file system, which may be another
	since   time.Time // when that was seen first
	skipped int
}

// logOf is where SQLite keeps the log of a database: beside the file, and not beside
// a link to it.
func logOf(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	return path + "-wal"
}

const (
	restedFor = 10 * time.Second
	// restedAtMost is how often in a row a look is left out, should that be wrong: a
	// process may have been stopped for long in the middle of a commit.
	restedAtMost = 60
)

// still tells whether a look by the clock can be left out.
func (r *rested) still(now time.Time) bool {
	info, err := os.Stat(r.path)
	if err != nil {
		r.written = time.Time{}
		return false
	}
	if at := info.ModTime(); !at.Equal(r.written) {
		r.written, r.since = at, now
	}
	if r.skipped++; now.Sub(r.since) > restedFor && r.skipped <= restedAtMost {
		return true
	}
	r.skipped = 0
	return false
}

// manyNews is how many runs are rung for one by one.
const manyNews = 256

// newsQuery asks for the runs that have events after one.
const newsQuery = `SELECT DISTINCT r.id FROM events e JOIN runs r ON r.rid = e.rid WHERE e.n > ? LIMIT ?`

// news rings for whom there is something new since an event, and returns the newest.
func (l *Ledger) news(seen int64) int64 {
	ctx := context.Background() // it asks for little, and Close waits for it
	newest, err := l.count(ctx, "")
	switch {
	case err != nil || seen < 0 || newest < seen:
		l.tail.ring(nil) // they see for themselves
	case newest > seen:
		runs, err := l.runsSince(ctx, seen)
		if err != nil || len(runs) == manyNews {
			runs = nil
		}
		l.tail.ring(runs)
	case !l.opts.ReadOnly && l.there() != nil:
		l.tail.ring(nil)
	}
	if err != nil {
		return -1
	}
	return newest
}

func (l *Ledger) runsSince(ctx context.Context, seen int64) (runs []caisson.RunID, err error) {
	err = each(reader{ctx, l}, func(rows *sql.Rows) error {
		var id caisson.RunID
		err := rows.Scan(&id)
		runs = append(runs, id)
		return err
	}, newsQuery, seen, manyNews)
	return runs, err
}
