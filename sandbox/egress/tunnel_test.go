package egress

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// secure serves TLS at a name, for any server name.
func (w *world) secure(name, port string) {
	s := quietTLS(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, "secret "+r.Host) }))
	w.Cleanup(s.Close)
	w.serve(name, port, s.Listener.Addr().String())
}

// quietTLS is a server of TLS that does not log the handshakes that fail.
func quietTLS(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	return s
}

// tlsGet speaks TLS on an open connection and returns what it is told.
func tlsGet(c net.Conn, name string) (string, error) {
	over := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // the test's own server
	if _, err := io.WriteString(over, "GET / HTTP/1.0\r\nHost: "+name+"\r\n\r\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(over)
	return string(b), err
}

// through opens a connection to a target in each way that there is.
func (w *world) through(way, host, port string) (*client, error) {
	w.Helper()
	switch way {
	case "transparent":
		return w.open(net.JoinHostPort(host, port)), nil
	case "connect":
		c := w.open("")
		c.send("CONNECT " + net.JoinHostPort(host, port) + " HTTP/1.1\r\nHost: " + net.JoinHostPort(host, port) + "\r\n\r\n")
		r, err := http.ReadResponse(c.in, &http.Request{Method: http.MethodConnect})
		if err == nil && r.StatusCode != 200 {
			err = errors.New(r.Status)
		}
		return c, err
	default:
		c := w.open("")
		c.send("\x05\x02\x02\x00")
		if got := c.read(2); got != "\x05\x00" {
			return c, errors.New("SOCKS method")
		}
		p := must(net.LookupPort("tcp", port))
		c.send("\x05\x01\x00\x03" + string(rune(len(host))) + host + string(binary.BigEndian.AppendUint16(nil, uint16(p))))
		if reply := c.read(10); reply[1] != 0 {
			return c, errors.New("SOCKS reply")
		}
		return c, nil
	}
}

func eachWay(t *testing.T, do func(t *testing.T, way string)) {
	for _, way := range []string{"transparent", "connect", "socks"} {
		t.Run(way, func(t *testing.T) { do(t, way) })
	}
}

func TestServerNameMustAgree(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		w := newWorld(t, Options{}, "site.com", "site.com:8443")
		w.secure("site.com", "443")
		w.secure("site.com", "8443")
		for _, port := range []string{"443", "8443"} {
			for name, passes := range map[string]bool{"site.com": true, "SITE.com": true, "evil.com": false, "": false, "x.site.com": false} {
				c, err := w.through(way, "Site.com.", port)
				if err != nil {
					t.Fatal(err)
				}
				got, err := tlsGet(c, name)
				if passed := err == nil && strings.Contains(got, "secret"); passed != passes {
					t.Errorf("port %s, server name %q: passed: %v (%v)", port, name, passed, err)
				}
				if !passes && w.refusal().Reason != ReasonServerName {
					t.Errorf("refused: %+v", w.refusal())
				}
			}
		}
	})
}

func TestOnlyTLSOn443(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		w := newWorld(t, Options{}, "site.com")
		w.echo("site.com", "443")
		for _, first := range []string{"SSH-2.0-x\r\n", "GET / HTTP/1.1\r\nHost: site.com\r\n\r\n", "\x00", "\x16\x03\x01\x00\x05\x02abcd"} {
			c, err := w.through(way, "site.com", "443")
			if err != nil {
				t.Fatal(err)
			}
			c.send(first)
			if got, err := c.ended(); got != "" || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q: %q %v", first, got, err)
			}
		}
	})
}

