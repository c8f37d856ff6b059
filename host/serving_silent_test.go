package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
)

// bothEnds returns both ends of a connection, the client's first.
func bothEnds(t *testing.T) (client, server *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own", "socket")
	listener, err := localsocket.Listen(localsocket.Packets, path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = localsocket.Dial(t.Context(), localsocket.Packets, path); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// hears receives the request of a client.
func hears(t *testing.T, server *net.UnixConn) {
	t.Helper()
	var request servingRequest
	if _, err := receivePacket(server, &request, streamCount); err != nil {
		t.Error(err)
	}
}

// A process that serves and says nothing is not waited for, and is named.
func TestServingSaysNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		taken bool
		want  caisson.Code
	}{{"at all", false, caisson.CodeHolderUnknown}, {"once it was begun", true, caisson.CodeOutcomeUnknown}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, server := bothEnds(t)
			if c.taken { // it waits for who asks
				if err := (&talk{conn: server}).say(servingReply{Taken: true}); err != nil {
					t.Fatal(err)
				}
			}
			var told []string
			p := patience{before: 50 * time.Millisecond, begun: 300 * time.Millisecond, quiet: 10 * time.Millisecond, tell: func(text string) { told = append(told, text) }}
			began := time.Now()
			_, begun, err := p.exchange(t.Context(), client, servingRequest{Op: opExec, Run: "r1"}, nil, nil)
			e := caisson.AsError(err)
			if caisson.CodeOf(err) != c.want || begun != c.taken || !strings.Contains(e.Error(), "process "+strconv.Itoa(os.Getpid())) || !strings.Contains(e.HintText(), "kill -9") {
				t.Errorf("%v, %s", err, e.HintText())
			}
			// The streams of a session that has begun are its own.
			if want := "process " + strconv.Itoa(os.Getpid()) + ", which serves sandboxes, does not answer; it is waited for"; c.taken != (told == nil) || told != nil && (len(told) > 1 || told[0] != want) {
				t.Errorf("told %q", told)
			}
			if c.taken && time.Since(began) < p.begun {
				t.Errorf("it was given up after %s", time.Since(began))
			}
		})
	}
}

