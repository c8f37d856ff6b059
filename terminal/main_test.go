package terminal

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
	"go.uber.org/goleak"
)

// dialVariable has the test program be a stranger who tries to get in.
const dialVariable = "CAISSON_TEST_DIAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(dialVariable); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			fmt.Println("no connection:", err)
			os.Exit(0)
		}
		_, _ = conn.Write(appendJSON(nil, typeHello, hello{Version: version}))
		f := frames{from: conn}
		kind, body, err := f.next()
		fmt.Printf("%c %s %v\n", kind, body, err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var size = caisson.Winsize{Rows: 24, Cols: 80}

// open starts a server that ends with the test.
func open(t testing.TB, opts Options) *Server {
	t.Helper()
	if opts.Path == "" {
		opts.Path = filepath.Join(t.TempDir(), "terminals", "one")
	}
	if opts.Size.Rows == 0 {
		opts.Size = size
	}
	s := New(opts)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }() // ended in the clean-up
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(opts.Path); err == nil {
			t.Error("the socket is left")
		}
	})
	return s
}

// raw is a viewer that does what the test says.
type raw struct {
	t testing.TB
	*net.UnixConn
	in frames
}

func enter(t testing.TB, s *Server, h hello) *raw {
	t.Helper()
	r := dialRaw(t, s)
	h.Version = version
	r.send(appendJSON(nil, typeHello, h))
	r.want(typeWelcome)
	return r
}

func dialRaw(t testing.TB, s *Server) *raw {
	t.Helper()
	conn, err := localsocket.Dial(t.Context(), localsocket.Stream, s.opts.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return &raw{t: t, UnixConn: conn, in: frames{from: conn}}
}

func (r *raw) send(p []byte) {
	r.t.Helper()
	if _, err := r.Write(p); err != nil {
		r.t.Fatal(err)
	}
}

// want reads the next frame, which must be of the kind.
func (r *raw) want(kind byte) []byte {
	r.t.Helper()
	got, body, err := r.in.next()
	if err != nil || got != kind {
		r.t.Fatalf("frame %q %q, %v; want %q", got, body, err, kind)
	}
	return body
}

// shown reads output until text has been shown.
func (r *raw) shown(text string) string {
	r.t.Helper()
	var all []byte
	for {
		kind, body, err := r.in.next()
		if err != nil {
			r.t.Fatalf("%q was not shown: %v", text, err)
		}
		if kind != typeOutput {
			continue
		}
		all = append(all, body...)
		if n := len(all); n >= len(text) && string(all[n-len(text):]) == text {
			return string(all)
		}
	}
}

func write(t testing.TB, s *Server, text string) {
	t.Helper()
	if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
}