func TestListedPorts(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		w := newWorld(t, Options{}, "site.com:22", "site.com:25", "site.com:8080")
		w.echo("site.com", "22")
		w.tcp("site.com", "25", func(c net.Conn) { _, _ = io.WriteString(c, "220 hello\r\n"); _, _ = io.Copy(c, c) })
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, "at "+r.Host) }))
		t.Cleanup(s.Close)
		w.serve("site.com", "8080", s.Listener.Addr().String())

		ssh, err := w.through(way, "site.com", "22")
		if err != nil {
			t.Fatal(err)
		}
		ssh.send("SSH-2.0-OpenSSH\r\n")
		if got := ssh.read(17); got != "SSH-2.0-OpenSSH\r\n" {
			t.Errorf("came back: %q", got)
		}
		_ = ssh.CloseWrite() // the other direction goes on
		if rest, err := ssh.ended(); rest != "" || err != nil {
			t.Errorf("after half a close: %q %v", rest, err)
		}
		mail, err := w.through(way, "site.com", "25")
		if err != nil {
			t.Fatal(err)
		}
		if got := mail.read(11); got != "220 hello\r\n" { // the server speaks first
			t.Errorf("greeting: %q", got)
		}
		mail.send("EHLO x\r\n")
		if got := mail.read(8); got != "EHLO x\r\n" {
			t.Errorf("came back: %q", got)
		}
		const other = "GET / HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
		for request, want := range map[string]string{
			"GET / HTTP/1.1\r\nHost: site.com:8080\r\nConnection: close\r\n\r\n": "at site.com:8080",
			"GET / HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n":      "403 Forbidden",
			"\r\nGET / HTTP/1.1\r\nHost: evil.com\r\n\r\n":                       "",
			"GET\t/ HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n":     "400 Bad",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                   "400 Bad",
			// A server answers a method that it does not know, and goes on.
			"G1 / HTTP/1.1\r\nHost: site.com:8080\r\n\r\n" + other:                         "403 Forbidden",
			"!$%&'*+.^`|~ / HTTP/1.1\r\nHost: site.com:8080\r\n\r\n" + other:               "",
			strings.Repeat("G", 40) + " / HTTP/1.1\r\nHost: site.com:8080\r\n\r\n" + other: "403 Forbidden",
			"GET / http/1.1\r\nHost: site.com:8080\r\n\r\n" + other:                        "400 Bad",
			"GET\f/ HTTP/1.1\r\nHost: site.com:8080\r\n\r\n" + other:                       "400 Bad",
		} {
			c, err := w.through(way, "site.com", "8080")
			if err != nil {
				t.Fatal(err)
			}
			c.send(request)
			if got, _ := c.ended(); !strings.Contains(got, want) || strings.Contains(got, "at evil") {
				t.Errorf("%q: %q", request, got)
			}
		}
		if c, err := w.through(way, "site.com", "2222"); way != "transparent" && err == nil {
			t.Errorf("an unlisted port: %v", c)
		}
	})
}

// A method without an end is not carried: there are servers that would read on.
func TestEndlessMethodIsRefused(t *testing.T) {
	w := newWorld(t, Options{}, "site.com:9000")
	w.echo("site.com", "9000")
	c := w.open("site.com:9000")
	go c.send(strings.Repeat("G", 2*maxHead))
	if got, _ := c.ended(); got != "" || w.refusal().Reason != ReasonProtocol {
		t.Errorf("%d bytes came back, %v", len(got), w.refusal())
	}
}

// Other protocols begin as a request of HTTP could: they are carried at once.
func TestOtherProtocolsAreNotWaitedFor(t *testing.T) {
	for _, first := range []string{
		"0030git-upload-pack /x.git\x00host=site.com\x00",                             // git: no line ends
		"0\x20\x02\x01\x01\x60\x1b\x02\x01\x03\x04\x0ccn=x,dc=y,dc=z\x80\x08password", // LDAP
		"*1\r\n$4\r\nPING\r\n", "get key\r\n", "NICK x\r\n", "SSH-2.0-x_1\r\n", "AMQP\x00\x00\x09\x01", "<stream>", "12:netstring,",
	} {
		w := newWorld(t, Options{}, "site.com:9000")
		w.echo("site.com", "9000")
		c := w.open("site.com:9000")
		c.send(first)
		if got := c.read(len(first)); got != first {
			t.Errorf("%q came back as %q", first, got)
		}
	}
}

func TestSocks(t *testing.T) {
	w := newWorld(t, Options{}, "site.com:7", "10.0.0.5:7")
	w.echo("site.com", "7")
	w.servers["10.0.0.5:7"] = w.servers[publicAddr+":7"]
	reply := func(request string) byte {
		c := w.open("")
		c.send("\x05\x01\x00")
		c.read(2)
		c.send(request)
		return c.read(10)[1]
	}
	name := func(host string) string {
		return "\x05\x01\x00\x03" + string([]byte{byte(len(host))}) + host + "\x00\x07"
	}
	for request, want := range map[string]byte{
		name("site.com"): 0, name("SITE.COM."): 0, name("site.com\x00.evil.com"): 2, name("evil.com"): 2, name(""): 2, name("site.com@evil.com"): 2, name("127.0.0.1"): 2,
		name("10.0.0.5"): 0, "\x05\x01\x00\x01\x0a\x00\x00\x05\x00\x07": 0, "\x05\x01\x00\x01\x0a\x00\x00\x06\x00\x07": 2, "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x07": 2,
		"\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x0a\x00\x00\x05\x00\x07": 0, "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x07": 2,
		"\x05\x02\x00\x03\x08site.com\x00\x07": 7, "\x05\x03\x00\x03\x08site.com\x00\x07": 7, "\x05\x01\x00\x09": 8, "\x05\x01\x00\x03\x08site.com\x00\x00": 2,
	} {
		if got := reply(request); got != want {
			t.Errorf("%q: reply %d, want %d", request, got, want)
		}
	}
	for _, old := range []string{"\x04\x01\x00\x07\x0a\x00\x00\x05x\x00", "\x16\x03\x01\x00\x05"} {
		c := w.open("")
		c.send(old)
		if got, _ := c.ended(); got != "" {
			t.Errorf("%q: %q", old, got)
		}
	}
	c := w.open("")
	c.send("\x05\x01\x02") // a password alone
	if got := c.read(2); got != "\x05\xff" {
		t.Errorf("%q", got)
	}
}