// The streams of a session are not lent to a process that says nothing: it would have
// them until it goes on, and who reads what the client wrote would wait until then.
func TestServingSaysNothingHasNoStreams(t *testing.T) {
	t.Parallel()
	client, _ := bothEnds(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := patience{before: 50 * time.Millisecond}
	if _, _, err := p.exchange(t.Context(), client, servingRequest{Op: opExec, Run: "r1"}, []*os.File{in, in, in}, nil); caisson.CodeOf(err) != caisson.CodeHolderUnknown {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = out.SetReadDeadline(time.Now().Add(10 * time.Second)) // a pipe
	if n, err := out.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%d, %v: what the client wrote to has another writer", n, err)
	}
}

// One that says that it lives is waited for, and has the streams.
func TestServingIsLentStreams(t *testing.T) {
	t.Parallel()
	client, server := bothEnds(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer in.Close()
	go func() {
		hears(t, server)
		to := &talk{conn: server}
		_ = to.say(servingReply{Beat: true})
		_ = to.say(servingReply{Beat: true}) // for which nothing more is lent
		files, err := to.lent()
		if err == nil && len(files) == streamCount {
			_, err = files[1].WriteString("x")
		}
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		_ = to.say(servingReply{Done: true, Run: &caisson.Run{ID: "r1", Text: fmt.Sprint(len(files), err)}})
	}()
	p := patience{before: 10 * time.Second}
	reply, _, err := p.exchange(t.Context(), client, servingRequest{Op: opExec}, []*os.File{in, in, in}, nil)
	if err != nil || reply.Run == nil || reply.Run.Text != "3 <nil>" {
		t.Fatalf("%+v, %v", reply.Run, err)
	}
	if server.SetReadDeadline(time.Now()) == nil {
		if again, err := receivePacket(server, &servingStreams{}, streamCount); err == nil || len(again) > 0 {
			t.Error("they were lent twice")
		}
	}
	_ = out.SetReadDeadline(time.Now().Add(10 * time.Second)) // a pipe
	if n, err := out.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// One that says that it lives is waited for, also for longer than one that does not.
func TestServingLives(t *testing.T) {
	t.Parallel()
	// A busy machine may keep this process from saying so in time: longer, then.
	for p := (patience{before: 150 * time.Millisecond}); ; p.before *= 2 {
		client, server := bothEnds(t)
		late := make(chan time.Duration, 1)
		go func() {
			hears(t, server)
			to := &talk{conn: server}
			said, longest := time.Now(), time.Duration(0)
			say := func(reply servingReply) {
				_ = to.say(reply) // a client that has given up does not hear it
				longest, said = max(longest, time.Since(said)), time.Now()
			}
			for begun := said; time.Since(begun) < 3*p.before; time.Sleep(p.before / 8) {
				say(servingReply{Beat: true})
			}
			say(servingReply{Done: true, Run: &caisson.Run{ID: "r1"}})
			late <- longest
		}()
		reply, _, err := p.exchange(t.Context(), client, servingRequest{}, nil, nil)
		if longest := <-late; err != nil && longest > p.before/2 && p.before < never {
			t.Logf("nothing was said for %s: %v", longest, err)
			continue
		}
		if err != nil || reply.Run == nil || reply.Run.ID != "r1" {
			t.Errorf("%+v, %v", reply, err)
		}
		return
	}
}

// Who was stopped himself while the answer came takes it.
func TestServedClientWasStopped(t *testing.T) {
	t.Parallel()
	client, server := bothEnds(t)
	if err := (&talk{conn: server}).say(servingReply{Done: true}); err != nil {
		t.Fatal(err)
	}
	p := patience{before: -time.Second} // it is over when it begins to read
	var reply servingReply
	if err := p.receive(client, &reply, false, 0, func(bool) {}); err != nil || !reply.Done {
		t.Errorf("%+v, %v", reply, err)
	}
}

// The serving process says at once that it has heard, and does nothing for a
// client that has given up.
func TestServingAfterItsClientIsGone(t *testing.T) {
	s, run := serves(t)
	if _, err := s.opened(t.Context(), run.ID, servingRequest{}); err != nil {
		t.Fatal(err)
	}
	client, server := bothEnds(t)
	request := servingRequest{Version: servingVersion, Op: opStop, Run: run.ID}
	if err := sendPacket(client, request); err != nil {
		t.Fatal(err)
	}
	if !(&talk{conn: server}).listens() {
		t.Error("one that is there is not seen")
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	s.answer(server)
	if now := s.is(t, run.ID); now.State != caisson.RunRunning {
		t.Errorf("it is %s", now.State)
	}
	client, server = bothEnds(t)
	if err := sendPacket(client, request); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() { defer close(answered); s.answer(server) }()
	var first servingReply
	if _, err := receivePacket(client, &first, 0); err != nil || !first.Beat {
		t.Errorf("%+v, %v", first, err)
	}
	<-answered
	if now := s.is(t, run.ID); now.State != caisson.RunPaused {
		t.Errorf("it is %s", now.State)
	}
}

// What does not come to its end is not waited for beyond the deadline of who asks.
func TestServedWaitsEnd(t *testing.T) {
	s, run := serves(t)
	v := newServed(run.ID, nil) // neither opens nor ends
	v.stop = func(error) {}
	s.open[run.ID] = v
	late := errors.New("late")
	for name, wait := range map[string]func(context.Context) error{
		"stop":  func(ctx context.Context) error { _, err := s.doStop(ctx, run); return err },
		"yield": func(ctx context.Context) error { _, err := s.doYield(ctx, run, servingRequest{}); return err },
		"open":  func(ctx context.Context) error { _, err := s.opened(ctx, run.ID, servingRequest{}); return err },
		"recreate": func(ctx context.Context) error {
			_, err := s.opened(ctx, run.ID, servingRequest{Recreate: true})
			return err
		},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
		if err := wait(ctx); !errors.Is(err, late) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	close(v.ready)
	v.halted = true
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
	defer cancel()
	if _, err := s.opened(ctx, run.ID, servingRequest{}); !errors.Is(err, late) {
		t.Errorf("open again: %v", err)
	}
	delete(s.open, run.ID)
}

// A client of another version is told so, also where it says what this one has
// never heard of.
func TestServingOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, said := range []string{`{"version":99,"op":"open","run":"r1"}`, `{"version":99,"op":"open","run":"r1","later":true}`, `{"version":99,"op":["open"]}`} {
		client, server := bothEnds(t)
		if _, err := client.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		(&Serving{}).answer(server)
		var reply servingReply
		if _, err := receivePacket(client, &reply, 0); err != nil || caisson.CodeOf(reply.Error) != caisson.CodeUnsupported || !strings.Contains(reply.Error.HintText(), strconv.Itoa(os.Getpid())) {
			t.Errorf("%s: %+v, %v", said, reply, err)
		}
	}
}

// One that was stopped in the middle of what was asked may do it yet, and a client
// that gives up says so.
func TestServingSaysNothingMore(t *testing.T) {
	t.Parallel()
	for op, want := range map[servingOp]string{opStop: "may do it when it goes on", opYield: "may do it when it goes on", opExec: "nothing was done"} {
		client, server := bothEnds(t)
		if err := (&talk{conn: server}).say(servingReply{Beat: true}); err != nil { // it waits for who asks
			t.Fatal(err)
		}
		p := patience{before: 50 * time.Millisecond}
		if _, _, err := p.exchange(t.Context(), client, servingRequest{Op: op, Run: "r1"}, nil, nil); caisson.CodeOf(err) != caisson.CodeHolderUnknown || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// Who has told a driver to end a run does not wait for ever for one that lives and
// records nothing, as this process, which holds the run and does no more.
func TestDriverDoesNothing(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	run, err := h.Ledger.CreateRun(t.Context(), caisson.NewRunID(), caisson.RunSpec{Argv: []caisson.Bytes{"true"}, Preset: "sandboxed"})
	if err != nil {
		t.Fatal(err)
	}
	drive, err := h.take(t.Context(), run, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithCancelCause(t.Context())
	defer enough(nil)
	noted := working(t, h, drive)
	const idle = 2500 * time.Millisecond
	h.untilSilent(ctx, run.ID, idle, enough)
	ended := time.Now()
	err = context.Cause(ctx)
	if caisson.CodeOf(err) != caisson.CodeHolderUnknown || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("the wait ended with %v", err)
	}
	idleUntil(t, h, run.ID, noted(), ended, idle)
}
