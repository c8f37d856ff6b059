package guest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/wire"
)

// gate is an Egress that holds what it is asked until it is opened, and then
// sends back what comes.
type gate struct {
	open chan struct{}

	mu      sync.Mutex
	targets []string
}

func (g *gate) Ports() []uint16 { return []uint16{443} }

func (g *gate) Resolvable(ctx context.Context, name string) bool {
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	return name == "one.example"
}

func (g *gate) Carry(ctx context.Context, conn io.ReadWriteCloser, target string) {
	defer conn.Close()
	select {
	case <-g.open:
	case <-ctx.Done():
		return
	}
	g.mu.Lock()
	g.targets = append(g.targets, target)
	g.mu.Unlock()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, _ = io.Copy(conn, conn)
}

// liarWithWay is a guest that was greeted rightly and has a way out.
func liarWithWay(tb testing.TB, way caisson.Egress) (*guest.Client, *net.UnixConn) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "guest")
	conn, err := net.FileConn(theirs)
	if err != nil {
		tb.Fatal(err)
	}
	_ = theirs.Close()
	host, l, nonce := newLiar(tb)
	go func() {
		_ = l.out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version, Nonce: nonce(), Mode: outlet.ModeRedirect})
	}()
	c, err := guest.Connect(context.Background(), host, guest.Options{Egress: way, Outlet: os.NewFile(uintptr(fds[0]), "host")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(); _ = c.Close() })
	go l.drain()
	return c, conn.(*net.UnixConn)
}

// pairTCP is both ends of a connection, the first as a descriptor.
func pairTCP(tb testing.TB) (int, net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	defer accepted.Close()
	f, err := accepted.(*net.TCPConn).File()
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd); _ = dialled.Close() })
	return fd, dialled
}

// openFiles is how many descriptors this process has.
func openFiles(tb testing.TB) int {
	tb.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	return len(all)
}

