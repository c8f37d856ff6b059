//go:build linux

package guest

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/wire"
)

const (
	// lookupBound is how long the Egress may think about a name: resolvers ask
	// again after 5 s.
	lookupBound = 4 * time.Second
	// rightsRoom is room for more descriptors than the one that is right, so
	// that a few too many are seen, and closed, as such.
	rightsRoom = 16
)

// egress is the host's end of the way out of a sandbox: it answers look-ups and
// carries the connections that the guest hands over.
//
// The guest, should programs have taken it over, can say any name, and hand over
// any descriptor that it has. It gains this and no more: names are judged by the
// Egress, each anew; a descriptor that is not a TCP stream ends the sandbox; one
// that is comes from the sandbox's own network, as nothing else is ever handed
// in, so that what is read from it or written to it could have been read and
// written by a program inside. It may keep a copy, and so shares its flags and
// options: socketConn relies on none. What is open at once is bounded here, whatever the
// guest counts.
type egress struct {
	judge caisson.Egress
	conn  *net.UnixConn

	ctx     context.Context //nolint:containedctx // the sandbox's life, which no call's context is
	end     context.CancelFunc
	lookups chan struct{}
	conns   chan struct{}
	serving sync.WaitGroup
}

// newEgress takes the host's end of the socket. judge is asked with ctx's values.
func newEgress(ctx context.Context, judge caisson.Egress, socket *os.File) (*egress, error) {
	defer socket.Close()
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "take the socket of the way out: %w", err)
	}
	packets, is := conn.(*net.UnixConn)
	if !is {
		_ = conn.Close()
		return nil, caisson.Errorf(caisson.CodeInternal, "the socket of the way out is none")
	}
	e := &egress{
		judge: judge, conn: packets,
		lookups: make(chan struct{}, outlet.MaxLookups), conns: make(chan struct{}, outlet.MaxConns),
	}
	e.ctx, e.end = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // close ends it
	return e, nil
}

// close ends all connections and returns when they have been let go of.
func (e *egress) close() {
	e.end()
	_ = e.conn.Close()
	e.serving.Wait()
}

// serve takes the guest's frames until the socket ends: CodeGuestProtocol where
// the guest is at fault.
func (e *egress) serve() error {
	buf := make([]byte, outlet.MaxFrame+1)
	room := make([]byte, unix.CmsgSpace(4*rightsRoom))
	for {
		n, rightsSize, flags, _, err := e.conn.ReadMsgUnix(buf, room)
		if err != nil {
			return err
		}
		fds, err := descriptors(room[:rightsSize])
		if n == 0 && err == nil && len(fds) == 0 {
			return errors.New("the way out was closed")
		}
		if err == nil {
			err = e.take(buf[:n], fds, flags)
		}
		if err != nil {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
			return breach("on the way out: %w", err)
		}
	}
}

// descriptors are all that came, also where they are not what should come.
func descriptors(control []byte) ([]int, error) {
	if len(control) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var all []int
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		all = append(all, fds...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// take judges a packet and starts what it asks for. On error, fds are still the caller's.
func (e *egress) take(packet []byte, fds []int, flags int) error {
	f, err := outlet.ParseFrame(packet)
	switch {
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return errors.New("a packet with too much in it")
	case err != nil:
		return err
	case f.Kind == outlet.KindLookup && len(fds) == 0:
		return e.within(e.lookups, func() { e.lookup(f) })
	case f.Kind == outlet.KindCarry && len(fds) == 1:
		if err := checkSocket(fds[0]); err != nil {
			return err
		}
		return e.within(e.conns, func() { e.carry(fds[0], f.Text) })
	}
	return errors.New("a packet that is not the guest's to send")
}

// within runs do, if there is room: the guest knows how much there is.
func (e *egress) within(room chan struct{}, do func()) error {
	select {
	case room <- struct{}{}:
	default:
		return errors.New("more at once than agreed")
	}
	e.serving.Go(do) // ends with what it does, and that with e.ctx
	return nil
}

func (e *egress) lookup(f outlet.Frame) {
	ctx, cancel := context.WithTimeout(e.ctx, lookupBound)
	defer cancel()
	answer := outlet.AnswerNo
	if e.judge.Resolvable(ctx, f.Text) {
		answer = outlet.AnswerYes
	} else if ctx.Err() != nil {
		answer = outlet.AnswerUnknown
	}
	<-e.lookups // before the guest can know
	e.tell(outlet.Frame{Kind: outlet.KindAnswer, ID: f.ID, Answer: answer})
}

func (e *egress) carry(fd int, target string) {
	if conn, err := newSocketConn(fd); err == nil {
		e.judge.Carry(e.ctx, conn, target)
		_ = conn.Close() // a second time does nothing
	}
	<-e.conns // before the guest can know
	e.tell(outlet.Frame{Kind: outlet.KindDone})
}

// tell sends a frame. A guest that does not read is cut off: its socket is closed.
func (e *egress) tell(f outlet.Frame) {
	_ = e.conn.SetWriteDeadline(time.Now().Add(wire.StallBound)) // a socket has deadlines
	if _, err := e.conn.Write(f.Append(nil)); err != nil {
		_ = e.conn.Close()
	}
}
