package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

func TestPlainHTTP(t *testing.T) {
	w := newWorld(t, Options{}, "site.com")
	w.web("site.com", nil)
	c := w.open("")
	for i := range 3 {
		c.send(fmt.Sprintf("POST http://SITE.com./path?%d HTTP/1.1\r\nHost: site.com:80\r\nContent-Length: 4\r\nProxy-Authorization: x\r\nConnection: X-Drop\r\nX-Drop: 1\r\n\r\nbody", i))
		r, body := c.answer()
		if want := fmt.Sprintf("POST /path?%d body", i); r.StatusCode != 200 || body != want || r.Header.Get("Seen-Host") != "site.com" {
			t.Fatalf("%d %q %v", r.StatusCode, body, r.Header)
		}
	}
	c.send("GET http://other.com/ HTTP/1.1\r\nHost: other.com\r\n\r\n")
	r, body := c.answer()
	if r.StatusCode != 403 || r.Header.Get("Caisson-Refused") != "unlisted" || !strings.Contains(body, `add "other.com" to `) || !strings.Contains(body, "site.com") {
		t.Errorf("another host on the same connection: %d %q", r.StatusCode, body)
	}
	c.send("GET http://site.com/again HTTP/1.1\r\nHost: site.com\r\n\r\n")
	if r, body := c.answer(); r.StatusCode != 200 || body != "GET /again " {
		t.Errorf("after a refusal: %d %q", r.StatusCode, body)
	}
	if got := w.reached(); got != publicAddr+":80" {
		t.Errorf("connected to %q", got)
	}
	for _, count := range w.proxy.Counts() {
		switch count.Target {
		case "site.com:80":
			if count.Connections != 1 || count.Up == 0 || count.Down == 0 || count.Refused != nil {
				t.Errorf("%+v", count)
			}
		case "other.com:80":
			if count.Connections != 0 || count.Refused[ReasonUnlisted] != 1 {
				t.Errorf("%+v", count)
			}
		default:
			t.Errorf("counted: %+v", count)
		}
	}
}

func TestHopsAreStripped(t *testing.T) {
	w := newWorld(t, Options{}, "site.com")
	w.web("site.com", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Connection", "X-Hop")
		rw.Header().Set("X-Hop", "1")
		rw.Header().Set("Proxy-Authenticate", "1")
		_ = r.Header.Write(rw)
	})
	c := w.open("site.com:80")
	c.send("GET / HTTP/1.1\r\nHost: site.com\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTE: trailers\r\nX-Kept: 1\r\n\r\n")
	r, body := c.answer()
	if strings.Contains(body, "Secret") || strings.Contains(body, "Keep-Alive") || strings.Contains(body, "Proxy") || strings.Contains(body, "Te:") || !strings.Contains(body, "X-Kept") {
		t.Errorf("sent on: %q", body)
	}
	if r.Header.Get("X-Hop") != "" || r.Header.Get("Proxy-Authenticate") != "" {
		t.Errorf("sent back: %v", r.Header)
	}
}

