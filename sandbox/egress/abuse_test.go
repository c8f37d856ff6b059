package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire is a server that keeps what it is sent as it came, and answers each
// request.
type wire struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (s *wire) serve(c net.Conn) {
	in := bufio.NewReader(io.TeeReader(c, s))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

func (s *wire) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.Write(b)
}

func (s *wire) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// Requests that two readers end at different places: what could be a second
// request to one of them is judged as one, or nothing passes at all.
func TestSmuggledRequests(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: evil.com\r\n\r\n"
	for name, request := range map[string]string{
		"both lengths":              "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"both lengths, turned":      "Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":               "Content-Length: 0\r\nContent-Length: 40\r\n\r\n" + hidden,
		"a list of lengths":         "Content-Length: 0, 40\r\n\r\n" + hidden,
		"a length with a sign":      "Content-Length: +0\r\n\r\n" + hidden,
		"a length below zero":       "Content-Length: -1\r\n\r\n" + hidden,
		"a length in hex":           "Content-Length: 0x0\r\n\r\n" + hidden,
		"a length with a tab":       "Content-Length:\t0\t\r\n\r\n" + hidden,
		"an unknown coding":         "Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + hidden,
		"chunked and identity":      "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"identity":                  "Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n" + hidden,
		"chunked twice":             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunked after a control":   "Transfer-Encoding: \x0bchunked\r\nContent-Length: 0\r\n\r\n" + hidden,
		"blank before the colon":    "Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a chunk's extension":       "Transfer-Encoding: chunked\r\n\r\n3;a=\"\r\n\";x\r\nabc\r\n0\r\n\r\n" + hidden,
		"an extension with LF":      "Transfer-Encoding: chunked\r\n\r\n3;\nabc\r\n0\r\n\r\n" + hidden,
		"a chunk that ends in LF":   "Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" + hidden,
		"a chunk longer than named": "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n" + hidden,
		"a huge chunk":              "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n" + hidden,
		"a trailer":                 "Transfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n0\r\nHost: evil.com\r\n\r\n" + hidden,
		"lines that end in LF":      "Content-Length: 0\n\n" + hidden,
		"a length that is a hop":    "Connection: Content-Length\r\nContent-Length: 3\r\n\r\nabc" + hidden,
		"a host that is a hop":      "Connection: Host\r\nContent-Length: 0\r\n\r\n" + hidden,
		"continue":                  "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc" + hidden,
		"continue, twice":           "Expect: 100-continue\r\nExpect: x\r\nContent-Length: 3\r\n\r\nabc" + hidden,
		"a NUL in a value":          "X: a\x00b\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a NUL in a name":           "X\x00: a\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a name that is a host":     "Host\xa0: evil.com\r\nContent-Length: 0\r\n\r\n" + hidden,
	} {
		for _, version := range []string{"1.1", "1.0"} {
			t.Run(name+" "+version, func(t *testing.T) {
				w := newWorld(t, Options{}, "site.com")
				var server wire
				w.tcp("site.com", "80", server.serve)
				w.web("evil.com", nil)
				c := w.open("site.com:80")
				c.send("POST /open HTTP/" + version + "\r\nHost: site.com\r\n" + request)
				_ = c.CloseWrite()
				_, _ = c.ended()
				<-c.done
				if seen := server.String(); strings.Contains(seen, "evil.com") || strings.Count(seen, "Host:") > strings.Count(seen, "Host: site.com\r\n") ||
					strings.Contains(seen, "Transfer-Encoding") && strings.Contains(seen, "Content-Length") {
					t.Errorf("sent on: %q", seen)
				}
				if got := w.reached(); got != "" && got != publicAddr+":80" {
					t.Errorf("connected to %q", got)
				}
			})
		}
	}
}

