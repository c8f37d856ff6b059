package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// maxAnswerHead bounds the head of an answer, of which there may be one on each
// connection. Browsers take as much.
const maxAnswerHead = 256 << 10

// serveHTTP serves requests one after the other; each is judged. fixed is where
// the connection goes, or nil where each request says it.
func (s *stream) serveHTTP(ctx context.Context, fixed *rule.Target) {
	for first := true; ; first = false {
		if !first {
			s.conn.hurry(s.p.o.Idle)
			if _, err := s.in.Peek(1); err != nil {
				return
			}
		}
		s.conn.hurry(s.p.o.Head)
		req, hosts, err := s.request(fixed)
		if err != nil {
			s.answerError(err, nil)
			return
		}
		if req == nil || !s.one(ctx, req, hosts, fixed) {
			return
		}
	}
}

// request reads the head of a request. Nil without an error: the connection has ended.
func (s *stream) request(fixed *rule.Target) (*http.Request, []string, error) {
	target := ""
	if fixed != nil {
		target = fixed.String()
	}
	bad := func(why error) error { return s.p.refuse(target, ReasonProtocol, why) }
	head, err := s.peekHead()
	if errors.Is(err, errLongHead) {
		return nil, nil, bad(err)
	}
	if err != nil {
		return nil, nil, nil
	}
	hosts, err := hostsIn(head)
	if err != nil {
		return nil, nil, bad(err)
	}
	before := s.in.Buffered()
	req, err := http.ReadRequest(s.in)
	if err != nil || before-s.in.Buffered() != len(head) || req.ProtoMajor != 1 || req.Method == "PRI" {
		return nil, nil, bad(errBadHead)
	}
	s.conn.calm()
	return req, hosts, nil
}

