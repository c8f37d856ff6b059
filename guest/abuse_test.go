package guest_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/wire"
)

// liar is a guest that says what a test wants.
type liar struct {
	conn net.Conn
	in   *wire.Reader
	out  *wire.Writer
}

// newLiar returns the host's end and a guest that has read the host's hello.
func newLiar(tb testing.TB) (net.Conn, *liar, func() string) {
	tb.Helper()
	host, theirs := net.Pipe()
	l := &liar{conn: theirs, in: wire.NewReader(theirs, wire.MaxControl), out: wire.NewWriter(theirs, nil)}
	tb.Cleanup(func() { _ = theirs.Close() })
	nonce := func() string {
		var hello wire.Hello
		h, err := l.in.Next()
		if err == nil {
			var body []byte
			if body, err = l.in.Control(h); err == nil {
				err = wire.Decode(body, &hello)
			}
		}
		if err != nil {
			return ""
		}
		return hello.Nonce
	}
	return host, l, nonce
}

// connect greets a liar rightly.
func connect(tb testing.TB) (*guest.Client, *liar) {
	tb.Helper()
	return connectWith(tb, guest.Options{})
}

func connectWith(tb testing.TB, opts guest.Options) (*guest.Client, *liar) {
	tb.Helper()
	host, l, nonce := newLiar(tb)
	go func() { _ = l.out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version, Nonce: nonce()}) }()
	c, err := guest.Connect(context.Background(), host, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c, l
}

// drain reads what the host sends.
func (l *liar) drain() { _, _ = io.Copy(io.Discard, l.conn) }

