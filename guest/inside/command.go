package inside

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/proctree"
)

// command is one command at the guest.
type command struct {
	s      *server
	id     uint32
	pid    int // of the command proper, once it is there
	holder int
	gate   *os.File
	status *os.File
	stdin  *os.File // our end; nil for none
	input  *wire.Ring
	outs   []*pump
	master *os.File // of the terminal; nil without

	gone   chan struct{} // the tree has ended
	ending sync.Once     // the tree is being killed
	left   atomic.Int32  // killed by kill

	mu sync.Mutex // of pid
}

// hold answers a hold frame.
func (s *server) hold(h wire.Header) error {
	body, err := s.in.Control(h)
	if err != nil {
		return err
	}
	var req wire.Hold
	if err := wire.Decode(body, &req); err != nil {
		return err
	}
	c := &command{s: s, id: h.Stream, gone: make(chan struct{})}
	if err := c.begin(req); err != nil {
		s.last(wire.TypeFailed, c.id, wire.FailedOf(err))
		return nil
	}
	s.add(h.Stream, c)
	go c.run() // ends with the command
	return nil
}

// begin starts holder and command.
func (c *command) begin(req wire.Hold) error {
	plan, err := c.plan(req)
	if err != nil {
		return err
	}
	defer plan.close() // the other ends are theirs alone then: else a pipe would not end
	c.holder, err = c.s.start(plan.spawn)
	if err != nil {
		c.closeOurs()
		return spawnError(err)
	}
	return nil
}

func spawnError(err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) {
		return caisson.Errorf(caisson.CodeHostFull, "no process could be made inside: %w", err)
	}
	return caisson.Errorf(caisson.CodeInternal, "hold process: %w", err)
}

// read reads one record.
func (c *command) read(rec *record) error {
	_, err := io.ReadFull(c.status, unsafe.Slice((*byte)(unsafe.Pointer(rec)), recordSize))
	return err
}

// run sees the command to its end.
func (c *command) run() {
	var rec record
	err := c.read(&rec)
	c.s.begun()
	if err != nil || rec.kind != recordPID {
		c.s.reap(c.holder)
		c.closeOurs()
		c.s.last(wire.TypeFailed, c.id, wire.FailedOf(caisson.Errorf(caisson.CodeHostFull, "no process could be made inside")))
		return
	}
	c.mu.Lock()
	c.pid = int(rec.value)
	c.mu.Unlock()
	_ = c.s.out.Control(wire.TypeHeld, c.id, &wire.Held{Holder: c.holder, PID: c.pid}) // a broken stream ends the guest in take
	for _, p := range c.outs {
		go p.run() // ends with its pipe, at the latest when the tree has ended
	}
	if c.input != nil {
		go c.feed() // ends with its pipe or input
	}
	ended, reaped := c.watch()
	close(c.gone)
	if !reaped {
		// It has nothing left to do but to exit, which nobody need wait for.
		defer c.s.reap(c.holder)
	}
	ended.Closed = c.drained(tailBound)
	if ended.Closed {
		c.closeOurs()
		c.s.last(wire.TypeEnded, c.id, &ended)
		return
	}
	_ = c.s.out.Control(wire.TypeEnded, c.id, &ended) // a broken stream ends the guest in take
	c.drained(-1)
	c.closeOurs()
	c.s.last(wire.TypeClosed, c.id, nil)
}

// tailBound is how long the end is kept back so that it can be told together
// with the end of the output.
const tailBound = 2 * time.Millisecond

// watch returns when the tree has ended, and whether the holder was reaped too.
func (c *command) watch() (ended wire.Ended, reaped bool) {
	ended = wire.Ended{Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)} // if the holder is killed, nobody saw more
	for {
		var rec record
		if c.read(&rec) != nil {
			c.s.reap(c.holder)
			ended.Left = c.s.endStrays()
			return ended, true
		}
		switch rec.kind {
		case recordExec:
			ended.Exec = syscall.Errno(rec.value).Error()
		case recordLeft:
			go c.kill() // ends with the tree
		case recordEnd:
			take(&ended, rec)
			ended.Left = int(c.left.Load())
			return ended, false
		}
	}
}