func TestSlowAndLargeHeads(t *testing.T) {
	w := newWorld(t, Options{Head: 200 * time.Millisecond, Idle: 8 * time.Second}, "site.com", "site.com:22")
	w.web("site.com", nil)
	w.echo("site.com", "22")
	w.echo("site.com", "443")
	for _, begun := range []struct{ target, text string }{
		{"", ""},
		{"", "GET http://site.com/ HTTP/1.1\r\nHost: si"},
		{"", "\x05\x01\x00"},
		{"", "\x05\x01\x00\x05\x01\x00\x03\xff"},
		{"site.com:443", "\x16\x03\x01\x02\x00\x01"},
		{"site.com:80", "GET / HTTP/1.1\r\nHost: si"},
		{"site.com:22", "GE"},
	} {
		c := w.open(begun.target)
		c.send(begun.text)
		<-c.done // only the proxy's own bound ends it
	}
	// One byte at a time does not buy time.
	slow := w.open("")
	ended := false
	for begun := time.Now(); !ended; {
		if _, err := slow.Write([]byte("G")); err != nil {
			break
		}
		select {
		case <-slow.done:
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
		if took := time.Since(begun); took > prompt {
			t.Fatalf("a slow head is read for %v", took)
		}
	}
	<-slow.done
	w = newWorld(t, Options{}, "site.com")
	large := w.open("")
	large.send("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")
	if r, err := http.ReadResponse(large.in, nil); err != nil || r.StatusCode != 431 {
		t.Errorf("a head of 1 MiB: %+v %v", r, err)
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	w := newWorld(t, Options{Idle: 2 * time.Second}, "site.com", "site.com:22")
	w.web("site.com", nil)
	w.echo("site.com", "22")
	idle := w.open("site.com:22")
	idle.send("SSH-\n")
	idle.read(5)
	<-idle.done
	kept := w.open("site.com:80")
	kept.send("GET / HTTP/1.1\r\nHost: site.com\r\n\r\n")
	kept.answer()
	<-kept.done
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, Options{MaxConns: 4}, "site.com:22")
	w.echo("site.com", "22")
	var held []*client
	for range 4 {
		c := w.open("site.com:22")
		c.send("SSH-\n")
		c.read(5)
		held = append(held, c)
	}
	for range 100 {
		c := w.open("site.com:22")
		if got, err := c.ended(); got != "" || !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a connection too many: %q %v", got, err)
		}
	}
	_ = held[0].Close()
	<-held[0].done
	c := w.open("site.com:22")
	c.send("SSH-\n")
	c.read(5)
	if n := len(w.refused); n != 1 {
		t.Errorf("told of %d refusals", n)
	}
	for _, count := range w.proxy.Counts() {
		if count.Target == "" && count.Refused[ReasonFull] != 100 {
			t.Errorf("%+v", count)
		}
	}
}

func TestResetIsPassedOn(t *testing.T) {
	w := newWorld(t, Options{}, "site.com:22")
	w.tcp("site.com", "22", func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 5))
		reset(c)
	})
	c := w.open("site.com:22")
	c.send("SSH-\n")
	<-c.done
	gone := w.open("site.com:22")
	reset(gone.TCPConn)
	<-gone.done
}

func TestEndOfContextEndsAll(t *testing.T) {
	w := newWorld(t, Options{}, "site.com:22", "site.com")
	w.echo("site.com", "22")
	w.web("site.com", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(w.ctx)
	w.ctx = ctx
	open := w.open("site.com:22")
	open.send("SSH-\n")
	open.read(5)
	waiting := w.open("site.com:80")
	waiting.send("GET / HTTP/1.1\r\nHost: site.com\r\n\r\n")
	silent := w.open("")
	cancel()
	for _, c := range []*client{open, waiting, silent} {
		<-c.done
	}
}