func TestGuestThatLiesOnTheWayOut(t *testing.T) {
	fd, _ := pairTCP(t)
	unixPair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]int{"a unix socket": unixPair[0], "a file": -1, "a datagram socket": -1, "an IPv6 socket": -1, "a listener": -1}
	for name, open := range map[string]func() (int, error){
		"a file":            func() (int, error) { return unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0) },
		"a datagram socket": func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) },
		"an IPv6 socket":    func() (int, error) { return unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) },
		"a listener": func() (int, error) {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Listen(s, 1)
			}
			return s, err
		},
	} {
		if sockets[name], err = open(); err != nil {
			t.Fatal(err)
		}
	}
	carry := outlet.Frame{Kind: outlet.KindCarry, Text: "one.example:443"}.Append(nil)
	lookup := outlet.Frame{Kind: outlet.KindLookup, ID: 1, Text: "one.example"}.Append(nil)
	type packet struct {
		body []byte
		fds  []int
	}
	lies := map[string][]packet{
		"no descriptor":        {{carry, nil}},
		"two descriptors":      {{carry, []int{fd, fd}}},
		"many descriptors":     {{carry, repeat(fd, 200)}},
		"one with a look-up":   {{lookup, []int{fd}}},
		"an answer":            {{outlet.Frame{Kind: outlet.KindAnswer, ID: 1, Answer: 1}.Append(nil), nil}},
		"done":                 {{outlet.Frame{Kind: outlet.KindDone}.Append(nil), nil}},
		"nothing, with one":    {{nil, []int{fd}}},
		"a short packet":       {{carry[:3], []int{fd}}},
		"a long packet":        {{append(carry, strings.Repeat("x", 1000)...), []int{fd}}},
		"a long name":          {{outlet.Frame{Kind: outlet.KindLookup, Text: strings.Repeat("x", outlet.MaxName+1)}.Append(nil), nil}},
		"an unknown kind":      {{[]byte("zzzzzzzz"), nil}},
		"too many look-ups":    repeat(packet{lookup, nil}, outlet.MaxLookups+1),
		"too many connections": repeat(packet{carry, []int{fd}}, outlet.MaxConns+1),
	}
	for name, s := range sockets {
		lies[name] = []packet{{carry, []int{s}}}
	}
	for name, packets := range lies {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			c, conn := liarWithWay(t, &gate{open: make(chan struct{})})
			for _, p := range packets {
				var rights []byte
				if p.fds != nil {
					rights = unix.UnixRights(p.fds...)
				}
				if _, _, err := conn.WriteMsgUnix(p.body, rights, nil); err != nil {
					break // it was cut off already
				}
			}
			select {
			case <-c.Done():
			case <-time.After(prompt):
				t.Fatal("it goes on")
			}
			if caisson.CodeOf(c.Err()) != caisson.CodeGuestProtocol {
				t.Errorf("%v", c.Err())
			}
			_ = conn.Close()
			if after := openFiles(t); after > before+1 { // the liar's end of the stream is a pipe of memory
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func repeat[T any](v T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// As much as was agreed is carried and answered.
func TestGuestThatAsksForAll(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	c, conn := liarWithWay(t, g)
	peers := map[string]net.Conn{}
	for i := range outlet.MaxConns {
		fd, peer := pairTCP(t)
		target := fmt.Sprintf("%d.example:80", i)
		if _, _, err := conn.WriteMsgUnix(outlet.Frame{Kind: outlet.KindCarry, Text: target}.Append(nil), unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // what the guest may do: it ends
		peers[target] = peer
	}
	for i := range uint32(outlet.MaxLookups) {
		name := "one.example"
		if i%2 == 1 {
			name = "two.example"
		}
		if _, err := conn.Write(outlet.Frame{Kind: outlet.KindLookup, ID: i, Text: name}.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	close(g.open)
	done, answers := 0, map[uint32]outlet.Answer{}
	buf := make([]byte, 1000)
	for done < outlet.MaxConns || len(answers) < outlet.MaxLookups {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%v, after %d and %d; %v", err, done, len(answers), c.Err())
		}
		f, err := outlet.ParseFrame(buf[:n])
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind == outlet.KindDone {
			done++
			continue
		}
		answers[f.ID] = f.Answer
	}
	for id, a := range answers {
		if want := outlet.Answer(1 - id%2); a != want {
			t.Errorf("look-up %d: %d, want %d", id, a, want)
		}
	}
}

// A guest that makes its connections block, and has asked for a close that
// waits, holds no thread of the host's.
func TestGuestCannotHoldThreads(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	c, conn := liarWithWay(t, g)
	const n = 200
	for range n {
		fd, peer := pairTCP(t)
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1000}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.WriteMsgUnix(outlet.Frame{Kind: outlet.KindCarry, Text: "x:1"}.Append(nil), unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Write([]byte("x")); err != nil { // it is carried when that comes back
			t.Fatal(err)
		}
		if _, err := peer.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Write([]byte("x")); err != nil { // one more turn, now on a socket that blocks
			t.Fatal(err)
		}
		if _, err := peer.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) > n/2 {
		t.Errorf("%d threads for %d connections", len(threads), n)
	}
	start := time.Now()
	_ = c.Close()
	if took := time.Since(start); took > prompt {
		t.Errorf("the end took %v", took)
	}
}

// flood sends more than is read.
type flood struct {
	gate
	full chan struct{}
}

func (f *flood) Carry(_ context.Context, conn io.ReadWriteCloser, _ string) {
	defer conn.Close()
	_ = conn.(net.Conn).SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(make([]byte, 64<<20))
	close(f.full)
}

// A close does not wait for a program that does not read, even where the guest
// has asked for that.
func TestCloseDoesNotLinger(t *testing.T) {
	f := &flood{full: make(chan struct{})}
	c, conn := liarWithWay(t, f)
	fd, _ := pairTCP(t)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 200}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.WriteMsgUnix(outlet.Frame{Kind: outlet.KindCarry, Text: "x:1"}.Append(nil), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	// The host's is the last.
	if err := unix.Dup3(int(os.Stdin.Fd()), fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	<-f.full
	start := time.Now()
	_ = c.Close()
	if took := time.Since(start); took > prompt {
		t.Errorf("it took %v", took)
	}
}

// The guest's refusal to open a way out is told.
func TestGuestWithoutWayOut(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	host, l, nonce := newLiar(t)
	go func() { _ = l.out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version, Nonce: nonce()}) }()
	_, err = guest.Connect(context.Background(), host, guest.Options{Egress: &gate{}, Outlet: os.NewFile(uintptr(fds[0]), "host")})
	if caisson.CodeOf(err) != caisson.CodeGuestProtocol {
		t.Errorf("%v", err)
	}
}
