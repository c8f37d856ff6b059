//go:build linux

package namespace_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// exit is a way out for tests: it leads names to servers of the test, by
// name:port, and keeps what it was asked.
type exit struct {
	names map[string]bool   // may be looked up
	to    map[string]string // name:port → address on the host
	any   string            // where to all else under names, if not empty

	mu      sync.Mutex
	asked   []string
	carried map[string]int
	live    int
}

func (e *exit) Resolvable(_ context.Context, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asked) < 1000 {
		e.asked = append(e.asked, name)
	}
	return e.names[name] || e.names["*"]
}

func (e *exit) Ports() []uint16 { return []uint16{80, 443, 22} }

func (e *exit) Carry(ctx context.Context, conn io.ReadWriteCloser, target string) {
	defer conn.Close()
	e.mu.Lock()
	e.carried[target]++
	e.live++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.live--
		e.mu.Unlock()
	}()
	if target == "" {
		if target = connect(conn); target == "" {
			return
		}
	}
	at, allowed := e.to[target]
	if !allowed {
		at = e.any
	}
	if at == "" {
		reset(conn)
		return
	}
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		reset(conn)
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { out.Close(); conn.Close() })
	defer stop()
	both(conn, out.(*net.TCPConn))
}

func reset(conn io.ReadWriteCloser) { _ = conn.(interface{ SetLinger(sec int) error }).SetLinger(0) }

// both copies in both directions, with their ends and failures.
func both(a io.ReadWriteCloser, b *net.TCPConn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(b, a); err != nil {
			_ = b.SetLinger(0)
			b.Close()
			return
		}
		_ = b.CloseWrite()
	})
	if _, err := io.Copy(a, b); err != nil {
		reset(a)
		a.Close()
	} else {
		_ = a.(interface{ CloseWrite() error }).CloseWrite()
	}
	wg.Wait()
}

// connect reads the head of a CONNECT request and returns its target.
func connect(conn io.ReadWriter) string {
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one...) {
		if _, err := conn.Read(one); err != nil || len(head) > 4096 {
			return ""
		}
	}
	fields := strings.Fields(string(head))
	if fields[0] != "CONNECT" {
		return ""
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	return fields[1]
}

// listen serves connections with one, until the test ends, and returns the address.
func listen(t testing.TB, one func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); one(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// greeter says who it is and ends.
func greeter(text string) func(*net.TCPConn) {
	return func(c *net.TCPConn) { _, _ = io.WriteString(c, text) }
}

func newExit(to map[string]string) *exit {
	e := &exit{names: map[string]bool{}, to: to, carried: map[string]int{}}
	for target := range to {
		name, _, _ := strings.Cut(target, ":")
		e.names[name] = true
	}
	return e
}

// openWith opens a box with a way out and a workspace.
func openWith(t testing.TB, way caisson.Egress, change ...func(*caisson.SandboxSpec)) (caisson.Sandbox, string) {
	t.Helper()
	spec := caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: t.TempDir(), Egress: way}
	for _, f := range change {
		f(&spec)
	}
	sb, err := engine(t).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	return sb, spec.Workspace
}

