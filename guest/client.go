// Package guest is the host half of the guest: it holds, releases and ends
// commands inside a boundary, and reads and writes files there, over one byte
// stream to the first process of that boundary (package guest/inside).
//
// What is promised: nothing that the guest says is trusted further than it is
// bounded. A guest that does not keep to the protocol is cut off, which ends
// it, and every open command ends with CodeSandboxLost. Memory on the host does
// not grow with what the guest sends.
//
// What is not promised: that the guest is who it says. The engine started it,
// handed it its end of the stream, and says how to prove the processes that it
// names (Options.Identify).
package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/wire"
)

// readyBound is how long a guest may take to say hello. It needs a few
// milliseconds; a host under heavy load needs more.
const readyBound = 5 * time.Second

// thawed is how long a process that was stopped itself looks for what it was told
// meanwhile.
const thawed = time.Second

// StreamFD is the descriptor on which the guest program finds its stream.
const StreamFD = wire.StreamFD

// OutletFD is the descriptor on which the guest program finds its end of the
// socket of the way out, where there is one.
const OutletFD = outlet.FD

// Options say what the guest shall do for whom.
type Options struct {
	// Workspace is the absolute path inside of the tree that commands begin in
	// and that Files is confined to.
	Workspace string
	// Env is the environment of every command, KEY=value, and all of it.
	Env []string
	// Limits gives Files and Size, set on each command as rlimits; the rest is
	// the engine's. Zero means the default of the field.
	Limits caisson.Limits
	// Root is the guest itself, as seen from the host.
	Root caisson.ProcessIdentity
	// Identify returns the identity, as seen from the host, of the process
	// that the guest numbers pid, whose parent it numbers holder; an error
	// unless it has proved that both are descendants of the guest. Nil where
	// the host cannot look inside (another kernel): a command's identity is
	// then Root's, whose end is the end of all commands.
	Identify func(holder, pid int) (caisson.ProcessIdentity, error)
	// OOM returns how many processes the kernel has ended for memory so far.
	// Nil where that cannot be told.
	OOM func() (int64, error)
	// Stopped says why the guest cannot answer though it lives, where whoever made
	// its boundary can tell: it was stopped as a whole, from outside (an error of
	// CodeSandboxPaused). Nil where nobody can tell. It is asked when the guest's time
	// is over, and bounds itself.
	Stopped func() error
	// Egress judges and carries what leaves the sandbox, and Outlet is the host's
	// end of a SOCK_SEQPACKET pair whose other end is the guest's descriptor
	// OutletFD. Both or none. The client owns Outlet, also after an error.
	Egress caisson.Egress
	Outlet *os.File
}

// Client is the host half of one guest. Safe for concurrent use.
type Client struct {
	opts Options
	conn io.ReadWriteCloser
	out  *wire.Writer
	in   *wire.Reader
	done chan struct{}

	stall atomic.Pointer[error] // why it is cut off where it did not read

	egress *egress // nil where there is no way out
	mode   outlet.Mode

	mu      sync.Mutex
	streams map[uint32]stream
	next    uint32
	ended   error // why there is no guest any more
}

// stream is one open stream at the host.
type stream interface {
	// frame takes a frame; an error is a breach of the protocol or the end of
	// the connection. last says that the stream is closed by it.
	frame(h wire.Header, in *wire.Reader) (last bool, err error)
	// lost says that the guest is gone.
	lost(err error)
}

// Connect greets the guest at the other end of conn and returns its client, or
// CodeGuestProtocol (CodeSandboxLost where conn ended) if no right answer comes
// within 5 s or before ctx ends; then conn is closed. The client owns conn.
// Closing it is what ends the guest and everything inside.
//
// conn is any two-way byte stream. Its Read must return when it is closed.
func Connect(ctx context.Context, conn io.ReadWriteCloser, opts Options) (*Client, error) {
	c := &Client{
		opts: opts, conn: conn, in: wire.NewReader(conn, wire.MaxReply),
		done: make(chan struct{}), streams: map[uint32]stream{},
	}
	c.out = wire.NewWriter(conn, c.stalled)
	err := c.wayOut(ctx)
	if err == nil {
		err = c.greet(ctx)
	}
	if err != nil {
		_ = conn.Close()
		if c.egress != nil {
			c.egress.close()
		}
		return nil, err
	}
	if c.egress != nil {
		c.egress.serving.Go(c.carry) // ends with the client, or ends it
	}
	go c.serve() // ends when conn does
	return c, nil
}

