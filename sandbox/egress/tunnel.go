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

// Pieces that the kernel moves at a time. A piece is as large as what goes
// through in about a second, so that the deadlines set between pieces hold.
const (
	leastPiece = 64 << 10
	mostPiece  = 4 << 20
)

// Buffers where the kernel cannot move the bytes: one grows while it is filled,
// so that a connection that is quiet holds little.
const (
	leastBuffer = 4 << 10
	mostBuffer  = 256 << 10
)

// tunnel carries bytes both ways between two connections until both directions
// have ended, one failed, nothing moved for Idle, or ctx ends. It closes both.
// Between two TCP connections the kernel moves the bytes.
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
	if len(from.lead) > 0 {
		if err := to.conn.SetWriteDeadline(time.Now().Add(tn.p.o.Idle)); err != nil {
			return err
		}
		n, err := to.conn.Write(from.lead)
		count(int64(n))
		if err != nil {
			return err
		}
		tn.moved()
	}
	piece := int64(leastPiece)
	var buffer []byte
	if !spliced(from.conn, to.conn) {
		buffer = make([]byte, leastBuffer)
	}
	for {
		begun := time.Now()
		n, err := tn.piece(from.conn, to.conn, piece, buffer)
		if n == int64(len(buffer)) && n > 0 && n < mostBuffer {
			buffer = make([]byte, 2*n)
		}
		count(n)
		if n > 0 {
			tn.moved()
		}
		switch {
		case errors.Is(err, io.EOF):
			return closeWrite(to.conn)
		case errors.Is(err, errStalled):
			return err
		case errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || !tn.idle()):
		case err != nil:
			return err
		case time.Since(begun) < 100*time.Millisecond:
			piece = min(2*piece, mostPiece)
		case time.Since(begun) > time.Second:
			piece = max(piece/2, leastPiece)
		}
	}
}

// spliced tells whether the kernel can move the bytes by itself.
func spliced(from, to net.Conn) bool {
	_, is := from.(*net.TCPConn)
	_, too := to.(*net.TCPConn)
	return is && too
}

// piece moves up to so many bytes, through the buffer if there is one. The deadline of reading is shorter than the
// idle time, as the other direction may be the one that moves.
func (tn *tunnel) piece(from, to net.Conn, most int64, buffer []byte) (n int64, err error) {
	now := time.Now()
	if err := from.SetReadDeadline(now.Add(tn.p.o.Idle / 4)); err != nil {
		return 0, err
	}
	if err := to.SetWriteDeadline(now.Add(2 * tn.p.o.Idle)); err != nil {
		return 0, err
	}
	if buffer == nil {
		n, err = io.CopyN(to, from, most)
	} else {
		n, err = once(to, from, buffer)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && time.Since(now) >= 2*tn.p.o.Idle {
		err = errStalled // what was read and not written is lost
	}
	return n, err
}

// once moves what comes at once.
func once(to io.Writer, from io.Reader, buffer []byte) (int64, error) {
	n, err := from.Read(buffer)
	if n == 0 {
		return 0, err
	}
	written, failed := to.Write(buffer[:n])
	if failed != nil {
		return int64(written), errors.Join(failed, errStalled)
	}
	return int64(written), err
}

var errStalled = errors.New("the other side takes nothing")

// closeWrite passes on the end of one direction. A connection that cannot be
// half closed ends.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}