// one serves one request, and tells whether another may follow.
func (s *stream) one(ctx context.Context, req *http.Request, hosts []string, fixed *rule.Target) bool {
	if req.Method == http.MethodConnect {
		s.connectHTTP(ctx, req, hosts, fixed)
		return false
	}
	t, err := s.p.authority(req, hosts, fixed)
	var socket bool
	if err == nil {
		socket, err = s.p.upgradeOf(req, t)
	}
	var sent *outgoing
	if err == nil {
		sent, err = s.p.outgoing(req, t, socket)
	}
	if err == nil {
		_, err = s.p.admit(ctx, sent.target)
	}
	if err != nil {
		return s.answerError(err, req)
	}
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(s.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := &seenBody{ReadCloser: req.Body}
	if sent.req.Body != nil {
		sent.req.Body = body
	}
	answer, err := s.trip().RoundTrip(sent.req.WithContext(ctx))
	if err != nil {
		return s.answerError(err, req) && body.done()
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if answer.StatusCode == http.StatusSwitchingProtocols {
		s.upgraded(ctx, sent, answer)
		return false
	}
	return s.answer(sent, req, answer) && (sent.req.Body == nil || body.done())
}

// connectHTTP serves CONNECT, which names the target twice.
func (s *stream) connectHTTP(ctx context.Context, req *http.Request, hosts []string, fixed *rule.Target) {
	if fixed != nil {
		s.answerError(s.p.refuse(fixed.String(), ReasonProtocol, nil), nil)
		return
	}
	t, err := rule.ParseTarget(req.RequestURI, 0)
	if err != nil {
		s.answerError(s.p.badName(err), nil)
		return
	}
	for _, host := range hosts {
		// Some clients leave the port out here.
		if named, err := rule.ParseTarget(host, t.Port); err != nil || named != t {
			s.answerError(s.p.refuse(t.String(), ReasonHost, nil), nil)
			return
		}
	}
	err = s.connect(ctx, t, func(err error) error {
		if err != nil {
			s.answerError(err, nil)
			return nil
		}
		_, err = io.WriteString(s.conn, "HTTP/1.1 200 Connection established\r\n\r\n")
		return err
	})
	s.refusedLate(err)
}

// outgoing is a request as it is sent on.
type outgoing struct {
	req    *http.Request
	target rule.Target // with the port that is connected to
	secret []secret    // that are put in
	hide   []swap      // what must not come back
	socket bool
}

// outgoing makes the request that is sent on for one that came.
func (p *Proxy) outgoing(req *http.Request, t rule.Target, socket bool) (*outgoing, error) {
	u := *req.URL
	u.Scheme, u.Host, u.User = "http", t.String(), nil
	out := &http.Request{
		Method: req.Method, URL: &u, Host: hostHeader(t), Header: req.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: req.ContentLength,
	}
	if req.ContentLength != 0 {
		out.Body = req.Body
	}
	stripHops(out.Header)
	if out.Header.Get("User-Agent") == "" {
		out.Header["User-Agent"] = []string{""} // none is sent
	}
	o := &outgoing{req: out, target: t, socket: socket}
	if socket {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", "websocket")
	}
	return o, p.putSecrets(o)
}

// hostHeader is the host as the Host header has it.
func hostHeader(t rule.Target) string {
	if t.Port == rule.HTTP || t.Port == rule.HTTPS {
		return strings.TrimSuffix(strings.TrimSuffix(t.String(), ":80"), ":443")
	}
	return t.String()
}

// trip returns the transport of this connection's requests. It lives as long as
// the connection, so that none of its connections is used for another program.
func (s *stream) trip() *http.Transport {
	if s.transport == nil {
		s.transport = &http.Transport{
			DialContext: s.dialFor, DisableCompression: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.p.o.Roots},
			TLSHandshakeTimeout: s.p.o.Connect, MaxResponseHeaderBytes: maxAnswerHead, ResponseHeaderTimeout: s.p.o.Idle,
			MaxIdleConns: 4, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		}
	}
	return s.transport
}

// dialFor connects for a request. It judges once more: what was open when the
// request was judged may be closed now.
func (s *stream) dialFor(ctx context.Context, _, address string) (net.Conn, error) {
	t, err := rule.ParseTarget(address, 0)
	if err != nil {
		return nil, err
	}
	r, ok := s.p.find(t)
	if !ok {
		return nil, s.p.refuse(t.String(), ReasonUnlisted, nil)
	}
	conn, err := s.p.dial(ctx, t, r)
	if err != nil {
		return nil, err
	}
	leave, ok := s.p.join(t, func() { _ = conn.Close() })
	if !ok {
		_ = conn.Close()
		return nil, s.p.refuse(t.String(), ReasonUnlisted, nil)
	}
	return &counted{Conn: &patient{Conn: conn, idle: s.p.o.Idle}, p: s.p, target: t.String(), leave: sync.OnceFunc(leave)}, nil
}

// counted is a connection to the outside whose bytes are counted.
type counted struct {
	net.Conn
	p      *Proxy
	target string
	leave  func()
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.count(c.target, 0, int64(n))
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.p.count(c.target, int64(n), 0)
	return n, err
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// seenBody tells whether a body was read to its end: only then another request
// can follow it.
type seenBody struct {
	io.ReadCloser
	mu    sync.Mutex
	ended bool
}

func (b *seenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.mu.Lock()
		b.ended = true
		b.mu.Unlock()
	}
	return n, err
}

// Close leaves the rest unread: reading it could take for ever.
func (b *seenBody) Close() error { return nil }

func (b *seenBody) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// answer sends an answer back, and tells whether another request may follow.
func (s *stream) answer(sent *outgoing, req *http.Request, answer *http.Response) bool {
	stripHops(answer.Header)
	if err := s.p.hideSecrets(sent, answer); err != nil {
		return s.answerError(err, req)
	}
	answer.Trailer = nil
	answer.Request, answer.Proto, answer.ProtoMajor, answer.ProtoMinor = req, "HTTP/1.1", 1, 1
	keep := req.ProtoAtLeast(1, 1) && !req.Close
	bodiless := req.Method == http.MethodHead || answer.StatusCode == http.StatusNoContent || answer.StatusCode == http.StatusNotModified
	answer.TransferEncoding, answer.Close = nil, !keep
	if answer.ContentLength < 0 && !bodiless {
		if req.ProtoAtLeast(1, 1) {
			answer.TransferEncoding = []string{"chunked"}
		} else {
			answer.Close, keep = true, false
		}
	}
	return answer.Write(s.conn) == nil && keep
}

// upgraded carries a WebSocket.
func (s *stream) upgraded(ctx context.Context, sent *outgoing, answer *http.Response) {
	both, ok := answer.Body.(io.ReadWriteCloser)
	accepted := strings.EqualFold(answer.Header.Get("Upgrade"), "websocket")
	if !ok || !accepted || !sent.socket {
		s.answerError(s.p.refuse(sent.target.String(), ReasonProtocol, nil), nil)
		return
	}
	stripHops(answer.Header)
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	_ = answer.Header.Write(&head) // to memory
	head.WriteString("\r\n")
	if _, err := s.conn.Write(head.Bytes()); err != nil {
		return
	}
	inside := s.taken()
	defer context.AfterFunc(ctx, func() { _ = both.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() {
		defer both.Close() //nolint:errcheck // it has ended
		if _, err := both.Write(inside.lead); err == nil {
			_, _ = io.Copy(both, s.conn) // its end is the end of both
		}
	})
	_, _ = io.Copy(s.conn, both)
	_ = s.conn.Close()
	copying.Wait()
}

// answerError tells a program why its request is not carried, and whether
// another may follow.
func (s *stream) answerError(err error, req *http.Request) bool {
	status, reason := http.StatusBadGateway, ""
	text := "caisson: the host does not answer: " + plainError(err)
	if refused, ok := refusalOf(err); ok {
		status, reason = http.StatusForbidden, string(refused.Reason)
		text = "caisson: refused: " + refused.err.Message + "."
		if hint := refused.err.HintText(); hint != "" {
			text += "\n" + hint
		}
		switch {
		case errors.Is(err, errLongHead), errors.Is(err, errManyLines):
			status = http.StatusRequestHeaderFieldsTooLarge
		case errors.Is(err, errBadHead):
			status = http.StatusBadRequest
		}
	}
	text += "\n"
	keep := req != nil && req.ContentLength == 0 && req.ProtoAtLeast(1, 1) && !req.Close
	answer := http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req, Close: !keep, ContentLength: int64(len(text)),
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}, "Cache-Control": {"no-store"}},
		Body:   io.NopCloser(strings.NewReader(text)),
	}
	if reason != "" {
		answer.Header.Set("Caisson-Refused", reason)
	}
	if answer.Write(s.conn) == nil && keep {
		return true
	}
	s.linger()
	return false
}

// plainError leaves out what a program inside has no use for: addresses of the
// host's resolver and of the host itself.
func plainError(err error) string {
	var dns *net.DNSError
	var wrapped *url.Error
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s could not be looked up", strings.TrimSuffix(dns.Name, "."))
	case errors.As(err, &wrapped):
		return "the connection ended"
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	default:
		return "no connection could be made, or it ended"
	}
}
