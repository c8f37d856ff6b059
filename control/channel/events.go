package channel

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// batch is what was read of events at once.
type batch struct {
	all  bool // events were lost
	wake map[int32]bool
	// stir are the watches on which something else came than a request.
	stir map[int32]bool
}

// read reads events until ctx ends or the instance is closed.
func (w *Watcher) read(ctx context.Context, batches chan<- batch) {
	// As much as the kernel keeps usually: who comes last would wait for several
	// readings. What is not used of it is never touched.
	buf := make([]byte, 1<<20)
	pause := time.NewTimer(0)
	defer pause.Stop()
	var lost time.Time // when all were woken last
	for {
		n, err := w.events.read(buf)
		if err != nil {
			return // its end, or it was closed
		}
		b := parse(buf[:n])
		wait := breather
		if n > crowd {
			wait = crowded
		}
		if b.all {
			wait = max(breather, wakeAllEvery-time.Since(lost))
			lost = time.Now().Add(wait)
		}
		if b.all && !sleep(ctx, pause, wait) {
			return
		}
		select {
		case batches <- b:
		case <-ctx.Done():
			return
		}
		if !b.all && !sleep(ctx, pause, wait) {
			return
		}
	}
}

// sleep waits; false where ctx ended.
func sleep(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// parse reads what the kernel has written (inotify(7)).
func parse(buf []byte) batch {
	b := batch{wake: map[int32]bool{}, stir: map[int32]bool{}}
	for len(buf) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(buf))
		mask, size := binary.NativeEndian.Uint32(buf[4:]), int(binary.NativeEndian.Uint32(buf[12:]))
		end := min(unix.SizeofInotifyEvent+size, len(buf))
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
		buf = buf[end:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			b.all = true
			continue
		}
		if _, is := requestOf(name); is {
			b.wake[watch] = true
		} else {
			b.stir[watch] = true
		}
	}
	return b
}

// hear wakes for what a batch tells of.
func (w *Watcher) hear(b batch) {
	for _, wake := range w.told(b) {
		wake()
	}
}

func (w *Watcher) told(b batch) (wakes []func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch := range b.stir {
		for _, d := range w.byWatch[watch] {
			d.heard, d.deaf = true, false
			wakes = append(wakes, d.stir)
		}
	}
	for watch := range b.wake {
		for _, d := range w.byWatch[watch] {
			d.heard, d.deaf = true, false
			if !b.all {
				wakes = append(wakes, d.wake)
			}
		}
	}
	if b.all {
		for _, all := range w.byWatch {
			for _, d := range all {
				d.heard, wakes = true, append(wakes, d.wake)
			}
		}
	}
	return wakes
}
