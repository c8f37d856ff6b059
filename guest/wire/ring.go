package wire

import (
	"io"
	"sync"
)

// Ring is the queue of one channel at its receiver: at most Window bytes, one
// producer, one consumer. Its memory grows with what is queued, not with time.
type Ring struct {
	mu     sync.Mutex
	ready  sync.Cond // something to take, or ended
	buf    []byte
	start  int
	n      int
	ended  bool
	broken bool
}

// NewRing returns an empty ring.
func NewRing() *Ring {
	r := &Ring{}
	r.ready.L = &r.mu
	return r
}

// Fill puts n bytes that read delivers. It reports false, having read nothing,
// where they do not fit or the channel has ended: the sender did not keep to
// its window.
func (r *Ring) Fill(n int, read func([]byte) error) (bool, error) {
	r.mu.Lock()
	if r.ended || r.n+n > Window {
		r.mu.Unlock()
		return false, nil
	}
	if n == 0 {
		r.mu.Unlock()
		return true, nil
	}
	r.grow(r.n + n)
	// The free part is the producer's alone: the consumer only moves start
	// forward, and does not look past n. grow is the producer's too.
	tail := (r.start + r.n) % len(r.buf)
	first := r.buf[tail:min(tail+n, len(r.buf))]
	second := r.buf[:n-len(first)]
	r.mu.Unlock()
	if err := read(first); err != nil {
		return true, err
	}
	if len(second) > 0 {
		if err := read(second); err != nil {
			return true, err
		}
	}
	r.mu.Lock()
	r.n += n
	r.mu.Unlock()
	r.ready.Signal()
	return true, nil
}

// grow makes room for total bytes.
func (r *Ring) grow(total int) {
	if total <= len(r.buf) {
		return
	}
	size := max(len(r.buf), 4<<10)
	for size < total {
		size *= 2
	}
	buf := make([]byte, size)
	if r.n > 0 {
		m := copy(buf, r.buf[r.start:min(r.start+r.n, len(r.buf))])
		copy(buf[m:r.n], r.buf)
	}
	r.buf, r.start = buf, 0
}

// End says that no more will come. It reports false if that was said before.
func (r *Ring) End() bool {
	r.mu.Lock()
	first := !r.ended
	r.ended = true
	r.mu.Unlock()
	r.ready.Broadcast()
	return first
}

// Break makes Take return io.ErrClosedPipe from now on.
func (r *Ring) Break() {
	r.mu.Lock()
	r.broken = true
	r.mu.Unlock()
	r.ready.Broadcast()
}

// Take waits for bytes and hands them to use, which must not keep them. It
// returns how many were taken; io.EOF at the end.
func (r *Ring) Take(use func([]byte) error) (int, error) {
	r.mu.Lock()
	for r.n == 0 && !r.ended && !r.broken {
		r.ready.Wait()
	}
	if r.broken {
		r.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	if r.n == 0 {
		r.mu.Unlock()
		return 0, io.EOF
	}
	buf := r.buf
	// Not more than a part of the window, so that the sender can go on meanwhile.
	chunk := buf[r.start:min(r.start+min(r.n, Window/4), len(buf))]
	r.mu.Unlock()
	err := use(chunk)
	r.mu.Lock()
	r.n -= len(chunk)
	if &buf[0] == &r.buf[0] {
		r.start = (r.start + len(chunk)) % len(buf)
	} else {
		r.start += len(chunk) // grown meanwhile: what was queued is at its front
	}
	r.mu.Unlock()
	return len(chunk), err
}

// Credit is what a sender may still send on one channel.
type Credit struct {
	mu     sync.Mutex
	more   sync.Cond
	n      int
	broken bool
}

// NewCredit returns a full window.
func NewCredit() *Credit {
	c := &Credit{n: Window}
	c.more.L = &c.mu
	return c
}

// Take waits until at least one byte may be sent and takes at most want. 0
// means that the channel is broken.
func (c *Credit) Take(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n == 0 && !c.broken {
		c.more.Wait()
	}
	if c.broken {
		return 0
	}
	n := min(want, c.n)
	c.n -= n
	return n
}

// Give adds n. It reports false where more comes back than was taken.
func (c *Credit) Give(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n+n > Window {
		return false
	}
	c.n += n
	c.more.Signal()
	return true
}

// Break makes Take return 0 from now on.
func (c *Credit) Break() {
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	c.more.Broadcast()
}