// wayOut takes the socket of the way out.
func (c *Client) wayOut(ctx context.Context) (err error) {
	if c.opts.Outlet == nil {
		return nil
	}
	c.egress, err = newEgress(ctx, c.opts.Egress, c.opts.Outlet)
	return err
}

// carry serves the way out. A guest that breaks its rules, or has closed it, is
// cut off.
func (c *Client) carry() {
	err := c.egress.serve()
	if caisson.CodeOf(err) != caisson.CodeGuestProtocol {
		err = caisson.Errorf(caisson.CodeSandboxLost, "the guest has ended: %w", err)
	}
	c.cut(err)
}

// Mode says how programs inside are led to the way out; empty where there is none.
func (c *Client) Mode() outlet.Mode { return c.mode }

func (c *Client) greet(ctx context.Context) error {
	ctx, enough := within(ctx, readyBound)
	defer enough()
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	nonce := rand.Text()
	limits := c.opts.Limits
	hello := wire.Hello{
		Version: wire.Version, Nonce: nonce, Workspace: c.opts.Workspace, Env: wire.Bytes(c.opts.Env),
		Files: orElse(limits.Files, 4096), Size: orElse(limits.Size, 16<<30),
		Threads: int(min(max(limits.Pids, 0)/16, threads)),
	}
	if c.egress != nil {
		hello.Outlet = &outlet.Options{Ports: c.opts.Egress.Ports()}
	}
	err := c.out.Control(wire.TypeHello, 0, &hello)
	if err == nil {
		err = tell(c.readHello(nonce))
	}
	switch {
	case ctx.Err() != nil:
		return caisson.Errorf(caisson.CodeGuestProtocol, "the guest did not answer in time: %w", context.Cause(ctx))
	case err != nil && caisson.CodeOf(err) == caisson.CodeInternal:
		return caisson.Errorf(caisson.CodeSandboxLost, "the guest ended before it was ready: %w", err)
	}
	return err
}

// within ends a context when a bound is over, and a moment after that in which what
// was said meanwhile is heard: this process may have been stopped itself.
func within(ctx context.Context, bound time.Duration) (_ context.Context, enough func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := time.AfterFunc(bound, func() {
		late := time.AfterFunc(thawed, func() { cancel(context.DeadlineExceeded) })
		context.AfterFunc(ctx, func() { late.Stop() })
	})
	return ctx, func() { over.Stop(); cancel(nil) }
}

func orElse(v, def int64) int64 {
	if v == 0 {
		return def
	}
	return v
}

// threads is how many a guest shall have ready where its processes are bounded, which
// a command may use up; a guest of few, which its threads count among, has fewer.
const threads = 12

func (c *Client) readHello(nonce string) error {
	h, err := c.in.Next()
	if err != nil {
		return err
	}
	if h.Type == wire.TypeFailed && h.Stream == 0 {
		return c.refusal(h)
	}
	if h.Type != wire.TypeHello || h.Stream != 0 {
		return breach("the first frame is of type %d", h.Type)
	}
	var hello wire.Hello
	body, err := c.in.Control(h)
	if err != nil {
		return err
	}
	if err := wire.Decode(body, &hello); err != nil {
		return breach("its hello cannot be read: %w", err)
	}
	if hello.Version != wire.Version {
		return breach("it speaks version %d, this is version %d", hello.Version, wire.Version)
	}
	if hello.Nonce != nonce {
		return breach("its answer is not to our question")
	}
	if c.egress != nil && !hello.Mode.Valid() {
		return breach("it opened no way out")
	}
	c.mode = hello.Mode
	return nil
}

func (c *Client) refusal(h wire.Header) error {
	body, err := c.in.Control(h)
	if err != nil {
		return err
	}
	refused, err := parseFailed(body)
	if err != nil {
		return err
	}
	return refused
}

// sayable are the codes that a guest may give: of files, and of what is short
// inside. The host acts on others: a guest that says "cancelled" would have spoken
// for a person.
var sayable = [...]caisson.Code{
	caisson.CodeAlreadyExists, caisson.CodeCallInvalid, caisson.CodeDiskFull, caisson.CodeFileChanged, caisson.CodeHostFull,
	caisson.CodeInternal, caisson.CodeNotFound, caisson.CodePathInvalid, caisson.CodePathOutside, caisson.CodeSandboxLost,
	caisson.CodeUnsupported, caisson.CodeWriteFailed,
}