// TestCase_S23 covers a Host header of another site, and an upgrade to HTTP/2
// without TLS (reported of another sandbox's proxy).
func TestCase_S23(t *testing.T) {
	head := "\r\nUser-Agent: x\r\n"
	for _, c := range []struct{ name, target, request string }{
		{"host of another site", "", "GET http://site.com/ HTTP/1.1\r\nHost: evil.com" + head},
		{"host of another site, transparent", "site.com:80", "GET / HTTP/1.1\r\nHost: evil.com" + head},
		{"url of another site, transparent", "site.com:80", "GET http://evil.com/ HTTP/1.1\r\nHost: evil.com" + head},
		{"url and host differ, transparent", "site.com:80", "GET http://evil.com/ HTTP/1.1\r\nHost: site.com" + head},
		{"other port", "", "GET http://site.com/ HTTP/1.1\r\nHost: site.com:8080" + head},
		{"two hosts", "", "GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\nhost: site.com" + head},
		{"two hosts, transparent", "site.com:80", "GET / HTTP/1.1\r\nHost: site.com\r\nHOST: evil.com" + head},
		{"no host", "site.com:80", "GET / HTTP/1.1\r\nX: y" + head},
		{"empty host", "site.com:80", "GET / HTTP/1.1\r\nHost:" + head},
		{"folded", "site.com:80", "GET / HTTP/1.1\r\nX: y\r\n Host: evil.com\r\nHost: site.com" + head},
		{"folded host", "site.com:80", "GET / HTTP/1.1\r\nHost:\r\n evil.com" + head},
		{"blank before the colon", "site.com:80", "GET / HTTP/1.1\r\nHost: site.com\r\nHost : evil.com" + head},
		{"carriage return alone", "site.com:80", "GET / HTTP/1.1\r\nHost: site.com\r\nX: y\rHost: evil.com" + head},
		{"user name", "", "GET http://site.com@evil.com/ HTTP/1.1\r\nHost: evil.com" + head},
		{"user name of the site", "", "GET http://evil.com@site.com/ HTTP/1.1\r\nHost: site.com" + head},
		{"h2c", "", "GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__" + head},
		{"h2c, transparent", "site.com:80", "GET / HTTP/1.1\r\nHost: site.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__" + head},
		{"h2c beside websocket", "", "GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c" + head},
		{"another upgrade", "", "GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2" + head},
		{"http 2 at once", "site.com:80", "PRI * HTTP/2.0\r\n\r\nSM\r\n"},
		{"https without CONNECT", "", "GET https://site.com/ HTTP/1.1\r\nHost: site.com" + head},
		{"no url", "", "GET / HTTP/1.1\r\nHost: site.com" + head},
		{"connect in a connection", "site.com:80", "CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443" + head},
		{"connect with another host", "", "CONNECT site.com:443 HTTP/1.1\r\nHost: evil.com:443" + head},
		{"not http", "site.com:80", "\x00\x01\x02" + head},
		{"unlisted port", "", "GET http://site.com:8080/ HTTP/1.1\r\nHost: site.com:8080" + head},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Options{}, "site.com")
			w.web("site.com", nil)
			w.web("evil.com", nil)
			in := w.open(c.target)
			in.send(c.request + "\r\n")
			_ = in.CloseWrite()
			answer, _ := in.ended()
			if strings.Contains(answer, " 200 ") || strings.Contains(answer, " 101 ") {
				t.Errorf("it passed: %q", answer)
			}
			if got := w.reached(); got != "" {
				t.Errorf("connected to %q", got)
			}
			w.refusal()
		})
	}
}

func TestWebSocket(t *testing.T) {
	w := newWorld(t, Options{}, "site.com", "deaf.com")
	w.web("site.com", func(rw http.ResponseWriter, r *http.Request) {
		c, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Accept: "+r.Header.Get("Sec-Websocket-Key")+"\r\n\r\n")
		_, _ = io.Copy(c, buffered)
	})
	c := w.open("")
	c.send("GET http://site.com/ws HTTP/1.1\r\nHost: site.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nearly")
	r, err := http.ReadResponse(c.in, nil)
	if err != nil || r.StatusCode != 101 || r.Header.Get("Sec-Websocket-Accept") != "k" {
		t.Fatalf("%+v %v", r, err)
	}
	if got := c.read(5); got != "early" {
		t.Errorf("came back: %q", got)
	}
	c.send("later")
	if got := c.read(5); got != "later" {
		t.Errorf("came back: %q", got)
	}
}

