package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a proxy in an internet of its own: names have the addresses that a
// test gives them, and each address is a server on this machine.
type world struct {
	testing.TB
	proxy *Proxy
	ctx   context.Context //nolint:containedctx // one world is one test

	inside func(net.Conn) net.Conn // what the proxy gets for a connection

	mu      sync.Mutex
	names   map[string][]string
	servers map[string]string // address:port of the world → of this machine
	dialled []string
	asked   []string
	refused []Refusal
}

// publicAddr is an address of the internet that nothing of the tests leaves for.
const publicAddr = "93.184.216.34"

func newWorld(t testing.TB, o Options, rules ...string) *world {
	w := &world{TB: t, names: map[string][]string{}, servers: map[string]string{}}
	for _, text := range rules {
		o.Rules = append(o.Rules, must(rule.Parse(text)))
	}
	o.Resolve = w.resolve
	o.Dial = w.dial
	o.Refused = func(r Refusal) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refused = append(w.refused, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.ctx, w.proxy = ctx, New(o)
	return w
}

func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, name)
	var addrs []netip.Addr
	for _, a := range w.names[name] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return addrs, nil
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	at := w.servers[to.String()]
	w.mu.Unlock()
	if at == "" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", at)
}

// reached lists what was connected to.
func (w *world) reached() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.dialled, " ")
}

// serve makes a server the one of a name and port.
func (w *world) serve(name string, port string, server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = []string{publicAddr}
	w.servers[net.JoinHostPort(publicAddr, port)] = server
}

// web serves plain HTTP at a name: it says what it was asked.
func (w *world) web(name string, handler http.HandlerFunc) {
	if handler == nil {
		handler = func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			rw.Header().Set("Seen-Host", r.Host)
			_, _ = io.WriteString(rw, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		}
	}
	s := httptest.NewServer(handler)
	w.Cleanup(s.Close)
	w.serve(name, "80", s.Listener.Addr().String())
}

// echo serves bytes back at a name and port.
func (w *world) echo(name, port string) { w.tcp(name, port, func(c net.Conn) { _, _ = io.Copy(c, c) }) }

func (w *world) tcp(name, port string, serve func(net.Conn)) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(w.ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				serve(c)
			})
		}
	})
	w.Cleanup(func() {
		cancel()
		_ = l.Close()
		serving.Wait()
	})
	w.serve(name, port, l.Addr().String())
}

// prompt is far more than a busy machine takes for what does not wait.
const prompt = time.Minute

// client is a program inside with one connection.
type client struct {
	*net.TCPConn
	t    testing.TB
	in   *bufio.Reader
	done chan struct{} // closed when the proxy has ended with the connection
}

// open makes a connection from inside: to the proxy, or to a target.
func (w *world) open(target string) *client {
	w.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	dialled := make(chan net.Conn, 1)
	go func() { dialled <- must(net.Dial("tcp", l.Addr().String())) }()
	theirs := must(l.Accept())
	if w.inside != nil {
		theirs = w.inside(theirs)
	}
	c := &client{TCPConn: (<-dialled).(*net.TCPConn), t: w.TB, done: make(chan struct{})}
	c.in = bufio.NewReader(c)
	_ = c.SetDeadline(time.Now().Add(2 * prompt))
	go func() {
		defer close(c.done)
		w.proxy.Carry(w.ctx, theirs, target)
	}()
	w.Cleanup(func() {
		_ = c.Close()
		<-c.done
	})
	return c
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Logf("send: %v", err) // the proxy may have ended it
	}
}

// answer reads an answer of HTTP, with its body.
func (c *client) answer() (*http.Response, string) {
	c.t.Helper()
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatalf("read body: %v", err)
	}
	return r, string(body)
}

func (c *client) read(n int) string {
	c.t.Helper()
	b := make([]byte, n)
	if n, err := io.ReadFull(c.in, b); err != nil {
		c.t.Fatalf("read %d bytes: %v after %q", len(b), err, b[:n])
	}
	return string(b)
}

// ended reads the connection to its end and returns what came, and the error if
// it was reset.
func (c *client) ended() (string, error) {
	c.t.Helper()
	b, err := io.ReadAll(c.in)
	return string(b), err
}

// refusal returns what was refused last.
func (w *world) refusal() Refusal {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refused) == 0 {
		w.Fatal("nothing was refused")
	}
	return w.refused[len(w.refused)-1]
}

// status asks the proxy with one request and returns the status.
func (w *world) status(request string) int {
	w.Helper()
	c := w.open("")
	c.send(request)
	r, _ := c.answer()
	return r.StatusCode
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