// drained waits for the rest of the output to be sent, or given up; for at most
// bound, if that is not negative.
func (c *command) drained(bound time.Duration) bool {
	var over <-chan time.Time
	for _, p := range c.outs {
		p.finish()
	}
	for _, p := range c.outs {
		select {
		case <-p.done:
			continue
		default:
		}
		if over == nil && bound >= 0 {
			over = time.After(bound)
		}
		select {
		case <-p.done:
		case <-over:
			return false
		}
	}
	return true
}

// take fills ended from the last record.
func take(ended *wire.Ended, rec record) {
	status := unix.WaitStatus(rec.value)
	ended.Code, ended.Signal = status.ExitStatus(), 0
	if status.Signaled() {
		ended.Signal = int(status.Signal())
		ended.Code = 128 + ended.Signal
	}
	if ended.Exec != "" {
		ended.Code = 126
	}
	ended.CPU = time.Duration(rec.usage.Utime.Nano() + rec.usage.Stime.Nano())
	ended.MaxRSS = rec.usage.Maxrss << 10
}

// closeOurs closes the ends that are ours.
func (c *command) closeOurs() {
	for _, f := range []*os.File{c.gate, c.status, c.stdin, c.master} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, p := range c.outs {
		_ = p.from.Close()
	}
	if c.input != nil {
		c.input.Break()
	}
}

// feed writes stdin.
func (c *command) feed() {
	owed := 0
	for {
		n, err := c.input.Take(func(chunk []byte) error {
			_, err := c.stdin.Write(chunk)
			return err
		})
		if owed += n; owed >= wire.Window/2 {
			_ = c.s.out.Credit(c.id, wire.TypeIn, owed) // a broken stream ends the guest in take
			owed = 0
		}
		if errors.Is(err, io.EOF) && c.master == nil {
			_ = c.stdin.Close()
		}
		if err != nil {
			return // the end, or a command that does not read any more
		}
	}
}

// frame implements stream.
func (c *command) frame(h wire.Header, in *wire.Reader) error {
	if h.Type == wire.TypeIn {
		if c.input == nil {
			return in.Skip(h.Length)
		}
		if h.Length == 0 {
			c.input.End()
			return nil
		}
		fits, err := c.input.Fill(h.Length, in.Body)
		if err == nil && !fits {
			err = errors.New("more input than was allowed")
		}
		return err
	}
	body, err := in.Control(h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch h.Type {
	case wire.TypeRelease:
		c.s.ready.Do(func() { time.AfterFunc(readyAfter, func() { makeThreads(c.s.hello.Threads) }) })
		_, err = c.gate.Write([]byte{1})
		if err == nil || errors.Is(err, unix.EPIPE) { // killed while it was held: told by ended
			_ = c.gate.Close()
			return nil
		}
	case wire.TypeStop:
		var stop wire.Stop
		err = wire.Decode(body, &stop)
		go c.stop(stop.Grace) // ends with the tree
	case wire.TypeDrop:
		c.dropLocked()
	case wire.TypeSignal:
		var sig wire.Signal
		err = wire.Decode(body, &sig)
		c.signalLocked(sig.Signal)
	case wire.TypeResize:
		var to wire.Resize
		err = wire.Decode(body, &to)
		if c.master != nil && err == nil {
			setSize(c.master, to.Size)
		}
	case wire.TypeCredit:
		return c.credit(body)
	default:
		err = errors.New("a frame that is not for a command")
	}
	return err
}

// dropLocked ends a command that was not released, and gives up the output of
// one that was.
func (c *command) dropLocked() {
	if c.gate != nil {
		_ = c.gate.Close() // a held command ends by it
	}
	for _, p := range c.outs {
		p.credit.Break()
	}
}

// signalLocked signals the process group of a command that has not ended. Its
// number cannot have been used again: the holder is the one that reaps it.
func (c *command) signalLocked(sig int) {
	if p, there := proctree.Of(c.pid); there && p.Parent == c.holder {
		_ = unix.Kill(-c.pid, unix.Signal(sig)) // gone meanwhile: told by ended
	}
}

func (c *command) credit(body []byte) error {
	channel, n, err := wire.ParseCredit(body)
	if err != nil {
		return err
	}
	for _, p := range c.outs {
		if p.channel == channel && !p.credit.Give(n) {
			return errors.New("credit for what was not sent")
		}
	}
	return nil
}