func TestAnswersOfAllShapes(t *testing.T) {
	w := newWorld(t, Options{}, "site.com")
	big := strings.Repeat("x", 300_000)
	w.web("site.com", func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
			rw.WriteHeader(204)
		case "/stream":
			for range 3 {
				_, _ = io.WriteString(rw, "piece ")
				_ = http.NewResponseController(rw).Flush()
			}
		case "/early": // answers before the body has come
			rw.WriteHeader(413)
		default:
			rw.Header().Set("Content-Length", fmt.Sprint(len(big)))
			_, _ = io.WriteString(rw, big)
		}
	})
	c := w.open("site.com:80")
	get := func(request string) (int, string) {
		c.send(request)
		r, body := c.answer()
		return r.StatusCode, body
	}
	if status, body := get("GET /big HTTP/1.1\r\nHost: site.com\r\n\r\n"); status != 200 || body != big {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	if status, body := get("GET /empty HTTP/1.1\r\nHost: site.com\r\n\r\n"); status != 204 || body != "" {
		t.Errorf("%d %q", status, body)
	}
	if status, body := get("GET /stream HTTP/1.1\r\nHost: site.com\r\n\r\n"); status != 200 || body != "piece piece piece " {
		t.Errorf("%d %q", status, body)
	}
	if status, body := get("POST /echo HTTP/1.1\r\nHost: site.com\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n"); status != 100 {
		t.Errorf("%d %q", status, body)
	}
	if r, body := c.answer(); r.StatusCode != 200 || body != big {
		t.Errorf("%d, %d bytes", r.StatusCode, len(body))
	}
	if status, _ := get("POST /early HTTP/1.1\r\nHost: site.com\r\nContent-Length: 100000000\r\n\r\n"); status != 413 {
		t.Errorf("%d", status)
	}
	if _, err := c.ended(); err != nil {
		t.Errorf("after an early answer: %v", err)
	}
	old := w.open("site.com:80")
	old.send("GET /stream HTTP/1.0\r\nHost: site.com\r\n\r\n")
	if all, err := old.ended(); err != nil || !strings.HasSuffix(all, "\r\n\r\npiece piece piece ") {
		t.Errorf("HTTP/1.0: %q %v", all, err)
	}
}

func TestUnknownHosts(t *testing.T) {
	var asked []string
	w := newWorld(t, Options{Unknown: func(_ context.Context, target rule.Target) error {
		asked = append(asked, target.String())
		if target.Host.Name == "good.com" {
			return nil
		}
		return errors.New("a person said no")
	}})
	w.web("good.com", nil)
	w.web("bad.com", nil)
	if s := w.status("GET http://good.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n"); s != 200 {
		t.Errorf("an approved host: %d", s)
	}
	if s := w.status("GET http://good.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n"); s != 200 {
		t.Errorf("an approved host, again: %d", s)
	}
	c := w.open("")
	c.send("GET http://bad.com/ HTTP/1.1\r\nHost: bad.com\r\n\r\n")
	if r, body := c.answer(); r.StatusCode != 403 || !strings.Contains(body, "a person said no") {
		t.Errorf("a rejected host: %d %q", r.StatusCode, body)
	}
	for _, never := range []string{"127.0.0.1", "localhost", "[::1]", "169.254.169.254", "x.localhost"} {
		if s := w.status("GET http://" + never + "/ HTTP/1.1\r\nHost: " + never + "\r\n\r\n"); s != 403 {
			t.Errorf("%s: %d", never, s)
		}
	}
	if got := strings.Join(asked, " "); got != "good.com:80 bad.com:80" {
		t.Errorf("asked about %q", got)
	}
	// An approved name is of the internet, whatever it is said to be.
	w.names["good.com"] = []string{"127.0.0.1", "10.0.0.1"}
	if s := w.status("GET http://good.com/ HTTP/1.1\r\nHost: good.com\r\n\r\n"); s != 403 {
		t.Errorf("an approved host with an address of this machine: %d", s)
	}
}

func TestUpdateEndsConnections(t *testing.T) {
	w := newWorld(t, Options{}, "a.com:7", "b.com:7")
	w.echo("a.com", "7")
	w.echo("b.com", "7")
	a, b := w.open("a.com:7"), w.open("b.com:7")
	for _, c := range []*client{a, b} {
		c.send("hello\n")
		c.read(6)
	}
	w.proxy.Update([]rule.Rule{must(rule.Parse("b.com:7")), must(rule.Parse("c.com"))}, nil)
	<-a.done
	if rest, _ := a.ended(); rest != "" {
		t.Errorf("after the end: %q", rest)
	}
	b.send("still")
	if got := b.read(5); got != "still" {
		t.Errorf("came back: %q", got)
	}
	if again, _ := w.open("a.com:7").ended(); again != "" {
		t.Errorf("a closed host: %q", again)
	}
	if !w.proxy.Resolvable(t.Context(), "C.com.") || w.proxy.Resolvable(t.Context(), "a.com") || fmt.Sprint(w.proxy.Ports()) != "[7 80 443]" {
		t.Errorf("%v %v", w.proxy.Resolvable(t.Context(), "c.com"), w.proxy.Ports())
	}
}

