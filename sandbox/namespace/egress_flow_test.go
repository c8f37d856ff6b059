//go:build linux

package namespace_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
)

// What programs see of the connection: all bytes, both ends, and failures.
func TestEgressCarriesExactly(t *testing.T) {
	const size = 64 << 20
	sum := func(c *net.TCPConn) { // says the digest of what it got, after its end
		h := sha256.New()
		n, _ := io.Copy(h, c)
		fmt.Fprintf(c, "%d %x", n, h.Sum(nil))
	}
	send := func(c *net.TCPConn) {
		_, _ = io.CopyN(c, zeroes{}, size)
	}
	abort := func(c *net.TCPConn) { _ = c.SetLinger(0) }
	seen := make(chan error, 1)
	watch := func(c *net.TCPConn) { _, err := io.Copy(io.Discard, c); seen <- err }
	way := newExit(map[string]string{
		"up.example:1": listen(t, sum), "down.example:2": listen(t, send), "reset.example:3": listen(t, abort), "watch.example:4": listen(t, watch),
	})
	sb, _ := openWith(t, way)
	got := python(t, sb, `import hashlib, socket, struct
s = socket.create_connection(("up.example", 1))
h, block, left = hashlib.sha256(), bytes(range(256)) * 1021, 64 << 20
while left:
    b = block[:left]
    s.sendall(b); h.update(b); left -= len(b)
s.shutdown(socket.SHUT_WR)
answer = b""
while b := s.recv(999):
    answer += b
print(answer.decode() == "%d %s" % (64 << 20, h.hexdigest()))
s, n = socket.create_connection(("down.example", 2)), 0
while b := s.recv(1 << 20):
    n += len(b)
print(n == 64 << 20)
try:
    print("read", socket.create_connection(("reset.example", 3)).recv(9))
except ConnectionResetError:
    print("reset")
s = socket.create_connection(("watch.example", 4))
s.sendall(b"x")
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()`)
	if want := "True\nTrue\nreset"; got != want {
		t.Errorf("got %s", got)
	}
	if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v of a connection that was reset", err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// As many at once as are carried, then more: those wait.
func TestEgressManyConnections(t *testing.T) {
	way := newExit(map[string]string{"many.example:80": listen(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })})
	sb, _ := openWith(t, way)
	got := python(t, sb, `import socket
def many(n):
    all = [socket.create_connection(("many.example", 80)) for _ in range(n)]
    for i, s in enumerate(all):
        s.sendall(b"%04d" % i)
    good = 0
    for i, s in enumerate(all[:500]):
        good += s.recv(4) == b"%04d" % i
    return good, all
print(many(500)[0])
good, all = many(750)
print(good)
for s in all[:500]:
    s.close()
print(sum(s.recv(4) == b"%04d" % (i + 500) for i, s in enumerate(all[500:])))`)
	if got != "500\n500\n250" {
		t.Error(got)
	}
}

// A flood of look-ups is answered, and costs the guest little.
func TestEgressLookupFlood(t *testing.T) {
	way := newExit(nil)
	way.names["*"] = true
	sb, _ := openWith(t, way)
	got := python(t, sb, `import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.connect(("127.0.0.1", 53))
tail = b"\x3f" + b"x" * 63 + b"\x3f" + b"y" * 63 + b"\x3f" + b"z" * 63 + b"\0\0\1\0\1"
seen, n = set(), 40000
for at in range(0, n, 50): # as many under way as a program may like
    for i in range(at, at + 50):
        s.send(struct.pack(">HHHHHH", i & 0xffff, 0x100, 1, 0, 0, 0) + b"\x05%05d" % i + tail)
    for i in range(50):
        a = s.recv(999)
        if a[3] & 15 == 0:
            seen.add(a[-4:])
print(len(seen))
# Without reading an answer, and what is no query.
for i in range(20000):
    s.send(struct.pack(">HHHHHH", i & 0xffff, 0x100, 1, 0, 0, 0) + b"\x05%05d" % i + tail)
    s.send(b"\xff" * (i % 1400))
print(socket.gethostbyname("still.example")[:7])`)
	if got != "40000\n198.18." {
		t.Error(got)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", sb.Record().Guest.PID))
	if err != nil {
		t.Fatal(err)
	}
	var rss int
	for line := range strings.Lines(string(raw)) {
		if rest, is := strings.CutPrefix(line, "RssAnon:"); is {
			_, _ = fmt.Sscan(rest, &rss)
		}
	}
	if rss == 0 || rss > 24<<10 {
		t.Errorf("the guest has %d KiB after it was asked for 40,000 names", rss)
	}
}

// Look-ups by TCP, of all kinds, and ones that are not done.
func TestEgressLookupsByStream(t *testing.T) {
	way := newExit(map[string]string{"one.example:80": ""})
	sb, _ := openWith(t, way)
	got := python(t, sb, `import socket, struct
def ask(s, name, kind, cls=1):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l for l in name.split(b".")) + b"\0" + struct.pack(">HH", kind, cls)
    s.sendall(struct.pack(">H", len(q)) + q)
    n = struct.unpack(">H", s.recv(2, socket.MSG_WAITALL))[0]
    a = s.recv(n, socket.MSG_WAITALL)
    return a[3] & 15, struct.unpack(">H", a[6:8])[0]
idle = [socket.create_connection(("127.0.0.1", 53)) for _ in range(15)]
s = socket.create_connection(("127.0.0.1", 53))
for name in (b"one.example", b"two.example", b"localhost", b"1.0.0.127.in-addr.arpa"):
    print(name.decode(), *(ask(s, name, kind) for kind in (1, 28, 15, 16, 65, 252, 255)), ask(s, name, 16, 3))
s.sendall(b"\xff\xff" + b"x" * 100)
try:
    print(s.recv(9))
except ConnectionResetError:
    print(b"")`)
	want := `one.example (0, 1) (0, 0) (0, 0) (0, 0) (0, 0) (5, 0) (5, 0) (5, 0)
two.example (3, 0) (3, 0) (3, 0) (3, 0) (3, 0) (5, 0) (5, 0) (5, 0)
localhost (0, 1) (0, 0) (0, 0) (0, 0) (0, 0) (5, 0) (5, 0) (5, 0)
1.0.0.127.in-addr.arpa (3, 0) (3, 0) (3, 0) (3, 0) (3, 0) (5, 0) (5, 0) (5, 0)
b''`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The end of a sandbox is the end of what is carried for it.
func TestEgressEndsWithSandbox(t *testing.T) {
	held := make(chan struct{})
	ended := make(chan error, 1)
	way := newExit(map[string]string{"hold.example:80": listen(t, func(c *net.TCPConn) {
		close(held)
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})})
	sb, _ := openWith(t, way)
	p, err := sb.Hold(t.Context(), caisson.Command{Argv: []string{"/usr/bin/python3", "-c", `import socket, time
s = socket.create_connection(("hold.example", 80))
time.sleep(1000)`}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	<-held
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	way.mu.Lock()
	defer way.mu.Unlock()
	if way.live != 0 {
		t.Errorf("%d connections are carried", way.live)
	}
}
