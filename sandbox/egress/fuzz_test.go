package egress

import (
	"bufio"
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// recordedHello returns the greeting of a TLS client.
func recordedHello(tb testing.TB, c *tls.Config) []byte {
	inside, outside := net.Pipe()
	defer outside.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tls.Client(inside, c).HandshakeContext(tb.Context())
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(outside, head); err != nil {
		tb.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(outside, body); err != nil {
		tb.Fatal(err)
	}
	_ = outside.Close()
	<-ended
	return append(head, body...)
}

// cutRecords cuts the one record of a greeting into records of so many bytes.
func cutRecords(record []byte, size int) []byte {
	var out []byte
	for rest := record[5:]; len(rest) > 0; {
		n := min(size, len(rest))
		out = append(out, record[0], record[1], record[2], byte(n>>8), byte(n))
		out = append(out, rest[:n]...)
		rest = rest[n:]
	}
	return out
}

// echConfig is a key that greetings are encrypted with (RFC 9849), for outer.com.
func echConfig(tb testing.TB) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	body := []byte{7, 0x00, 0x20}
	body = binary.BigEndian.AppendUint16(body, uint16(len(pub)))
	body = append(body, pub...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, 9)
	body = append(append(body, "outer.com"...), 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// FuzzHello checks that a greeting is read the same whether it comes at once or
// not, that what is wanted more of is bounded, and that what is read out of one
// is in it.
func FuzzHello(f *testing.F) {
	whole := recordedHello(f, &tls.Config{ServerName: "site.com", InsecureSkipVerify: true}) //nolint:gosec // it is only recorded
	f.Add(whole)
	f.Add(cutRecords(whole, 50))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, need, err := readHello(b)
		if err == nil && need == 0 {
			if h.name != "" && !bytes.Contains(joined(b), []byte(h.name)) {
				t.Fatalf("%q is not in it", h.name)
			}
			again, need, err := readHello(append(bytes.Clone(b), 0x16, 3, 1, 0, 1, 0))
			if again != h || need != 0 || err != nil {
				t.Fatalf("with more behind it: %+v %d %v", again, need, err)
			}
		}
		if need > 0 && (need <= len(b) || need > len(b)+5+1<<14) {
			t.Fatalf("%d bytes, and %d are wanted", len(b), need)
		}
		for n := range min(len(b), 200) {
			if part, more, bad := readHello(b[:n]); bad == nil && more == 0 && (part != h || need != 0) {
				t.Fatalf("read from %d bytes: %+v; from all: %+v", n, part, h)
			}
		}
	})
}

// joined is what records hold, without their heads.
func joined(b []byte) []byte {
	var out []byte
	for len(b) >= 5 {
		n := min(int(binary.BigEndian.Uint16(b[3:])), len(b)-5)
		out, b = append(out, b[5:5+n]...), b[5+n:]
	}
	return out
}

// FuzzHead checks that where a request is let through, the host that is judged
// is the one that net/http reads, and the only one in the head.
func FuzzHead(f *testing.F) {
	for _, seed := range []string{
		"GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n", "GET / HTTP/1.1\nHost: site.com\n\n", "GET / HTTP/1.1\r\nHost: evil.com\r\nhost:site.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\n site.com\r\n\r\n", "CONNECT site.com:443 HTTP/1.1\r\n\r\n", "GET http://a@site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n",
	} {
		f.Add(seed)
	}
	p := New(Options{})
	target := must(rule.ParseTarget("site.com", 80))
	f.Fuzz(func(t *testing.T, text string) {
		s := &stream{p: p, in: bufio.NewReaderSize(strings.NewReader(text), maxHead)}
		s.conn = &patient{Conn: noConn{}}
		for _, fixed := range []*rule.Target{nil, &target} {
			s.in.Reset(strings.NewReader(text))
			req, hosts, err := s.request(fixed)
			if err != nil || req == nil || req.Method == http.MethodConnect {
				continue
			}
			got, err := p.authority(req, hosts, fixed)
			if err != nil {
				continue
			}
			if fixed != nil && got != target {
				t.Fatalf("%q goes to %v", text, got)
			}
			if named, err := rule.ParseTarget(req.Host, 80); req.Host != "" && (err != nil || named != got) {
				t.Fatalf("%q: judged as %v, read as %q", text, got, req.Host)
			}
			head := text[:len(text)-s.in.Buffered()]
			if n := strings.Count(strings.ToLower(head), "\nhost:"); n > 1 {
				t.Fatalf("%q has %d hosts", text, n)
			}
		}
	})
}

type noConn struct{ net.Conn }

func (noConn) Close() error { return nil }

// FuzzSocks checks that nothing is read beyond a request, and that what is let
// through is canonical.
func FuzzSocks(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x08site.com\x01\xbb"))
	f.Add([]byte("\x05\x02\x02\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		if open, err := socksGreeting(r); err != nil || !open {
			return
		}
		target, code, err := socksRequest(r)
		if err != nil {
			if code == socksOK && len(b) > 600 {
				t.Fatalf("more is wanted than any request has: %v", err)
			}
			return
		}
		if again, err := rule.ParseTarget(target.String(), 0); err != nil || again != target {
			t.Fatalf("%v becomes %v (%v)", target, again, err)
		}
	})
}
