package inside

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
)

// pumpSize is how much is read at once, and what an output pipe holds: four
// times the default, as each round costs several switches between processes.
const pumpSize = 256 << 10

// pumpBufs are shared, so that an idle guest has none.
var pumpBufs = sync.Pool{New: func() any { return new([wire.HeaderSize + pumpSize]byte) }}

// pump carries one direction of output to the host.
type pump struct {
	out     *wire.Writer
	id      uint32
	channel wire.Type
	from    *os.File
	credit  *wire.Credit
	over    atomic.Bool // the tree has ended: take what is there, wait for no more
	done    chan struct{}
}

func newPump(c *command, channel wire.Type, from *os.File) *pump {
	return &pump{out: c.s.out, id: c.id, channel: channel, from: from, credit: wire.NewCredit(), done: make(chan struct{})}
}

// run carries until the pipe ends.
func (p *pump) run() {
	defer close(p.done)
	for p.move() {
		continue
	}
}

// move carries one piece.
func (p *pump) move() bool {
	n := p.credit.Take(pumpSize)
	if n == 0 {
		return false
	}
	buf := pumpBufs.Get().(*[wire.HeaderSize + pumpSize]byte) //nolint:errcheck // nothing else is in it
	defer pumpBufs.Put(buf)
	got, err := p.read(buf[wire.HeaderSize : wire.HeaderSize+n])
	p.credit.Give(n - got)
	if got > 0 && p.out.Data(p.channel, p.id, buf[:wire.HeaderSize+got]) != nil {
		return false
	}
	return err == nil
}

// read reads from the pipe. A pipe that is also held by a process outside the
// tree never ends: once the tree has, it is read until it is empty.
func (p *pump) read(buf []byte) (int, error) {
	if !p.over.Load() {
		n, err := p.from.Read(buf)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	raw, err := p.from.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	ctlErr := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), buf) })
	switch {
	case ctlErr != nil:
		return 0, ctlErr
	case errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, os.ErrClosed
	}
	return n, nil
}

// finish says that the tree has ended: what it wrote is all there is.
func (p *pump) finish() {
	p.over.Store(true)
	_ = p.from.SetReadDeadline(unixEpoch) // wakes a read that waits; a closed pipe needs none
}
