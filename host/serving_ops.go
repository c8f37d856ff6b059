package host

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/internal/localsocket"
)

const (
	// askingBound bounds how long a client may take to say what it wants, and to
	// take what it is told.
	askingBound = 5 * time.Second
	// openBound bounds the opening of a sandbox, for which an engine may have to
	// bring an image first.
	openBound = 10 * time.Minute
	// haltBound bounds the end of one: what runs in it has quiescing, what is
	// brought home and the boundary have closing.
	haltBound = time.Minute
	// treeBound bounds a look at a whole workspace.
	treeBound = 2 * time.Minute
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
	files, err := receivePacket(conn, &request, streamCount) // a client of another version lends some with it
	_ = conn.SetDeadline(time.Time{})
	defer func() {
		go func() { // ends where the streams' file systems are not stuck
			for _, f := range files {
				_ = f.Close() // of a stream whose owner has it still
			}
		}()
	}()
	// One of another version may say what this one cannot read.
	if request.Version != servingVersion && (err == nil || request.Version != 0) {
		err = caisson.Errorf(caisson.CodeUnsupported, "the process that serves sandboxes is of another version of caisson").
			WithHint("End it with `kill %d`: the next command starts one of this version.", os.Getpid())
	}
	reply, client := servingReply{Done: true}, &talk{conn: conn}
	if err == nil {
		end := client.beat()
		if request.Op == opExec {
			files, err = client.lent()
		}
		if err == nil {
			reply, err = s.do(client, request, files)
		}
		end()
	}
	if reply.Done = true; err != nil {
		reply.Error, reply.Again = caisson.AsError(err), errors.Is(err, errEnding)
	}
	_ = client.say(reply) // who is gone reads it in the ledger
}

func (s *Serving) do(client *talk, request servingRequest, files []*os.File) (servingReply, error) {
	r, err := s.host.Ledger.Run(s.life, request.Run)
	if err != nil {
		return servingReply{}, err
	}
	session := request.Op == opExec || request.Op == opHold
	if !session && !client.listens() { // it was told that nothing was done
		return servingReply{}, errServingLost
	}
	// Each waits under one deadline for all of its steps. That of a session is its
	// own, once its sandbox is open.
	opening, cancel := context.WithTimeoutCause(s.life, openBound, lateError(r.ID, "open", openBound))
	defer cancel()
	// A sandbox that is being stopped is so also when this process ends.
	halting, cancel := context.WithTimeoutCause(context.WithoutCancel(s.life), haltBound, lateError(r.ID, "stopped", haltBound))
	defer cancel()
	switch {
	case request.Op == opOpen:
		return s.doOpen(opening, r, request)
	case request.Op == opYield:
		return s.doYield(halting, r, request)
	case request.Op == opStop:
		return s.doStop(halting, r)
	case session:
		return s.doSession(opening, client, r, request, files)
	default:
		return servingReply{}, caisson.Errorf(caisson.CodeUnsupported, "%q cannot be asked for", request.Op)
	}
}

// lateError says that a sandbox is not what it should be after so long.
func lateError(run caisson.RunID, what string, bound time.Duration) error {
	return caisson.Errorf(caisson.CodeDeadline, "the sandbox of run %s is not %s after %s", run, what, bound).
		WithHint("See how it stands with `caisson sandbox show %s`. If nothing happens, end process %d, which serves it, with `kill -9 %d`: the next command goes on from the record.", run, os.Getpid(), os.Getpid())
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

func (s *Serving) doStop(ctx context.Context, r caisson.Run) (servingReply, error) {
	s.mu.Lock()
	v := s.open[r.ID]
	s.mu.Unlock()
	if v != nil {
		v.halt(&caisson.CauseError{Cause: caisson.CauseUser, Text: "a person stopped it"})
		if err := v.over(ctx); err != nil {
			return servingReply{}, err
		}
	}
	return s.reply(r.ID)
}

// doSession drives a session in a served sandbox, and opens that first if it
// wants to be open, within the time of opening.
func (s *Serving) doSession(opening context.Context, client *talk, r caisson.Run, request servingRequest, files []*os.File) (servingReply, error) {
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
	if err := v.await(opening); err != nil {
		return servingReply{}, err
	}
	box, leave, err := v.enter(r.ID)
	if err != nil {
		return servingReply{}, err
	}
	defer leave()
	taken := func() { _ = client.say(servingReply{Taken: true}) } // who is gone reads it in the ledger
	// What is cancelled ends through the record, as any session does.
	ctx := context.WithoutCancel(s.life)
	if request.Op == opHold {
		r, err = s.host.Serve(ctx, r.ID, ServeOptions{Size: request.Size, Expect: request.Expect, within: box, env: request.Env, taken: taken})
		s.settle(r.ID, err)
		return servingReply{Run: &r}, err
	}
	streams, err := newStreams(files)
	if err != nil {
		return servingReply{}, err
	}
	gone := s.untilGone(client.conn, r.ID)
	told := &told{end: sync.OnceFunc(func() { s.giveUp(r.ID) })}
	r, err = s.host.Drive(ctx, r.ID, DriveOptions{
		within: box, taken: taken,
		Agent:   &agent.Options{Stdin: streams.in, Stdout: told.by(streams.out), Stderr: told.by(streams.err), Env: request.Env},
		Settled: func(context.Context, caisson.Drive) error { streams.close(); return nil },
	})
	streams.close()
	gone()
	s.settle(r.ID, err)
	return servingReply{Run: &r, Lost: told.lost()}, err
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
		s.giveUp(run)
	}()
	return func() {
		_ = conn.SetReadDeadline(time.Now())
		<-ended
	}
}

// giveUp cancels a session of whose output nobody has anything any more.
func (s *Serving) giveUp(run caisson.RunID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), closing)
	defer cancel()
	_, _ = s.host.Ledger.AskCancel(ctx, run, caisson.CauseUnknown, "caisson") // it may have ended
}