// That unknown hosts are asked about can begin and end while programs run: what
// was approved is open just as long.
func TestUpdateOfUnknown(t *testing.T) {
	w := newWorld(t, Options{}, "listed.com")
	w.echo("good.com", "7")
	asking, answer := make(chan struct{}, 1), make(chan error)
	unknown := func(context.Context, rule.Target) error {
		asking <- struct{}{}
		return <-answer
	}
	if again, _ := w.open("good.com:7").ended(); again != "" || w.proxy.Resolvable(t.Context(), "good.com") || fmt.Sprint(w.proxy.Ports()) != "[80 443]" {
		t.Errorf("before: %q, %v", again, w.proxy.Ports())
	}
	w.proxy.Update(nil, unknown)
	c := w.open("good.com:7")
	<-asking
	answer <- nil
	c.send("hello\n")
	c.read(6)
	if !w.proxy.Resolvable(t.Context(), "good.com") || fmt.Sprint(w.proxy.Ports()) != "[80 443]" {
		t.Errorf("meanwhile: %v", w.proxy.Ports())
	}
	late := w.open("late.com:7")
	<-asking
	w.proxy.Update(nil, nil)
	<-c.done
	if rest, _ := c.ended(); rest != "" {
		t.Errorf("after the end: %q", rest)
	}
	answer <- nil // too late: nobody is asked any more
	if got, _ := late.ended(); got != "" || strings.Contains(w.reached(), "late") {
		t.Errorf("approved too late: %q", got)
	}
	if got := w.refusal(); got.Target != "late.com:7" || got.Reason != ReasonUnlisted || w.proxy.open() != "nothing" {
		t.Errorf("refused: %+v; open: %s", got, w.proxy.open())
	}
	if again, _ := w.open("good.com:7").ended(); again != "" || w.proxy.Resolvable(t.Context(), "good.com") {
		t.Errorf("a closed host: %q", again)
	}
	w.proxy.Update(nil, unknown)
	again := w.open("good.com:7") // is not asked about twice
	again.send("hello\n")
	again.read(6)
}

func TestAddressesAreScreened(t *testing.T) {
	w := newWorld(t, Options{}, "site.com", "local.com:80", "localhost:99")
	w.web("site.com", nil)
	for _, addrs := range [][]string{{"127.0.0.1"}, {"169.254.169.254"}, {"10.0.0.1", "192.168.0.1"}, {"::ffff:127.0.0.1"}, {"64:ff9b::7f00:1"}, {"::1"}, {"fd00:ec2::254"}} {
		w.names["site.com"] = addrs
		c := w.open("")
		c.send("CONNECT site.com:443 HTTP/1.1\r\n\r\n")
		if r, body := c.answer(); r.StatusCode != 403 || r.Header.Get("Caisson-Refused") != "address" {
			t.Errorf("%v: %d %q", addrs, r.StatusCode, body)
		}
		if s := w.status("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n"); s != 403 {
			t.Errorf("%v: %d", addrs, s)
		}
	}
	if got := w.reached(); got != "" {
		t.Errorf("connected to %q", got)
	}
	// Of a mixed answer the addresses of the internet alone are used, and a name
	// is looked up once for a connection.
	w.asked, w.names["site.com"] = nil, []string{"127.0.0.1", publicAddr, "10.0.0.1"}
	if s := w.status("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n"); s != 200 || len(w.asked) != 1 || w.reached() != publicAddr+":80" {
		t.Errorf("%d, asked %v, connected to %q", s, w.asked, w.reached())
	}
	// The machine itself only as listed, and never by a look-up.
	w.dialled, w.asked = nil, nil
	_ = w.status("CONNECT localhost:99 HTTP/1.1\r\n\r\n")
	if got := w.reached(); got != "127.0.0.1:99 [::1]:99" || len(w.asked) != 0 {
		t.Errorf("connected to %q, asked %v", got, w.asked)
	}
}

func TestNoNetworkConnection(t *testing.T) {
	w := newWorld(t, Options{})
	r, wr := io.Pipe()
	w.proxy.Carry(t.Context(), struct {
		io.Reader
		io.WriteCloser
	}{r, wr}, "")
	if _, err := wr.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("what is no connection was not closed: %v", err)
	}
	var _ net.Conn
}
