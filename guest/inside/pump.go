package inside

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
)

// pumpSize is how much is moved at once, and what an output pipe holds: four
// times the default, as each round costs several switches between processes.
const pumpSize = 256 << 10

// copySize is how much is copied at once.
const copySize = 64 << 10

// copyBufs are shared, so that an idle guest has none.
var copyBufs = sync.Pool{New: func() any { return new([wire.HeaderSize + copySize]byte) }}

// pump carries one direction of output to the host.
type pump struct {
	lane    *lane
	out     *wire.Writer
	id      uint32
	channel wire.Type
	from    *os.File
	credit  *wire.Credit
	bulk    bool        // so much comes that it is moved and not copied
	over    atomic.Bool // the tree has ended: take what is there, wait for no more
	done    chan struct{}
}

func newPump(c *command, channel wire.Type, from *os.File) *pump {
	return &pump{
		lane: c.s.lane, out: c.s.out, id: c.id, channel: channel, from: from,
		credit: wire.NewCredit(), done: make(chan struct{}),
	}
}

// run carries until the pipe ends.
func (p *pump) run() {
	defer close(p.done)
	for {
		carry, most := p.copy, copySize
		if p.bulk {
			carry, most = p.move, pumpSize
		}
		n := p.credit.Take(most)
		if n == 0 {
			return
		}
		got, err := carry(n)
		p.credit.Give(n - got)
		if err != nil {
			return
		}
		p.bulk = got >= copySize && p.lane.usable()
	}
}

// move carries at most n bytes without copying them.
func (p *pump) move(n int) (got int, err error) {
	err = p.wait(func(fd int) (err error) {
		got, err = p.lane.carry(p.channel, p.id, fd, n)
		return err
	})
	return got, err
}

// copy carries at most n bytes through memory: quicker for a little.
func (p *pump) copy(n int) (got int, err error) {
	buf := copyBufs.Get().(*[wire.HeaderSize + copySize]byte)
	defer copyBufs.Put(buf)
	err = p.wait(func(fd int) (err error) {
		got, err = unix.Read(fd, buf[wire.HeaderSize:wire.HeaderSize+n])
		got = max(got, 0)
		if err == nil && got == 0 {
			err = os.ErrClosed
		}
		return err
	})
	if got > 0 {
		err = p.out.Data(p.channel, p.id, buf[:wire.HeaderSize+got])
	}
	return got, err
}

// wait calls take, which does not block, again whenever the pipe has something,
// until it does not say EAGAIN. A pipe that is also held by a process outside the
// tree never ends: once the tree has, it is read until it is empty.
func (p *pump) wait(take func(fd int) error) error {
	raw, err := p.from.SyscallConn()
	if err != nil {
		return err
	}
	try := func(fd uintptr) bool {
		for {
			err = take(int(fd)) //nolint:gosec // a descriptor
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	}
	if !p.over.Load() {
		waitErr := raw.Read(try)
		if !errors.Is(waitErr, os.ErrDeadlineExceeded) {
			return errors.Join(waitErr, err)
		}
	}
	waitErr := raw.Control(func(fd uintptr) { try(fd) })
	return errors.Join(waitErr, err)
}

// finish says that the tree has ended: what it wrote is all there is.
func (p *pump) finish() {
	p.over.Store(true)
	_ = p.from.SetReadDeadline(unixEpoch) // wakes a read that waits; a closed pipe needs none
}