// inside runs a command and returns what it printed.
func inside(t testing.TB, sb caisson.Sandbox, cmd caisson.Command) (caisson.Exit, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := sb.Hold(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	e, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e, out.String()
}

func python(t testing.TB, sb caisson.Sandbox, program string, args ...string) string {
	t.Helper()
	e, out := inside(t, sb, caisson.Command{Argv: append([]string{"/usr/bin/python3", "-c", program}, args...)})
	if e.Code != 0 {
		t.Fatalf("python3: exit %d\n%s", e.Code, out)
	}
	return strings.TrimSpace(out)
}

// Names lead to where the host says, on any port, and to nothing else.
func TestEgressByName(t *testing.T) {
	way := newExit(map[string]string{
		"one.example:80": listen(t, greeter("one")), "one.example:9999": listen(t, greeter("one at 9999")),
		"two.example:80": listen(t, greeter("two")),
	})
	sb, _ := openWith(t, way)
	got := python(t, sb, `import socket
def get(name, port):
    try:
        with socket.create_connection((name, port), 5) as s:
            return s.recv(100).decode()
    except OSError as e:
        return type(e).__name__
for target in (("one.example", 80), ("ONE.example.", 9999), ("two.example", 80), ("one.example", 81), ("three.example", 80)):
    print(*target, get(*target))
a, b = (socket.gethostbyname(n) for n in ("one.example", "two.example"))
print(a != b, a == socket.gethostbyname("one.example"), a.startswith("198.18."))
print(get(a, 80), get("198.18.200.200", 80), get("198.18.0.1", 80))
# Both from one port: only what they are meant for tells them apart.
s, t = socket.socket(), socket.socket()
for x in (s, t):
    x.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    x.bind(("198.18.0.1", 45454))
s.connect((a, 80)); t.connect((b, 80))
print(s.recv(9).decode(), t.recv(9).decode())`)
	want := `one.example 80 one
ONE.example. 9999 one at 9999
two.example 80 two
one.example 81 ConnectionResetError
three.example 80 gaierror
True True True
one ConnectionResetError ConnectionRefusedError
one two`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	row := sb.Isolation().Row(caisson.ControlNetwork)
	if !row.Enforced || row.By != "network namespace, proxy" || row.Why != "" {
		t.Errorf("%+v", row)
	}
	if !slices.Contains(way.asked, "one.example") || slices.Contains(way.asked, "ONE.example.") {
		t.Errorf("asked for %q", way.asked)
	}
}

// Nothing but the way out leads out. Origin: nono 713, microsandbox 647.
func TestCase_S20(t *testing.T) {
	way := newExit(map[string]string{"one.example:80": listen(t, greeter("HTTP/1.0 200 OK\r\n\r\none"))})
	direct := listen(t, greeter("HTTP/1.0 200 OK\r\n\r\nthe host"))
	for name, egress := range map[string]caisson.Egress{"with a way out": way, "without": nil} {
		t.Run(name, func(t *testing.T) {
			sb, _ := openWith(t, egress)
			got := python(t, sb, `import socket, struct, sys
def tried(name, f):
    try:
        f()
        print(name, "succeeded")
    except OSError:
        pass
def tcp(family, address, port=53):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(3)
    s.connect((address, port))
def udp(family, address, message=b"x"):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.sendto(message, (address, 53))
    s.recv(512)
query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\3one\7example\0\0\1\0\1"
tried("tcp", lambda: tcp(socket.AF_INET, "1.1.1.1"))
tried("tcp6", lambda: tcp(socket.AF_INET6, "2606:4700:4700::1111"))
tried("mapped", lambda: tcp(socket.AF_INET6, "::ffff:1.1.1.1"))
tried("metadata", lambda: tcp(socket.AF_INET, "169.254.169.254", 80))
tried("private", lambda: tcp(socket.AF_INET, "10.0.0.1", 80))
tried("the host", lambda: tcp(socket.AF_INET, "127.0.0.1", int(sys.argv[1])))
tried("udp", lambda: udp(socket.AF_INET, "1.1.1.1"))
tried("udp6", lambda: udp(socket.AF_INET6, "2606:4700:4700::1111"))
tried("another resolver", lambda: udp(socket.AF_INET, "8.8.8.8", query))
tried("a made-up resolver", lambda: udp(socket.AF_INET, "198.18.0.9", query))
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b"\x08\0\0\0\0\0\0\0", ("1.1.1.1", 0)))
tried("ping a made-up address", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b"\x08\0\0\0\0\0\0\0", ("198.18.0.2", 0)))
tried("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("rules", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
tried("a name", lambda: socket.getaddrinfo("two.example", 443))
tried("a name in an address", lambda: socket.getaddrinfo("1.1.1.1.in-addr.arpa", 443))
def route():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 253, 1, 0) + struct.pack("=HHI", 8, 4, 1)
    s.send(struct.pack("=IHHII", 16 + len(body), 24, 0x405, 1, 0) + body)
    if struct.unpack("=i", s.recv(999)[16:20])[0] != 0:
        raise OSError
tried("route", route)`, strings.Split(direct, ":")[1])
			if got != "" {
				t.Error(got)
			}
			for _, line := range []string{
				"curl -sS -m 3 --noproxy '*' http://two.example/", "curl -sS -m 3 --noproxy '*' http://1.1.1.1/",
				"curl -sS -m 3 --noproxy '*' http://" + direct + "/", "curl -sS -m 3 --noproxy '*' 'http://[2606:4700:4700::1111]/'",
				"curl -sS -m 3 http://two.example/", "curl -sS -m 3 -x socks5h://127.0.0.1:3128 http://two.example/",
			} {
				if e, out := inside(t, sb, caisson.Command{Line: line}); e.Code == 0 {
					t.Errorf("%s: %s", line, out)
				}
			}
		})
	}
	if way.carried["one.example:80"] > 0 {
		t.Error("something was carried")
	}
}

// Programs inside cannot come between a program and the guest.
func TestEgressCannotBeTakenOver(t *testing.T) {
	way := newExit(map[string]string{"one.example:80": listen(t, greeter("one"))})
	sb, _ := openWith(t, way)
	got := python(t, sb, `import socket
fake = socket.gethostbyname("one.example")
for kind, at in ((socket.SOCK_STREAM, ("127.0.0.1", 3128)), (socket.SOCK_STREAM, ("127.0.0.1", 3129)), (socket.SOCK_STREAM, ("0.0.0.0", 3129)),
                 (socket.SOCK_DGRAM, ("127.0.0.1", 53)), (socket.SOCK_STREAM, ("0.0.0.0", 53)), (socket.SOCK_DGRAM, ("0.0.0.0", 53))):
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        s = socket.socket(socket.AF_INET, kind)
        for o in options:
            s.setsockopt(socket.SOL_SOCKET, o, 1)
        try:
            s.bind(at)
            if kind == socket.SOCK_STREAM:
                s.listen()
            print("took", at, options)
        except OSError:
            pass
# A server of one's own at the made-up address gets nothing.
server = socket.socket()
server.bind((fake, 8080))
server.listen()
s = socket.create_connection((fake, 8080))
try:
    print("carried", s.recv(9))
except ConnectionResetError:
    pass
server.settimeout(0)
try:
    print("accepted", server.accept())
except BlockingIOError:
    pass
# Dialling the guest's listener itself leads nowhere.
s = socket.create_connection(("127.0.0.1", 3129))
try:
    print("carried", s.recv(9))
except ConnectionResetError:
    pass
# A server on the box's own address is reached.
server = socket.socket()
server.bind(("0.0.0.0", 8081))
server.listen()
socket.create_connection(("198.18.0.1", 8081))
print(socket.create_connection(("one.example", 80)).recv(9).decode())`)
	if got != "one" {
		t.Error(got)
	}
	if len(way.carried) != 2 || way.carried["one.example:8080"] != 1 {
		t.Errorf("carried %v", way.carried)
	}
}

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

// A thousand at once, then more than are carried at once: those wait.
func TestEgressManyConnections(t *testing.T) {
	way := newExit(map[string]string{"many.example:80": listen(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })})
	sb, _ := openWith(t, way)
	got := python(t, sb, `import socket
def many(n):
    all = [socket.create_connection(("many.example", 80)) for _ in range(n)]
    for i, s in enumerate(all):
        s.sendall(b"%04d" % i)
    good = 0
    for i, s in enumerate(all[:1000]):
        good += s.recv(4) == b"%04d" % i
    return good, all
print(many(1000)[0])
good, all = many(1500)
print(good)
for s in all[:1000]:
    s.close()
print(sum(s.recv(4) == b"%04d" % (i + 1000) for i, s in enumerate(all[1000:])))`)
	if got != "1000\n1000\n500" {
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
s.settimeout(5)
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
