package host

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/internal/localsocket"
)

const (
	// asking bounds how long a client may take to say what it wants.
	askingBound = 5 * time.Second
	// maxAsks keeps a runaway script from using up this process's descriptors.
	maxServed = 512
)

// accept takes connections until the listener is closed.
func (s *Serving) accept() {
	places := make(chan struct{}, maxServed)
	for {
		conn, err := s.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for one
			select {
			case <-s.life.Done():
			case <-time.After(lookPause):
			}
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close() // nothing was promised to it
			continue
		}
		s.mu.Lock()
		s.asking++
		s.mu.Unlock()
		s.answered.Go(func() { // ends with what it asks for, which the end of life ends
			s.answer(conn)
			_ = conn.Close() // all was sent, or its other end is gone
			<-places
			s.mu.Lock()
			s.asking--
			s.mu.Unlock()
			s.wake()
		})
	}
}

// answer serves one connection.
func (s *Serving) answer(conn *net.UnixConn) {
	if _, err := localsocket.Peer(conn); err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(askingBound)) // an open socket
	var request servingRequest
	files, err := receivePacket(conn, &request, streamCount)
	_ = conn.SetDeadline(time.Time{})
	defer func() {
		go func() { // ends where the streams' file systems are not stuck
			for _, f := range files {
				_ = f.Close() // of a stream whose owner has it still
			}
		}()
	}()
	if err == nil && request.Version != servingVersion {
		err = caisson.Errorf(caisson.CodeUnsupported, "the process that serves sandboxes is of another version of caisson").
			WithHint("End it with SIGTERM: the next command starts one of this version.")
	}
	reply := servingReply{Done: true}
	if err == nil {
		reply, err = s.do(conn, request, files)
	}
	if reply.Done = true; err != nil {
		reply.Error, reply.Again = caisson.AsError(err), errors.Is(err, errEnding)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(askingBound))
	_ = sendPacket(conn, reply) // who is gone reads it in the ledger
}

func (s *Serving) do(conn *net.UnixConn, request servingRequest, files []*os.File) (servingReply, error) {
	r, err := s.host.Ledger.Run(s.life, request.Run)
	if err != nil {
		return servingReply{}, err
	}
	switch request.Op {
	case opOpen:
		return s.doOpen(r, request)
	case opYield:
		return s.doYield(r, request)
	case opStop:
		return s.doStop(r)
	case opExec, opHold:
		return s.doSession(conn, r, request, files)
	default:
		return servingReply{}, caisson.Errorf(caisson.CodeUnsupported, "%q cannot be asked for", request.Op)
	}
}

func servedOnly(r caisson.Run) error {
	if !isServed(r) || r.State.Terminal() {
		return caisson.Errorf(caisson.CodeStateInvalid, "run %s is no sandbox that can be kept open", r.ID)
	}
	return nil
}

func (s *Serving) reply(run caisson.RunID) (servingReply, error) {
	r, err := s.host.Ledger.Run(context.WithoutCancel(s.life), run)
	return servingReply{Run: &r}, err
}

func (s *Serving) doStop(r caisson.Run) (servingReply, error) {
	s.mu.Lock()
	v := s.open[r.ID]
	s.mu.Unlock()
	if v != nil {
		v.halt(&caisson.CauseError{Cause: caisson.CauseUser, Text: "a person stopped it"})
		<-v.done
		if v.err != nil {
			return servingReply{}, v.err
		}
	}
	return s.reply(r.ID)
}

// doSession drives a session in a served sandbox, and opens that first if it
// wants to be open.
func (s *Serving) doSession(conn *net.UnixConn, r caisson.Run, request servingRequest, files []*os.File) (servingReply, error) {
	parent, guest, err := s.host.isGuest(s.life, r)
	if err == nil && !guest {
		err = caisson.Errorf(caisson.CodeStateInvalid, "run %s is no session in a sandbox that is kept open", r.ID)
	}
	if err == nil && parent.State == caisson.RunPaused {
		err = stoppedError(parent.ID)
	}
	if err != nil {
		return servingReply{}, err
	}
	v := s.takeWanted(parent)
	if err := v.await(s.life); err != nil {
		return servingReply{}, err
	}
	box, leave, err := v.enter(r.ID)
	if err != nil {
		return servingReply{}, err
	}
	defer leave()
	taken := func() { _ = sendPacket(conn, servingReply{Taken: true}) } // who is gone reads it in the ledger
	// What is cancelled ends through the record, as any session does.
	ctx := context.WithoutCancel(s.life)
	if request.Op == opHold {
		r, err = s.host.Serve(ctx, r.ID, ServeOptions{Size: request.Size, Expect: request.Expect, within: box, env: request.Env, taken: taken})
		return servingReply{Run: &r}, err
	}
	streams, err := newStreams(files)
	if err != nil {
		return servingReply{}, err
	}
	gone := s.untilGone(conn, r.ID)
	r, err = s.host.Drive(ctx, r.ID, DriveOptions{
		within: box, taken: taken,
		Agent:   &agent.Options{Stdin: streams.in, Stdout: streams.out, Stderr: streams.err, Env: request.Env},
		Settled: func(context.Context, caisson.Drive) error { streams.close(); return nil },
	})
	streams.close()
	gone()
	return servingReply{Run: &r}, err
}

// untilGone cancels a session whose client goes away: its streams are gone with
// it. The returned function ends the watch.
func (s *Serving) untilGone(conn *net.UnixConn, run caisson.RunID) (end func()) {
	ended := make(chan struct{})
	go func() { // ends with the read, which the deadline below ends
		defer close(ended)
		_, err := conn.Read(make([]byte, 1))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), closing)
		defer cancel()
		_, _ = s.host.Ledger.AskCancel(ctx, run, caisson.CauseUnknown, "caisson") // it may have ended
	}()
	return func() {
		_ = conn.SetReadDeadline(time.Now())
		<-ended
	}
}
