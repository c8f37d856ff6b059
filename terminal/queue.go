package terminal

import (
	"fmt"
	"sync"
)

// queue is what a viewer has not been sent yet, as frames.
type queue struct {
	mu   sync.Mutex
	more sync.Cond
	buf  []byte
	lost int64 // bytes of output that were never sent
	last bool  // nothing comes after buf
	dead bool  // nobody takes any more
}

func newQueue() *queue {
	q := &queue{}
	q.more.L = &q.mu
	return q
}

// output queues p. If the viewer is too far behind, what it has not been sent
// is replaced by what instead returns.
func (q *queue) output(p []byte, instead func() []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last || q.dead {
		return
	}
	if len(q.buf)+len(p) <= behind {
		q.buf = appendOutput(q.buf, p)
		q.more.Signal()
		return
	}
	q.lost += int64(len(q.buf))
	q.buf = appendOutput(q.buf[:0], instead())
	q.more.Signal()
}

// frame queues a frame that is not output; last says that it is the last one.
// Others are left out for one who is too far behind.
func (q *queue) frame(kind byte, body any, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last || q.dead || !last && len(q.buf) > behind {
		return
	}
	q.buf, q.last = appendJSON(q.buf, kind, body), last
	q.more.Signal()
}

// close ends take.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = true
	q.buf = nil
	q.more.Signal()
}

// take waits for something to send and gives it over, with spare to be used in
// its place; nil at the end.
func (q *queue) take(spare []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.buf) == 0 && !q.last && !q.dead {
		q.more.Wait()
	}
	if q.dead || len(q.buf) == 0 {
		return nil
	}
	if cap(spare) > maxBody {
		spare = nil // much was shown once: that is no reason to hold the memory
	}
	buf := q.buf
	if q.lost > 0 {
		note := fmt.Sprintf("about %d KiB of output were left out here, as it came faster than it was read", q.lost>>10)
		buf, q.lost = append(appendJSON(nil, typeNote, note), buf...), 0
	}
	q.buf = spare[:0]
	return buf
}

// inbox is what was typed and not read yet.
type inbox struct {
	mu    sync.Mutex
	more  sync.Cond
	buf   []byte
	ended bool
}

func newInbox() *inbox {
	b := &inbox{}
	b.more.L = &b.mu
	return b
}

// add takes p, or as much of it as there is room for.
func (b *inbox) add(p []byte) (all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), unread-len(b.buf))
	b.buf = append(b.buf, p[:n]...)
	b.more.Signal()
	return n == len(p)
}
