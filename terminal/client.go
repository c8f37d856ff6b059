package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/localsocket"
)

// Went is how a viewer's time at a terminal ended.
type Went string

// Ways to go.
const (
	WentLeft  Went = "left"  // of its own will: keys, end of ctx
	WentEnded Went = "ended" // the program has ended, and all it wrote was shown
	WentLost  Went = "lost"  // the server is gone, or has let the viewer go
)

// View says how to look at a terminal.
type View struct {
	// In is what is typed; nil, or its end, is nothing. Reading it is given up,
	// without a byte taken, when the viewer goes.
	In *os.File
	// Out receives what is shown, as it is, and at the end what puts a terminal
	// right that the program has left in another mode.
	Out io.Writer
	// Note is told what the server has to say.
	Note func(text string)
	// Attached is called when the viewer was let in.
	Attached func()
	// ReadOnly says that nothing that is typed goes anywhere; Ctrl-C leaves.
	ReadOnly bool
	Size     caisson.Winsize // 0 by 0: there is no terminal
	Sizes    <-chan caisson.Winsize
	Keys     []byte // that leave; nil: none do
}

// Attach looks at the terminal that is served at path, until the program ends,
// the keys are typed, ctx ends, or the server is gone. CodeNotFound where nobody
// serves it; another error is why the viewer was not let in, or that of Out.
func Attach(ctx context.Context, path string, view View) (Went, error) {
	conn, err := localsocket.Dial(ctx, localsocket.Stream, path)
	if err != nil {
		return WentLost, err
	}
	c := &client{view: view, conn: conn, in: frames{from: conn}}
	defer conn.Close() //nolint:errcheck // nothing is left to be sent
	if err := c.greet(); err != nil {
		return WentLost, err
	}
	return c.run(ctx)
}

// client is one connection at the viewer.
type client struct {
	view  View
	conn  *net.UnixConn
	in    frames
	modes modes

	mu   sync.Mutex // of writes
	left bool       // of its own will
}

func (c *client) greet() error {
	_ = c.conn.SetDeadline(time.Now().Add(greeting)) // an open socket
	first := appendJSON(nil, typeHello, hello{Version: version, ReadOnly: c.view.ReadOnly, Size: c.view.Size})
	if _, err := c.conn.Write(first); err != nil {
		return caisson.Errorf(caisson.CodeNotFound, "nobody serves the terminal any more: %w", err)
	}
	kind, body, err := c.in.next()
	if err != nil {
		return caisson.Errorf(caisson.CodeNotFound, "nobody serves the terminal any more: %w", err)
	}
	_ = c.conn.SetDeadline(time.Time{})
	switch kind {
	case typeWelcome:
		return nil
	case typeEnd:
		var e end
		if err := decode(body, &e); err != nil {
			return err
		}
		if e.Error != nil {
			return e.Error
		}
	}
	return caisson.Errorf(caisson.CodeInternal, "the server of the terminal answered with a frame of type %q", kind)
}

func (c *client) run(ctx context.Context) (Went, error) {
	if c.view.Attached != nil {
		c.view.Attached()
	}
	defer c.restore()
	stop := context.AfterFunc(ctx, c.leave)
	defer stop()
	wake, err := newWaker()
	if err != nil {
		return WentLost, err
	}
	var others sync.WaitGroup
	done := make(chan struct{})
	panics := make(chan any, 2)
	for _, work := range []func(){func() { c.keyboard(wake) }, func() { c.resize(done) }} {
		others.Go(func() {
			defer func() {
				if p := recover(); p != nil { // told below, where the terminal is put right
					panics <- p
					_ = c.conn.Close()
				}
			}()
			work()
		})
	}
	went, err := c.show()
	_ = c.conn.Close() // a writer that waits is let go
	close(done)
	wake.wake()
	others.Wait()
	wake.close()
	select {
	case p := <-panics:
		panic(p)
	default:
		return went, err
	}
}

// restore puts the terminal right.
func (c *client) restore() {
	if c.view.Size != (caisson.Winsize{}) {
		_, _ = io.WriteString(c.view.Out, c.modes.leave()) // it may be gone
	}
}

// show shows what comes until nothing more does.
func (c *client) show() (Went, error) {
	for {
		kind, body, err := c.in.next()
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.left {
				return WentLeft, nil
			}
			return WentLost, nil
		}
		switch kind {
		case typeOutput:
			c.modes.scan(body)
			if _, err := c.view.Out.Write(body); err != nil {
				return WentLeft, err
			}
		case typeNote:
			var text string
			if decode(body, &text) == nil && c.view.Note != nil {
				c.view.Note(text)
			}
		case typeEnd:
			var e end
			if decode(body, &e) == nil && e.Ended {
				return WentEnded, nil
			}
			return WentLost, nil
		}
	}
}

// send sends one frame. A server that is gone is noticed by show.
func (c *client) send(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.conn.Write(frame)
}

// leave goes, whatever the server does: to it, it looks like going if it is
// told in time, and like a cut otherwise.
func (c *client) leave() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second)) // an open socket; frees who holds mu
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	_, _ = c.conn.Write(appendFrame(nil, typeLeave, nil))
	_ = c.conn.CloseRead() // ends show
}

// interrupt is the key Ctrl-C.
const interrupt = 0x03

// keyboard sends what is typed.
func (c *client) keyboard(wake *waker) {
	if c.view.In == nil {
		return
	}
	keys := leaver{keys: c.view.Keys}
	buf := make([]byte, 16<<10)
	for wake.readable(c.view.In) {
		n, err := c.view.In.Read(buf)
		on, leave := keys.pass(buf[:n])
		leave = leave || c.view.ReadOnly && bytes.IndexByte(on, interrupt) >= 0
		if len(on) > 0 {
			c.send(appendFrame(nil, typeInput, on))
		}
		if leave {
			c.leave()
			return
		}
		if errors.Is(err, io.EOF) && c.view.Size != (caisson.Winsize{}) {
			c.leave() // the terminal is gone
		}
		if err != nil {
			return
		}
	}
}

func (c *client) resize(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case size, more := <-c.view.Sizes:
			if !more {
				return
			}
			c.send(appendJSON(nil, typeSize, size))
		}
	}
}

// waker ends a wait for input.
type waker struct{ read, write *os.File }

func newWaker() (*waker, error) {
	r, w, err := os.Pipe()
	return &waker{r, w}, err
}

func (w *waker) wake() { _ = w.write.Close() } // closed once

func (w *waker) close() { _ = w.read.Close() } // closed once

// readable waits until there is input, and tells whether there is before wake.
func (w *waker) readable(in *os.File) bool {
	fds := []unix.PollFd{
		{Fd: int32(in.Fd()), Events: unix.POLLIN},     //nolint:gosec // descriptors
		{Fd: int32(w.read.Fd()), Events: unix.POLLIN}, //nolint:gosec // descriptors
	}
	for {
		_, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if fds[1].Revents != 0 {
			return false
		}
		if err == nil && fds[0].Revents != 0 {
			return true
		}
	}
}
