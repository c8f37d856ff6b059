package ctl

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// How often answers are looked for. Events say it sooner where there are any:
// through some mounts they do not come.
const (
	lookMin = 5 * time.Millisecond
	lookMax = time.Second
)

// watch waits for answers.
type watch struct {
	events  *os.File // an inotify instance; nil: there are no events
	every   time.Duration
	arrived chan struct{}
	done    chan struct{}
}

func (c *client) watch() *watch {
	w := &watch{every: lookMin, arrived: make(chan struct{}, 1), done: make(chan struct{})}
	if c.opts.Poll {
		close(w.done)
		return w
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		if _, err = unix.InotifyAddWatch(fd, c.path(caisson.ControlResponses), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil { // the box has no more of them
		close(w.done)
		return w
	}
	w.events = os.NewFile(uintptr(fd), "inotify")
	go w.read() // ends with close
	return w
}

func (w *watch) read() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		if _, err := w.events.Read(buf); err != nil {
			return
		}
		select {
		case w.arrived <- struct{}{}:
		default:
		}
	}
}

func (w *watch) close() {
	if w.events != nil {
		w.events.Close()
	}
	<-w.done
}

// wait returns when there may be something new, and not after one of the times
// that are set.
func (w *watch) wait(ctx context.Context, now time.Time, until ...time.Time) {
	d := w.every
	w.every = min(2*w.every, lookMax)
	for _, t := range until {
		if !t.IsZero() {
			d = min(d, max(t.Sub(now), time.Microsecond))
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.arrived:
	case <-timer.C:
	}
}