func TestWrongHello(t *testing.T) {
	for name, answer := range map[string]func(l *liar, nonce string){
		"version": func(l *liar, nonce string) {
			_ = l.out.Control(wire.TypeHello, 0, &wire.Hello{Version: 99, Nonce: nonce})
		},
		"nonce": func(l *liar, _ string) { _ = l.out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version}) },
		"type":  func(l *liar, _ string) { _ = l.out.Control(wire.TypeHeld, 0, nil) },
		"stream": func(l *liar, n string) {
			_ = l.out.Control(wire.TypeHello, 1, &wire.Hello{Version: wire.Version, Nonce: n})
		},
		"half":     func(l *liar, _ string) { _, _ = l.conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, '{'}) },
		"too long": func(l *liar, _ string) { _, _ = l.conn.Write([]byte{1, 0, 0, 0, 0, 0xff, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			host, l, nonce := newLiar(t)
			go func() { answer(l, nonce()) }()
			_, err := guest.Connect(context.Background(), host, guest.Options{})
			if caisson.CodeOf(err) != caisson.CodeGuestProtocol {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		host, _, nonce := newLiar(t)
		go nonce()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := guest.Connect(ctx, host, guest.Options{}); caisson.CodeOf(err) != caisson.CodeGuestProtocol {
			t.Errorf("%v", err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		host, l, nonce := newLiar(t)
		go func() { nonce(); _ = l.conn.Close() }()
		if _, err := guest.Connect(context.Background(), host, guest.Options{}); caisson.CodeOf(err) != caisson.CodeSandboxLost {
			t.Errorf("%v", err)
		}
	})
}

// packed is the body of a frame.
func packed(v pack.Value) string { return string(pack.Bytes(v)) }

// raw is a frame as bytes.
func raw(t wire.Type, stream uint32, body string) []byte {
	b := make([]byte, wire.HeaderSize)
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], stream)
	binary.BigEndian.PutUint32(b[5:], uint32(len(body))) //nolint:gosec // short
	return append(b, body...)
}

func TestBreachesEndTheGuest(t *testing.T) {
	held := string(raw(wire.TypeHeld, 1, packed(&wire.Held{Holder: 2, PID: 3})))
	window := string(raw(wire.TypeOut, 1, string(make([]byte, wire.MaxData))))
	for name, frames := range map[string]string{
		"unknown stream":     string(raw(wire.TypeOut, 9, "x")),
		"hello again":        string(raw(wire.TypeHello, 0, "")),
		"held twice":         held + held,
		"ended unheld":       string(raw(wire.TypeEnded, 1, "")),
		"ended twice":        held + string(raw(wire.TypeEnded, 1, "")) + string(raw(wire.TypeEnded, 1, "")),
		"closed unended":     held + string(raw(wire.TypeClosed, 1, "")),
		"failed after held":  held + string(raw(wire.TypeFailed, 1, packed(&wire.Failed{Code: "not-found"}))),
		"no such code":       string(raw(wire.TypeFailed, 1, packed(&wire.Failed{Code: "made-up"}))),
		"cancelled by whom":  string(raw(wire.TypeFailed, 1, packed(&wire.Failed{Code: "cancelled"}))),
		"deadline of whom":   string(raw(wire.TypeFailed, 1, packed(&wire.Failed{Code: "deadline"}))),
		"its own refusal":    string(raw(wire.TypeFailed, 1, packed(&wire.Failed{Code: "network-refused"}))),
		"held is half":       string(raw(wire.TypeHeld, 1, "\x02")),
		"status 1000":        held + string(raw(wire.TypeEnded, 1, packed(&wire.Ended{Code: 1000}))),
		"negative usage":     held + string(raw(wire.TypeEnded, 1, packed(&wire.Ended{CPU: -1}))),
		"not asked for":      held + string(raw(wire.TypeErr, 1, "x")),
		"empty output":       held + string(raw(wire.TypeOut, 1, "")),
		"done for a command": held + string(raw(wire.TypeDone, 1, "")),
		"credit unsent":      held + string(raw(wire.TypeCredit, 1, "\x20\x00\x00\x00\x01")),
		"credit of another":  held + string(raw(wire.TypeCredit, 1, "\x21\x00\x00\x00\x01")),
		"over the window":    held + window + window + window + window + window,
		"a long frame":       held + "\x21\x00\x00\x00\x01\x7f\xff\xff\xff",
		"a long control":     "\x10\x00\x00\x00\x01\x00\x10\x00\x00",
		"type 0":             "\x00\x00\x00\x00\x01\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			c, l := connect(t)
			go func() {
				for h, err := l.in.Next(); err == nil && h.Type != wire.TypeHold; h, err = l.in.Next() {
					_ = l.in.Skip(h.Length)
				}
				go l.drain()
				_, _ = l.conn.Write([]byte(frames))
			}()
			w := &blocked{free: make(chan struct{}), began: make(chan struct{}, 1)}
			defer close(w.free) // not before: what is taken may be sent anew
			p, err := c.Hold(context.Background(), caisson.Command{Line: "x", Stdout: w})
			if err == nil {
				_ = p.Release()
				p.Stop(caisson.CauseUser) // does not wait for the output then
				_, err = p.Wait(context.Background())
			}
			<-c.Done()
			if code := caisson.CodeOf(c.Err()); code != caisson.CodeGuestProtocol {
				t.Errorf("the guest ended with %q: %v (the command with %v)", code, c.Err(), err)
			}
		})
	}
}

// A list of more than was asked for is not read: what is short as bytes is much
// as values.
func TestListsAreBounded(t *testing.T) {
	for name, ask := range map[string]func(*guest.Client) error{
		"glob": func(c *guest.Client) error { _, err := c.Files().Glob(t.Context(), ".", "*", 10); return err },
		"grep": func(c *guest.Client) error {
			_, err := c.Files().Grep(t.Context(), caisson.GrepQuery{Dir: ".", Pattern: "x", Limit: 2, Context: 2})
			return err
		},
	} {
		for n, want := range map[int]caisson.Code{10: "", 11: caisson.CodeGuestProtocol} {
			c, l := connect(t)
			one := map[string]string{"glob": `""`, "grep": `{}`}[name]
			go func() {
				for h, err := l.in.Next(); err == nil && h.Type != wire.TypeFile; h, err = l.in.Next() {
					_ = l.in.Skip(h.Length)
				}
				go l.drain()
				_, _ = l.conn.Write(append(raw(wire.TypeOut, 1, "["+strings.Repeat(one+",", n-1)+one+"]"), raw(wire.TypeDone, 1, "")...))
			}()
			if err := ask(c); caisson.CodeOf(err) != want {
				t.Errorf("%s with %d: %v, want %q", name, n, err, want)
			}
		}
	}
}

