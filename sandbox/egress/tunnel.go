package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// tunnel carries bytes both ways between two connections until both directions
// have ended, one failed, nothing moved for Idle, or ctx ends. It closes both.
//
// The bytes go through our own buffers, not from socket to socket in the kernel:
// that waits as the flags of the inside socket say, which the sandbox can have
// a hand in, and with large buffers it is no quicker (see BenchmarkDownload).
type tunnel struct {
	p      *Proxy
	target string
	last   atomic.Int64 // when something moved last, Unix nanoseconds
}

// end is one connection of a tunnel, with what was read of it before.
type end struct {
	conn net.Conn
	lead []byte
}

func (p *Proxy) tunnel(ctx context.Context, t rule.Target, inside, outside end) {
	defer inside.conn.Close()  //nolint:errcheck // it has ended
	defer outside.conn.Close() //nolint:errcheck // it has ended
	closeBoth := func() {
		_ = inside.conn.Close()
		_ = outside.conn.Close()
	}
	leave, ok := p.join(t, closeBoth)
	if !ok {
		return
	}
	defer leave()
	defer context.AfterFunc(ctx, closeBoth)()
	tn := &tunnel{p: p, target: t.String()}
	tn.moved()
	var both sync.WaitGroup
	run := func(from, to end, count func(int64)) {
		both.Go(func() {
			if err := tn.oneWay(from, to, count); err != nil {
				closeBoth() // half of a broken connection is of no use
			}
		})
	}
	run(inside, outside, func(n int64) { p.count(tn.target, n, 0) })
	run(outside, inside, func(n int64) { p.count(tn.target, 0, n) })
	both.Wait()
}

func (tn *tunnel) moved() { tn.last.Store(time.Now().UnixNano()) }

func (tn *tunnel) idle() bool { return time.Since(time.Unix(0, tn.last.Load())) >= tn.p.o.Idle }

// oneWay carries one direction to its end and passes the end on.
func (tn *tunnel) oneWay(from, to end, count func(int64)) error {
	if err := tn.put(to.conn, from.lead, count); err != nil {
		return err
	}
	b := buffer{p: tn.p, bytes: make([]byte, leastBuffer)}
	defer b.fit(0)
	for {
		if err := from.conn.SetReadDeadline(time.Now().Add(tn.step())); err != nil {
			return err
		}
		n, err := from.conn.Read(b.bytes)
		if n > 0 {
			tn.moved()
		}
		if failed := tn.put(to.conn, b.bytes[:n], count); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, io.EOF):
			return closeWrite(to.conn)
		case errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || !tn.idle()):
		case err != nil:
			return err
		}
		b.fit(n)
	}
}

// step is how long one direction waits before it looks whether the other is
// the one that moves.
func (tn *tunnel) step() time.Duration { return tn.p.o.Idle / 4 }

// put writes all of b, however slowly it is taken.
func (tn *tunnel) put(to net.Conn, b []byte, count func(int64)) error {
	for len(b) > 0 {
		if err := to.SetWriteDeadline(time.Now().Add(tn.step())); err != nil {
			return err
		}
		n, err := to.Write(b)
		if b = b[n:]; n > 0 {
			tn.moved()
			count(int64(n))
		}
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || tn.idle()) {
			return err
		}
	}
	return nil
}

// closeWrite passes on the end of one direction. A connection that cannot be
// half closed ends.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}
