package terminal

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
)

// viewer is one connection at the server.
type viewer struct {
	Viewer
	s     *Server
	conn  *net.UnixConn
	in    frames
	queue *queue
	sent  chan struct{} // its writer has ended
	why   chan string   // the first reason to go; holds one
}

// Reasons for which a viewer goes, as they are recorded.
const (
	wentAway   = "left"    // of its own will
	wasCut     = "gone"    // its connection ended
	wasStalled = "stalled" // it took nothing for too long
	wasWrong   = "protocol"
)

// serve sees a viewer from its coming to its going.
func (s *Server) serve(conn *net.UnixConn) {
	defer conn.Close() //nolint:errcheck // nothing is left to be sent
	v := &viewer{s: s, conn: conn, in: frames{from: conn}, queue: newQueue(), sent: make(chan struct{}), why: make(chan string, 1)}
	if err := v.greet(); err != nil {
		v.refuse(err)
		return
	}
	go v.send() // ends with the queue or the connection
	err := v.listen()
	v.leave(err)
	v.queue.close()
	s.mu.Lock()
	delete(s.viewers, v)
	over := s.over
	s.mu.Unlock()
	_ = conn.Close() // frees a writer that waits
	<-v.sent
	if over == nil && s.opts.Detached != nil {
		s.opts.Detached(v.Viewer, <-v.why)
	}
}

// greet lets the viewer in.
func (v *viewer) greet() error {
	pid, err := localsocket.Peer(v.conn)
	if err != nil {
		return err
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(greeting)) // an open socket
	kind, body, err := v.in.next()
	if err != nil {
		return err
	}
	var h hello
	if kind != typeHello {
		return fmt.Errorf("the first frame is of type %q", kind)
	}
	if err := decode(body, &h); err != nil {
		return err
	}
	if h.Version != version {
		return caisson.Errorf(caisson.CodeUnsupported, "the viewer speaks version %d, this is version %d", h.Version, version)
	}
	_ = v.conn.SetReadDeadline(time.Time{})
	s := v.s
	s.mu.Lock()
	s.count++
	v.Viewer = Viewer{N: s.count, PID: pid, ReadOnly: h.ReadOnly, Size: h.Size}
	full := len(s.viewers) >= maxViewers
	s.mu.Unlock()
	if full {
		return caisson.Errorf(caisson.CodeHostFull, "%d viewers are attached already", maxViewers)
	}
	if s.opts.Attached != nil {
		if err := s.opts.Attached(v.Viewer); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.queue.frame(typeWelcome, struct{}{}, false)
	v.queue.output(s.screenLocked(), nil)
	if s.over != nil {
		v.finish(*s.over)
	}
	s.viewers[v] = true
	select {
	case <-s.seen:
	default:
		close(s.seen)
	}
	before := s.size
	s.followLocked(v)
	if before == s.size {
		s.redrawLocked()
	}
	return nil
}

// refuse tells who was not let in why, if it can be told.
func (v *viewer) refuse(err error) {
	_ = v.conn.SetWriteDeadline(time.Now().Add(time.Second))             // an open socket
	_, _ = v.conn.Write(appendJSON(nil, typeEnd, end{Error: told(err)})) // it may be gone
}

// told is an error without what is none of the other's business.
func told(err error) *caisson.Error {
	e := caisson.AsError(err)
	return &caisson.Error{Code: e.Code, Message: e.Error(), Hint: e.HintText()}
}

// finish has the viewer go when it was sent everything.
func (v *viewer) finish(why end) {
	v.queue.frame(typeEnd, why, true)
	_ = v.conn.SetReadDeadline(time.Now().Add(farewell)) // else it closes, being told
}

// leave notes why the viewer goes, unless that is known.
func (v *viewer) leave(err error) {
	why := wasCut
	switch {
	case err == nil:
		why = wentAway
	case errors.Is(err, errProtocol):
		why = wasWrong
	}
	select {
	case v.why <- why:
	default:
	}
}

var errProtocol = errors.New("the viewer does not keep to the protocol")

// listen takes what the viewer sends; nil when it leaves.
func (v *viewer) listen() error {
	for {
		kind, body, err := v.in.next()
		if err != nil {
			return err
		}
		switch kind {
		case typeLeave:
			return nil
		case typeInput:
			v.typed(body)
		case typeSize:
			var size caisson.Winsize
			if err := decode(body, &size); err != nil {
				return errors.Join(errProtocol, err)
			}
			v.resized(size)
		default:
			return errProtocol
		}
	}
}

func (v *viewer) typed(keys []byte) {
	if v.ReadOnly {
		return
	}
	v.s.follow(v)
	if !v.s.in.add(keys) {
		v.queue.frame(typeNote, "the program does not read: what was typed last is lost", false)
	}
}

func (v *viewer) resized(size caisson.Winsize) {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Size = size
	if s.sizer == v || s.sizer == nil || !s.viewers[s.sizer] {
		s.followLocked(v)
	}
}

// send writes what is queued. A viewer that takes nothing is cut off.
func (v *viewer) send() {
	defer close(v.sent)
	var spare []byte
	for {
		buf := v.queue.take(spare)
		if buf == nil {
			_ = v.conn.CloseWrite() // the other may be gone
			return
		}
		for at := 0; at < len(buf); {
			next := min(at+maxBody, len(buf))
			_ = v.conn.SetWriteDeadline(time.Now().Add(v.s.opts.Stall)) // an open socket
			if _, err := v.conn.Write(buf[at:next]); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					select {
					case v.why <- wasStalled:
					default:
					}
				}
				v.queue.close()
				_ = v.conn.Close() // wakes listen
				return
			}
			at = next
		}
		spare = buf
	}
}