// A guest that sends output for a command that was never released, to a writer
// that takes nothing: a stop ends the wait all the same.
func TestStopEndsWhatWasNotReleased(t *testing.T) {
	c, l := connect(t)
	go func() {
		for h, err := l.in.Next(); err == nil && h.Type != wire.TypeHold; h, err = l.in.Next() {
			_ = l.in.Skip(h.Length)
		}
		go l.drain()
		_, _ = l.conn.Write(append(raw(wire.TypeHeld, 1, packed(&wire.Held{Holder: 2, PID: 3})), raw(wire.TypeOut, 1, "x")...))
	}()
	w := &blocked{free: make(chan struct{}), began: make(chan struct{}, 1)}
	defer close(w.free)
	p, err := c.Hold(context.Background(), caisson.Command{Line: "x", Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	<-w.began
	p.Stop(caisson.CauseUser)
	if _, err := p.Wait(context.Background()); caisson.CodeOf(err) != caisson.CodeNotExecuted {
		t.Errorf("%v", err)
	}
	if err := p.Release(); caisson.CodeOf(err) != caisson.CodeNotExecuted {
		t.Errorf("released: %v", err)
	}
}

func TestAGuestThatDoesNotReadIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the bound")
	}
	c, _ := connect(t)
	_, err := c.Hold(context.Background(), caisson.Command{Line: "x"})
	if err == nil {
		t.Fatal("held by a guest that does not read")
	}
	<-c.Done()
	if caisson.CodeOf(c.Err()) != caisson.CodeGuestProtocol {
		t.Errorf("%v", c.Err())
	}
}

func TestAGuestThatDoesNotEndACommandIsCutOff(t *testing.T) {
	c, l := connect(t)
	go func() {
		for h, err := l.in.Next(); err == nil; h, err = l.in.Next() {
			_ = l.in.Skip(h.Length)
			if h.Type == wire.TypeHold {
				_ = l.out.Control(wire.TypeHeld, h.Stream, &wire.Held{Holder: 2, PID: 3})
			}
		}
	}()
	p, err := c.Hold(context.Background(), caisson.Command{Line: "x", Grace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	p.Stop(caisson.CauseUser)
	exit, err := p.Wait(context.Background())
	if caisson.CodeOf(err) != caisson.CodeGuestProtocol || exit.Cause != caisson.CauseUser {
		t.Errorf("%+v, %v", exit, err)
	}
}

// FuzzFrames lets a guest say anything after its hello: the host neither panics
// nor hangs, and keeps what it holds within its bounds.
func FuzzFrames(f *testing.F) {
	f.Add(raw(wire.TypeHeld, 1, packed(&wire.Held{Holder: 2, PID: 3})))
	f.Add(append(raw(wire.TypeHeld, 1, packed(&wire.Held{Holder: 2, PID: 3})), raw(wire.TypeEnded, 1, packed(&wire.Ended{Code: 3, Closed: true}))...))
	f.Add(append(raw(wire.TypeOut, 2, "[]"), raw(wire.TypeDone, 2, packed(&wire.Done{Total: 1}))...))
	f.Add(append(raw(wire.TypeFailed, 1, packed(&wire.Failed{Code: "not-found", Message: "m"})), raw(wire.TypeFailed, 2, packed(&wire.Failed{Code: "x"}))...))
	f.Fuzz(func(t *testing.T, frames []byte) {
		c, l := connect(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p, err := c.Hold(context.Background(), caisson.Command{Line: "x", Stdout: io.Discard})
			if err != nil {
				return
			}
			_ = p.Release()
			_, _ = p.Wait(context.Background())
		}()
		files := make(chan struct{})
		go func() {
			defer close(files)
			_, _ = c.Files().Glob(context.Background(), "", "*", 0)
		}()
		go l.drain()
		_, _ = l.conn.Write(frames)
		_ = l.conn.Close()
		<-c.Done()
		<-done
		<-files
	})
}
