package egress

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

var (
	errLongHead  = errors.New("the request's head is longer than 64 KiB")
	errManyLines = fmt.Errorf("the request's head has more than %d lines", maxLines)
	errBadHead   = errors.New("the request's head is not well formed")
)

// maxLines bounds the lines of a request's head: what is kept of each takes many
// times the memory of a short one, and a program inside may have a request wait
// on each of its connections.
const maxLines = 256

// peekHead waits for the whole head of a request and returns it unread.
func (s *stream) peekHead() ([]byte, error) {
	for seen := 0; ; {
		b, _ := s.in.Peek(s.in.Buffered())
		if i := headEnd(b, max(seen-3, 0)); i > 0 {
			return b[:i], nil
		}
		if seen = len(b); seen >= maxHead {
			return nil, errLongHead
		}
		if _, err := s.in.Peek(seen + 1); err != nil {
			return nil, err
		}
	}
}

// headEnd returns where a head ends, or 0. Lines end with LF, a CR before it or
// not, as those who read it next take them.
func headEnd(b []byte, from int) int {
	for i := from; i < len(b); i++ {
		if b[i] != '\n' {
			continue
		}
		switch rest := b[i+1:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return i + 2
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return i + 3
		}
	}
	return 0
}

// hostsIn returns the values of the Host headers in a head. It refuses what two
// readers could read differently: lines that go on, CR alone, blanks before the
// colon. net/http drops the header where the request line names a host, so that
// it has to be read here.
func hostsIn(head []byte) ([]string, error) {
	if bytes.Count(head, []byte("\n")) > maxLines {
		return nil, errManyLines
	}
	lines := strings.Split(strings.TrimRight(string(head), "\r\n"), "\n")
	var hosts []string
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		if strings.ContainsAny(line, "\r\x00") || line == "" {
			return nil, errBadHead
		}
		if i == 0 {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, errBadHead
		}
		if strings.EqualFold(name, "host") {
			hosts = append(hosts, strings.Trim(value, " \t"))
		}
	}
	return hosts, nil
}

// authority is the target of a request of plain HTTP, with what its head names
// compared. fixed is where the connection goes, or nil where the program speaks
// to the proxy and each request says it.
func (p *Proxy) authority(req *http.Request, hosts []string, fixed *rule.Target) (rule.Target, error) {
	u := req.URL
	absolute := u.Scheme != "" || u.Host != ""
	var t rule.Target
	switch {
	case fixed == nil && (!absolute || u.Scheme != "http"):
		return t, p.refuse("", ReasonProtocol, errors.New("a request to the proxy has the whole URL, beginning with http://; for https the client uses CONNECT"))
	case u.User != nil || u.Opaque != "":
		return t, p.badName(nil)
	case fixed != nil:
		t = *fixed
	}
	if absolute {
		named, err := rule.ParseTarget(u.Host, rule.HTTP)
		if err != nil {
			return t, p.badName(err)
		}
		if fixed != nil && (named != t || u.Scheme != "http") {
			return t, p.refuse(t.String(), ReasonHost, nil)
		}
		t = named
	}
	// HTTP/1.0 has no Host: what it asks for is where it goes.
	if len(hosts) > 1 || len(hosts) == 0 && req.ProtoAtLeast(1, 1) {
		return t, p.refuse(t.String(), ReasonHost, nil)
	}
	for _, host := range hosts {
		if named, err := rule.ParseTarget(host, rule.HTTP); err != nil || named != t {
			return t, p.refuse(t.String(), ReasonHost, nil)
		}
	}
	return t, nil
}

// upgradeOf returns whether a request asks to go on as WebSocket. Any other
// upgrade is refused: what is said after it could not be judged.
func (p *Proxy) upgradeOf(req *http.Request, t rule.Target) (bool, error) {
	asked := req.Header.Values("Upgrade")
	if len(asked) == 0 && len(req.Header.Values("Http2-Settings")) == 0 {
		return false, nil
	}
	if len(asked) == 1 && strings.EqualFold(asked[0], "websocket") && req.Method == http.MethodGet && req.ContentLength == 0 &&
		len(req.Header.Values("Http2-Settings")) == 0 {
		return true, nil
	}
	return false, p.refuse(t.String(), ReasonProtocol, errors.New("that upgrade is not carried"))
}

// stripHops removes what is of one connection alone (RFC 9110, 7.6.1).
func stripHops(h http.Header) {
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect",
	} {
		h.Del(name)
	}
}