// URLs that two readers take for those of different hosts.
func TestURLsOfTwoHosts(t *testing.T) {
	for _, url := range []string{
		`http://site.com\@evil.com/`, "http://evil.com#@site.com/", "http://evil.com?@site.com/", "http://site.com:80@evil.com/", "http://evil.com%2f@site.com/",
		"http://evil.com\\.site.com/", "http:///evil.com/", "http:evil.com/", "http:/evil.com/", "HTTP://evil.com/", "http://site.com.evil.com/", "http://evil.com;site.com/",
		"http://site.com%00.evil.com/", "http://[site.com]/", "http://site.com:/", "http://site.com:0080/", "http://site.com:80:80/", "http://site.com%3a80/", "ftp://site.com/",
		"//site.com/", "http://site.com,evil.com/", "http://site.com\tevil.com/", "http://evil.com/http://site.com/", "*", "site.com:80", "http://",
	} {
		w := newWorld(t, Options{}, "site.com")
		w.web("site.com", nil)
		w.web("evil.com", nil)
		for _, host := range []string{"site.com", "evil.com"} {
			c := w.open("")
			c.send("GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
			_ = c.CloseWrite()
			if answer, _ := c.ended(); strings.Contains(answer, "HTTP/1.1 200") {
				t.Errorf("%q with host %s: %q", url, host, answer)
			}
		}
		if got := w.reached(); got != "" {
			t.Errorf("%q: connected to %q", url, got)
		}
	}
}

// Requests to two hosts that come in one packet are judged each by itself.
func TestPipelinedHosts(t *testing.T) {
	w := newWorld(t, Options{}, "site.com", "other.com")
	for _, name := range []string{"site.com", "other.com", "evil.com"} {
		w.web(name, nil)
	}
	c := w.open("")
	get := func(name string) string {
		return "GET http://" + name + "/" + name + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n"
	}
	c.send(get("site.com") + get("evil.com") + get("other.com") + get("evil.com") + get("site.com"))
	for i, want := range []int{200, 403, 200, 403, 200} {
		if r, body := c.answer(); r.StatusCode != want {
			t.Errorf("answer %d: %d %q", i, r.StatusCode, body)
		}
	}
}

// A greeting that comes byte by byte is judged as one that comes at once.
func TestGreetingByteByByte(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		for name, passes := range map[string]bool{"site.com": true, "evil.com": false} {
			w := newWorld(t, Options{}, "site.com")
			w.secure("site.com", "443")
			c, err := w.through(way, "site.com", "443")
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetNoDelay(true)
			got, err := tlsGet(byBytes{c.TCPConn}, name)
			if passed := err == nil && strings.Contains(got, "secret"); passed != passes {
				t.Errorf("server name %q: passed: %v (%v)", name, passed, err)
			}
		}
	})
}

type byBytes struct{ *net.TCPConn }

func (c byBytes) Write(b []byte) (int, error) {
	for i := range b {
		if n, err := c.TCPConn.Write(b[i : i+1]); err != nil {
			return i + n, err
		}
	}
	return len(b), nil
}

// A request of SOCKS that is refused is answered, also where more has come than
// was read of it.
func TestSocksRefusalArrives(t *testing.T) {
	for request, code := range map[string]byte{
		"\x05\x01\x00\x09" + strings.Repeat("x", 4000):                     8,
		"\x05\x02\x00\x03\x08site.com\x00\x07" + strings.Repeat("x", 4000): 7,
		"\x05\x01\x00\x03\x08evil.com\x00\x07" + strings.Repeat("x", 4000): 2,
	} {
		for range 20 {
			w := newWorld(t, Options{}, "site.com:7")
			c := w.open("")
			c.send("\x05\x01\x00" + request)
			if got, err := c.ended(); err != nil || len(got) != 12 || got[3] != code {
				t.Fatalf("%.12q: %q %v", request, got, err)
			}
		}
	}
}

// Programs that connect and say nothing, or hardly anything, keep no others
// out for longer than Head.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	w := newWorld(t, Options{Head: 2 * time.Second, MaxConns: 8}, "site.com")
	w.web("site.com", nil)
	w.secure("site.com", "443")
	w.web("site.com", nil)
	var silent []*client
	for i := range 8 {
		c := w.open([]string{"", "site.com:80", "site.com:443", ""}[i%4])
		if i >= 4 {
			c.send("\x05")
		}
		silent = append(silent, c)
	}
	for _, c := range silent {
		<-c.done
	}
	if s := w.status("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n"); s != 200 {
		t.Errorf("afterwards: %d", s)
	}
}

// Names at and over the bounds of DNS.
func TestNamesAtTheirBounds(t *testing.T) {
	long := strings.Repeat("a", 63)
	of253 := strings.Join([]string{long, long, long, strings.Repeat("b", 61)}, ".")
	w := newWorld(t, Options{}, of253)
	w.web(of253, nil)
	for host, status := range map[string]int{
		of253: 200, of253 + ".": 200, strings.ToUpper(of253): 200,
		of253 + "b": 403, "a" + of253: 403, "a." + of253[2:] + "a": 403, long + "a.com": 403, of253 + "..": 403, strings.Repeat("a.", 200) + "com": 403, strings.Repeat("é", 600): 403,
	} {
		if got := w.status("GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"); got != status && got != 400 || status == 200 && got != 200 {
			t.Errorf("%.80q of %d: %d, want %d", host, len(host), got, status)
		}
		if able := w.proxy.Resolvable(t.Context(), host); able != (status == 200) {
			t.Errorf("%.80q of %d: resolvable: %v", host, len(host), able)
		}
	}
}