// parseFailed reads an error of the guest.
func parseFailed(body []byte) (*caisson.Error, error) {
	var e wire.Failed
	if err := wire.Decode(body, &e); err != nil {
		return nil, breach("its error cannot be read: %w", err)
	}
	if !slices.Contains(sayable[:], e.Code) {
		return nil, breach("its error has the code %.40q", string(e.Code))
	}
	return &caisson.Error{Code: e.Code, Message: e.Message, Hint: e.Hint}, nil
}

func breach(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return caisson.Errorf(caisson.CodeGuestProtocol, "the guest does not keep to the protocol: %w", err)
}

// serve takes frames until the connection ends.
func (c *Client) serve() {
	err := c.dispatch()
	if caisson.CodeOf(err) != caisson.CodeGuestProtocol {
		err = caisson.Errorf(caisson.CodeSandboxLost, "the guest has ended: %w", err)
	}
	_ = c.conn.Close()
	c.mu.Lock()
	if c.ended == nil {
		c.ended = err
	}
	if why := c.stall.Load(); why != nil {
		c.ended = *why
	}
	err = c.ended
	open := c.streams
	c.streams = nil
	c.mu.Unlock()
	for _, s := range open {
		s.lost(err)
	}
	if c.egress != nil {
		c.egress.close()
	}
	close(c.done)
}

func (c *Client) dispatch() error {
	for {
		h, err := c.in.Next()
		if err != nil {
			return tell(err)
		}
		c.mu.Lock()
		s := c.streams[h.Stream]
		c.mu.Unlock()
		if s == nil {
			return breach("a frame of type %d for stream %d, which is not open", h.Type, h.Stream)
		}
		last, err := s.frame(h, c.in)
		if err != nil {
			return tell(err)
		}
		if last {
			c.mu.Lock()
			delete(c.streams, h.Stream)
			c.mu.Unlock()
		}
	}
}

// tell makes a breach of what the frame reader objects to.
func tell(err error) error {
	var tooLong wire.LengthError
	if errors.As(err, &tooLong) {
		return breach("%w", err)
	}
	return err
}

// open gives s a number and sends its first frame.
func (c *Client) open(s stream, t wire.Type, body pack.Value) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return 0, c.ended
	}
	if len(c.streams) >= wire.MaxStreams {
		return 0, caisson.Errorf(caisson.CodeHostFull, "%d commands and file operations are open in this sandbox", len(c.streams))
	}
	// Numbers begin anew after four billion; one that is in use is passed over, and
	// 0 is no stream's.
	for c.next++; c.next == 0 || c.streams[c.next] != nil; c.next++ {
	}
	id := c.next
	c.streams[id] = s
	// Under the lock, so that streams are opened in the order of their numbers.
	if err := c.out.Control(t, id, body); err != nil {
		delete(c.streams, id)
		var tooLong wire.LengthError
		if errors.As(err, &tooLong) { // it would end the guest, and all that runs
			return 0, caisson.Errorf(caisson.CodeCallInvalid, "arguments, environment or a path are too long: %d bytes as they are sent, more than %d", tooLong.Length, wire.MaxControl).
				WithHint("Put what is long into a file, or give it as input.")
		}
		return 0, caisson.Errorf(caisson.CodeSandboxLost, "the guest has ended: %w", err)
	}
	return id, nil
}

// stalled ends a guest that does not read. It takes no lock: a writer that is
// stuck may hold it.
func (c *Client) stalled() {
	err := c.late(breach("it does not read"))
	c.stall.Store(&err)
	_ = c.conn.Close()
}

// stopped says that the guest was stopped as a whole from outside, if that is so
// and can be told.
func (c *Client) stopped() error {
	if c.opts.Stopped == nil {
		return nil
	}
	return c.opts.Stopped()
}

// late is why a guest is cut off whose time is over, and what ends with it. One that
// was stopped from outside has broken nothing.
func (c *Client) late(breach error) error {
	if err := c.stopped(); err != nil {
		return caisson.Errorf(caisson.CodeSandboxLost, "the guest was ended, as it could not do what it was told in time: %w", err)
	}
	return breach
}

// cut ends the guest because of err.
func (c *Client) cut(err error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = err
	}
	c.mu.Unlock()
	_ = c.conn.Close()
}

// Done is closed when the guest has ended, whoever ended it.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the guest has ended: CodeSandboxLost, or CodeGuestProtocol for
// one that was cut off. Nil while it lives.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Close cuts the guest off, which ends it and everything inside, and returns
// when open commands have been told. That the processes are gone is for the
// engine to see. It may be called twice.
func (c *Client) Close() error {
	c.cut(caisson.Errorf(caisson.CodeSandboxLost, "the sandbox was closed"))
	<-c.done
	return nil
}
