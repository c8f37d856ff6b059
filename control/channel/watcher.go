package channel

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// How often a directory is looked at whose events do not come: quickest right
// after something happened in it.
const (
	pollMin = 50 * time.Millisecond
	pollMax = time.Second
	// breather is the least time between two readings of events and between two
	// times that all are woken, so that a flood of them takes no processor.
	breather     = time.Millisecond
	wakeAllEvery = pollMin
	// crowd are bytes of events at once that only a flood makes, of some channel;
	// crowded is the time after that.
	crowd   = 4 << 10
	crowded = 10 * time.Millisecond
)

// WatcherOptions say how a watcher learns of requests.
type WatcherOptions struct {
	// Poll: look at the directories instead of waiting for the file system's
	// events, which do not come from another kernel.
	Poll bool
}

// Watcher wakes whoever serves a channel when a request may be there. One serves
// all channels of a process. Where the kernel gives no events for a directory it
// is looked at from time to time.
//
// It may wake without need. It wakes only for names that a request's file may
// have; what else is in the directory waits for Scan to be called anyway.
type Watcher struct {
	roused chan struct{} // something for Run to look at
	begun  time.Time

	mu      sync.Mutex
	closed  bool
	events  *inotify // nil: there are no events
	watched map[*watched]struct{}
	byWatch map[int32]*watched
}

// watched is a directory.
type watched struct {
	dir  *os.File
	wake func()

	watch int32 // of inotify; -1: none
	heard bool  // an event has come since it was last looked at
	deaf  bool  // things happen there without events

	seen  unix.Timespec // when it was changed last
	again bool          // it was changed too lately to trust its time
	every time.Duration
	due   time.Time
}

// NewWatcher returns a watcher. It does nothing until Run.
func NewWatcher(opts WatcherOptions) *Watcher {
	w := &Watcher{roused: make(chan struct{}, 1), begun: time.Now(), watched: map[*watched]struct{}{}, byWatch: map[int32]*watched{}}
	if opts.Poll {
		return w
	}
	if events, err := newInotify(); err == nil { // else the user has no more of them: looking goes on without
		w.events = events
	}
	return w
}

// Add has wake called when a request may be in dir, once at first. wake must not
// block, is called by one goroutine at a time for all directories, and not any
// more soon after remove has returned.
func (w *Watcher) Add(dir string, wake func()) (remove func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "watch the requests: %w", err)
	}
	d := &watched{dir: os.NewFile(uintptr(fd), dir), wake: wake, watch: -1, again: true, every: pollMin, due: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		d.dir.Close()
		return nil, caisson.Errorf(caisson.CodeInternal, "watch the requests: the watcher is closed")
	}
	w.watchLocked(d)
	w.watched[d] = struct{}{}
	w.rouse()
	return sync.OnceFunc(func() { w.remove(d) }), nil
}

// watchLocked asks for events. Where the user has no more watches there are none.
func (w *Watcher) watchLocked(d *watched) {
	if w.events == nil {
		return
	}
	_ = w.events.control(func(fd int) { // the file is open
		at := fmt.Sprintf("/proc/self/fd/%d", d.dir.Fd())
		if wd, err := unix.InotifyAddWatch(fd, at, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err == nil {
			d.watch = int32(wd)
			w.byWatch[d.watch] = d
		}
	})
}

func (w *Watcher) remove(d *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.watched[d]; !there {
		return
	}
	delete(w.watched, d)
	if d.watch >= 0 && w.byWatch[d.watch] == d {
		delete(w.byWatch, d.watch)
		_ = w.events.control(func(fd int) { _, _ = unix.InotifyRmWatch(fd, uint32(d.watch)) }) // it is open
	}
	d.dir.Close()
}

// Close releases what the watcher holds; Run ends.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	for d := range w.watched {
		d.dir.Close()
	}
	clear(w.watched)
	clear(w.byWatch)
	if w.events != nil {
		w.events.close()
	}
	w.rouse()
	return nil
}

// rouse has Run look again.
func (w *Watcher) rouse() {
	select {
	case w.roused <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, which is no error, or until Close. It may be
// called once.
func (w *Watcher) Run(ctx context.Context) error {
	batches := make(chan batch)
	var reader sync.WaitGroup
	defer reader.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.events != nil {
		context.AfterFunc(ctx, w.events.end)
		reader.Go(func() { w.read(ctx, batches) }) // ends with ctx
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-batches:
			w.hear(b)
		case <-w.roused:
		case <-timer.C:
		}
		next, open := w.look(time.Now())
		if !open {
			return nil
		}
		timer.Reset(next)
	}
}

// look looks at the directories whose time has come, wakes for those in which
// something happened, and tells when the next one's comes.
func (w *Watcher) look(now time.Time) (next time.Duration, open bool) {
	next = time.Hour
	for _, wake := range w.changed(now, &next, &open) {
		wake()
	}
	return next, open
}

func (w *Watcher) changed(now time.Time, next *time.Duration, open *bool) (wakes []func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*open = !w.closed
	for d := range w.watched {
		if !d.due.After(now) {
			if d.look() {
				wakes = append(wakes, d.wake)
			}
			d.due = w.next(now, d.every)
		}
		*next = min(*next, d.due.Sub(now))
	}
	return wakes
}

// next is the next time for looking at a directory at which others are looked at
// too that are looked at as seldom: each waking of the process costs more than a
// look.
func (w *Watcher) next(now time.Time, every time.Duration) time.Time {
	return w.begun.Add((now.Sub(w.begun)/every + 1) * every)
}

// look tells whether something may have happened since it was called last. What
// changes a directory twice within a tick of the file system's clock shows once,
// so that a directory that was changed counts as changed the next time too.
func (d *watched) look() bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.dir.Fd()), &st); err != nil {
		return false
	}
	changed := st.Mtim != d.seen
	wake := changed || d.again
	// A watch on which nothing comes though something happens is one for which
	// this kernel has no events. What is taken away has none either; then it is
	// looked at more often than it need be, until an event comes.
	d.deaf = d.deaf || changed && d.seen != (unix.Timespec{}) && !d.heard
	d.seen, d.again, d.heard = st.Mtim, changed, false
	switch {
	case d.watch >= 0 && !d.deaf:
		d.every = pollMax
	case wake:
		d.every = pollMin
	default:
		d.every = min(2*d.every, pollMax)
	}
	return wake
}
