package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// maxHead bounds the head of a request, and what is looked at of a TLS greeting.
const maxHead = 64 << 10

// stream is one connection from inside.
type stream struct {
	p         *Proxy
	conn      *patient
	in        *bufio.Reader   // of conn
	transport *http.Transport // nil until a request of plain HTTP
}

func newStream(p *Proxy, conn net.Conn) *stream {
	c := &patient{Conn: conn, idle: p.o.Idle}
	return &stream{p: p, conn: c, in: bufio.NewReaderSize(c, maxHead)}
}

func (s *stream) close() {
	_ = s.conn.Close()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

// patient is a connection that ends after Idle without a byte; or, while it is
// hurried, at a moment that bytes do not move on.
type patient struct {
	net.Conn
	idle    time.Duration
	hurried atomic.Bool
}

func (c *patient) Read(b []byte) (int, error) {
	if !c.hurried.Load() {
		if err := c.SetReadDeadline(time.Now().Add(c.idle)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

func (c *patient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// hurry bounds everything that is read until calm.
func (c *patient) hurry(d time.Duration) {
	c.hurried.Store(true)
	_ = c.SetReadDeadline(time.Now().Add(d)) // of a closed connection; reading says so
}

func (c *patient) calm() { c.hurried.Store(false) }

// linger ends a connection on which the last word may still be on its way: to
// close it with something unread would take that word back.
func (s *stream) linger() {
	if closeWrite(s.conn.Conn) != nil {
		return
	}
	s.conn.hurry(lingerFor)
	_, _ = io.CopyN(io.Discard, s.conn.Conn, lingerBytes) // a request may still read s.in
}

// How much of what a program still sends is read away, and for how long.
const (
	lingerFor   = time.Second
	lingerBytes = 256 << 10
)

// taken returns the connection with what was read of it and not used. Nothing
// is read from s.in after it, and its buffer is let go of: what follows may take
// hours.
func (s *stream) taken() end {
	lead, _ := s.in.Peek(s.in.Buffered())
	out := end{conn: s.conn.Conn, lead: append([]byte(nil), lead...)}
	s.in = nil
	return out
}

// serve finds out where the connection goes and carries it.
func (s *stream) serve(ctx context.Context, target string) {
	if target == "" {
		s.serveProxy(ctx)
		return
	}
	t, err := rule.ParseTarget(target, 0)
	if err != nil {
		_ = s.p.badName(err)
		reset(s.conn.Conn)
		return
	}
	r, err := s.p.admit(ctx, t)
	if err == nil {
		err = s.through(ctx, t, r, nil)
	}
	if err != nil {
		reset(s.conn.Conn)
	}
}

// serveProxy serves a program that knows that it speaks to a proxy.
func (s *stream) serveProxy(ctx context.Context) {
	s.conn.hurry(s.p.o.Head)
	first, err := s.in.Peek(1)
	if err != nil {
		return
	}
	switch {
	case first[0] == socks5:
		s.serveSocks(ctx)
	case first[0] == socks4, first[0] == recordHandshake:
		_ = s.p.refuse("", ReasonProtocol, nil)
		reset(s.conn.Conn)
	default:
		s.serveHTTP(ctx, nil)
	}
}

func (s *stream) serveSocks(ctx context.Context) {
	open, err := socksGreeting(s.in)
	if err != nil {
		return
	}
	if !open {
		_ = s.p.refuse("", ReasonProtocol, nil)
		_, _ = s.conn.Write([]byte{socks5, socksNoMethod})
		return
	}
	if _, err := s.conn.Write([]byte{socks5, socksNoAuth}); err != nil {
		return
	}
	t, code, err := socksRequest(s.in)
	if err != nil {
		if code != 0 {
			_ = s.p.refuse("", reasonOf(code), nil)
			_, _ = s.conn.Write(socksReply(code))
		}
		return
	}
	s.conn.calm()
	err = s.connect(ctx, t, func(err error) error {
		_, written := s.conn.Write(socksReply(socksCode(err)))
		return written
	})
	s.refusedLate(err)
}

// refusedLate resets a connection that was refused after it was answered: there
// are no other words then. One that was answered with the refusal keeps it.
func (s *stream) refusedLate(err error) {
	if refused, ok := refusalOf(err); ok && refused.Reason != ReasonUnlisted && refused.Reason != ReasonAddress {
		reset(s.conn.Conn)
	}
}

func reasonOf(code byte) Reason {
	if code == socksRefused {
		return ReasonName
	}
	return ReasonProtocol
}

func socksCode(err error) byte {
	if err == nil {
		return socksOK
	}
	if _, refused := refusalOf(err); refused {
		return socksRefused
	}
	return socksNoHost
}

// connect judges a target that a program named, connects to it, answers, and
// carries. An error means that it was answered with it, or that the connection
// was refused after the answer.
func (s *stream) connect(ctx context.Context, t rule.Target, answer func(error) error) error {
	r, err := s.p.admit(ctx, t)
	var out net.Conn
	if err == nil && t.Port != rule.HTTP {
		out, err = s.p.dial(ctx, t, r)
	}
	if failed := answer(err); failed != nil || err != nil {
		if out != nil {
			_ = out.Close()
		}
		return errors.Join(err, failed)
	}
	return s.through(ctx, t, r, out)
}

// through carries what is said to an admitted target, once it is seen to be for
// it. out is the connection to it, if there is one already.
func (s *stream) through(ctx context.Context, t rule.Target, r rule.Rule, out net.Conn) error {
	switch {
	case t.Port == rule.HTTPS:
		return s.throughTLS(ctx, t, r, out)
	case t.Port == rule.HTTP || !r.Opaque:
		return s.throughHTTP(ctx, t)
	}
	if out == nil {
		var err error
		if out, err = s.p.dial(ctx, t, r); err != nil {
			return err
		}
	}
	return s.throughAny(ctx, t, r, out)
}

func (s *stream) throughTLS(ctx context.Context, t rule.Target, r rule.Rule, out net.Conn) error {
	err := s.checkHello(t)
	if err == nil && out == nil {
		out, err = s.p.dial(ctx, t, r)
	}
	if err != nil {
		if out != nil {
			_ = out.Close()
		}
		return err
	}
	s.p.tunnel(ctx, t, s.taken(), end{conn: out})
	return nil
}

// checkHello reads the TLS greeting, leaves it unread, and compares the name in
// it with the target's.
func (s *stream) checkHello(t rule.Target) error {
	s.conn.hurry(s.p.o.Head)
	defer s.conn.calm()
	for need := 1; ; {
		if need > maxHead {
			return s.p.refuse(t.String(), ReasonProtocol, errBigHello)
		}
		if _, err := s.in.Peek(need); err != nil {
			return fmt.Errorf("read TLS greeting: %w", err)
		}
		b, _ := s.in.Peek(s.in.Buffered())
		h, more, err := readHello(b)
		switch {
		case err != nil:
			return s.p.refuse(t.String(), ReasonProtocol, err)
		case more == 0:
			return s.p.checkName(t, h)
		}
		need = more
	}
}

// checkName compares the name in a TLS greeting with the target's. To an address
// none is sent, as a name is never one (RFC 6066).
func (p *Proxy) checkName(t rule.Target, h hello) error {
	if h.hidden {
		return p.refuse(t.String(), ReasonServerName, errors.New("it may hide another name"))
	}
	if h.name == "" && t.Host.Name == "" {
		return nil
	}
	named, err := rule.ParseHost(h.name)
	if err != nil || named != t.Host {
		return p.refuse(t.String(), ReasonServerName, nil)
	}
	return nil
}

func (s *stream) throughHTTP(ctx context.Context, t rule.Target) error {
	s.conn.hurry(s.p.o.Head)
	first, err := s.in.Peek(1)
	if err != nil {
		return err
	}
	if !looksHTTP(first[0]) {
		return s.p.refuse(t.String(), ReasonProtocol, nil)
	}
	s.serveHTTP(ctx, &t)
	return nil
}

// looksHTTP tells whether a program's first byte may begin a request of HTTP.
func looksHTTP(c byte) bool { return c >= 'A' && c <= 'Z' }

// throughAny carries what is spoken on a port that a rule names. Who speaks
// first says what it is: TLS and HTTP servers never do, and what their clients
// say first is judged as on their own ports.
func (s *stream) throughAny(ctx context.Context, t rule.Target, r rule.Rule, out net.Conn) error {
	lead, err := s.firstWord(out)
	if err != nil {
		_ = out.Close()
		return err
	}
	if first, _ := s.in.Peek(min(1, s.in.Buffered())); len(first) == 1 && len(lead) == 0 {
		line, err := s.firstLine()
		switch {
		case err != nil:
			_ = out.Close()
			return s.p.refuse(t.String(), ReasonProtocol, errors.New("a first line was begun and not ended"))
		case first[0] == recordHandshake:
			return s.throughTLS(ctx, t, r, out)
		case line == http2Preface && r.Scope != rule.Public:
			// Which of its names a host of the person's own is called by is theirs.
		case line != "":
			_ = out.Close() // each request finds its own way
			return s.throughHTTP(ctx, t)
		}
	}
	s.conn.calm()
	s.p.tunnel(ctx, t, s.taken(), end{conn: out, lead: lead})
	return nil
}

// firstWord waits until one of both sides has said something or has ended, and
// returns what the outside said. What the inside said is in s.in.
func (s *stream) firstWord(out net.Conn) (lead []byte, err error) {
	past := time.Unix(1, 0)
	s.conn.hurry(s.p.o.Idle)
	_ = out.SetReadDeadline(time.Now().Add(s.p.o.Idle)) // of a closed connection; reading says so
	inside := make(chan error, 1)
	go func() {
		_, err := s.in.Peek(1)
		_ = out.SetReadDeadline(past) // the outside need not be waited for any more
		inside <- err
	}()
	b := make([]byte, 4<<10)
	n, outErr := out.Read(b)
	_ = s.conn.SetReadDeadline(past)
	inErr := <-inside
	_ = s.conn.SetReadDeadline(time.Time{})
	_ = out.SetReadDeadline(time.Time{})
	s.conn.calm()
	if n > 0 || inErr == nil || errors.Is(inErr, io.EOF) || errors.Is(outErr, io.EOF) {
		return b[:n], nil
	}
	return nil, errors.Join(inErr, outErr)
}

const http2Preface = "PRI * HTTP/2.0"

// firstLine returns the first line of what has come if a server could take it
// for that of an HTTP request, else "". It waits for the rest of a line only
// where one has begun so; what does not come is an error. How a method is called
// is for programs inside to say: servers answer one that they do not know, and
// take what follows it as a request.
func (s *stream) firstLine() (string, error) {
	s.conn.hurry(s.p.o.Head)
	for n := 1; n <= maxHead; n = max(n+1, s.in.Buffered()) {
		b, err := s.in.Peek(n)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		line, _, whole := bytes.Cut(b, []byte("\n"))
		if len(line) == 0 || line[0] == '\r' {
			return "\r", nil // servers skip empty lines before a request
		}
		method, rest := line, []byte(nil)
		if i := bytes.IndexAny(line, blanks); i >= 0 {
			method, rest = line[:i], bytes.TrimLeft(line[i:], blanks)
		}
		switch {
		case !methodLike(method), !targetLike(rest):
			return "", nil
		case whole && bytes.Contains(bytes.ToUpper(rest), []byte("HTTP/")):
			return string(bytes.TrimRight(line, "\r")), nil
		case whole, err != nil:
			return "", nil
		}
	}
	return "", errLongHead
}

// blanks are what servers take for the space between the words of a request's
// first line (RFC 9112, 3).
const blanks = " \t\v\f\r"

// methodLike tells whether b may be a method or the beginning of one: it has the
// bytes of a token (RFC 9110, 5.6.2).
func methodLike(b []byte) bool {
	for _, c := range b {
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && !bytes.ContainsRune([]byte("!#$%&'*+-.^_`|~"), rune(c)) {
			return false
		}
	}
	return true
}

// targetLike tells whether b may be what follows a method, or the beginning of
// it. No server takes a NUL there.
func targetLike(b []byte) bool {
	return len(b) == 0 || b[0] > ' ' && b[0] < 0x7f && bytes.IndexByte(b, 0) < 0
}
