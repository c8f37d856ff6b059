package channel

import (
	"context"
	"fmt"
	"os"
	"slices"
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
	// lookMax is that for one of whose changes this kernel is sure to have events:
	// it is looked at should one be lost all the same.
	lookMax = time.Minute
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
// all channels of a process. Where the kernel gives no events for a directory, or
// may not give all, it is looked at from time to time.
//
// It may wake without need.
type Watcher struct {
	roused chan struct{} // something for Run to look at
	begun  time.Time

	mu      sync.Mutex
	closed  bool
	events  *inotify // nil: there are no events
	watched map[*watched]struct{}
	byWatch map[int32][]*watched // one directory may be watched several times
}

// watched is a directory.
type watched struct {
	dir  *os.File
	wake func()
	stir func()
	most time.Duration // between two looks

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
	w := &Watcher{roused: make(chan struct{}, 1), begun: time.Now(), watched: map[*watched]struct{}{}, byWatch: map[int32][]*watched{}}
	if opts.Poll {
		return w
	}
	if events, err := newInotify(); err == nil { // else the user has no more of them: looking goes on without
		w.events = events
	}
	return w
}

// Guard has changed called when something directly in dir is moved or removed, or
// dir itself is, and when that may have been missed. Not sure: it may happen
// without. changed is to be as wake is for Add.
func (w *Watcher) Guard(dir string, changed func()) (remove func(), sure bool) {
	none := func() {}
	d, err := opened(dir)
	if err != nil {
		return none, false
	}
	d.wake, d.stir = changed, changed
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.watchLocked(d, unix.IN_MOVED_FROM|unix.IN_DELETE|unix.IN_MOVE_SELF|unix.IN_DELETE_SELF) {
		d.dir.Close()
		return none, false
	}
	return sync.OnceFunc(func() { w.remove(d) }), local(d.dir)
}

func opened(dir string) (*watched, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &watched{dir: os.NewFile(uintptr(fd), dir), watch: -1}, nil
}

// Add has wake called when a request may be in dir, once at first, and stir when
// something came that is none: that has time, and is not told apart where no
// events come. Both must not block, are called by one goroutine at a time for all
// directories, and not any more soon after remove has returned.
func (w *Watcher) Add(dir string, wake, stir func()) (remove func(), err error) {
	d, err := opened(dir)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "watch the requests: %w", err)
	}
	d.wake, d.stir, d.most, d.again, d.every, d.due = wake, stir, pollMax, true, pollMin, time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		d.dir.Close()
		return nil, caisson.Errorf(caisson.CodeInternal, "watch the requests: the watcher is closed")
	}
	if w.watchLocked(d, unix.IN_CREATE|unix.IN_MOVED_TO) && local(d.dir) {
		d.most = lookMax
	}
	w.watched[d] = struct{}{}
	w.rouse()
	return sync.OnceFunc(func() { w.remove(d) }), nil
}

// watchLocked asks for events, and tells whether there are any: the user may have
// no more watches.
func (w *Watcher) watchLocked(d *watched, mask uint32) bool {
	if w.events == nil {
		return false
	}
	_ = w.events.control(func(fd int) { // the file is open
		at := fmt.Sprintf("/proc/self/fd/%d", d.dir.Fd())
		if wd, err := unix.InotifyAddWatch(fd, at, mask|unix.IN_ONLYDIR|unix.IN_MASK_ADD); err == nil {
			d.watch = int32(wd)
			w.byWatch[d.watch] = append(w.byWatch[d.watch], d)
		}
	})
	return d.watch >= 0
}

func (w *Watcher) remove(d *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.dir.Close()
	delete(w.watched, d)
	others := slices.DeleteFunc(w.byWatch[d.watch], func(other *watched) bool { return other == d })
	if w.byWatch[d.watch] = others; len(others) > 0 {
		return
	}
	delete(w.byWatch, d.watch)
	if d.watch >= 0 && !w.closed {
		_ = w.events.control(func(fd int) { _, _ = unix.InotifyRmWatch(fd, uint32(d.watch)) }) // it is open
	}
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
	for _, all := range w.byWatch {
		for _, d := range all {
			d.dir.Close()
		}
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
		d.every = d.most
	case wake:
		d.every = pollMin
	default:
		d.every = min(2*d.every, d.most)
	}
	return wake
}

// locals are file systems in which nothing can be changed but through this
// kernel, by the numbers of statfs(2), so that it has events of all that is. In
// one that is not listed, or that another kernel shares, things may happen
// without.
var locals = [...]int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.BCACHEFS_SUPER_MAGIC,
	unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
}

func local(dir *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &st) == nil && slices.Contains(locals[:], int64(uint32(st.Type))) //nolint:gosec,unconvert // the field's type differs by architecture
}
