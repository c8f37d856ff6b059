package inside

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
)

// lane moves what is in an output pipe to the host's stream without copying it.
//
// A frame begins with its length, and whoever holds an output pipe can take
// back what is in it. So what is moved goes through a pipe of the guest's own,
// where nobody else can reach it. That pipe is empty but while a frame is
// written; as only one is written at a time, one lane serves all commands.
type lane struct {
	out    *wire.Writer
	stream io.ReadWriteCloser // what out writes to
	raw    syscall.RawConn    // of stream; nil where nothing can be moved
	in     int                // ends of the pipe; they do not block
	end    int
}

// newLane returns a lane that is not usable where stream is no descriptor.
func newLane(stream io.ReadWriteCloser, out *wire.Writer) (*lane, error) {
	l := &lane{out: out, stream: stream}
	conn, is := stream.(syscall.Conn)
	if !is {
		return l, nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	_, _ = unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, pumpSize) // less serves too
	l.raw, l.end, l.in = raw, ends[0], ends[1]
	return l, nil
}

func (l *lane) usable() bool { return l.raw != nil }

// carry moves at most n bytes out of the pipe from, in one frame, and returns
// how many. It does not wait for the pipe: EAGAIN says that it is empty, and
// os.ErrClosed that it has ended.
func (l *lane) carry(t wire.Type, id uint32, from, n int) (int, error) {
	got := 0
	err := l.out.Body(t, id, func() (int, error) {
		moved, err := unix.Splice(from, nil, l.in, nil, n, unix.SPLICE_F_NONBLOCK)
		if err != nil {
			return 0, err
		}
		if got = int(moved); got == 0 {
			return 0, os.ErrClosed
		}
		return got, nil
	}, l.forward)
	return got, err
}

// forward moves the n bytes that are in the lane's pipe to the stream.
func (l *lane) forward(n int) error {
	for n > 0 && l.usable() {
		var moved int64
		var err error
		waitErr := l.raw.Write(func(fd uintptr) bool {
			moved, err = unix.Splice(l.end, nil, int(fd), nil, n, unix.SPLICE_F_NONBLOCK) //nolint:gosec // a descriptor
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case waitErr != nil:
			return waitErr
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL):
			l.raw = nil // a stream that nothing can be moved to
		case err != nil:
			return err
		default:
			n -= int(moved)
		}
	}
	return l.copy(n)
}

// copy is forward for a stream that nothing can be moved to.
func (l *lane) copy(n int) error {
	if n == 0 {
		return nil
	}
	buf := make([]byte, n)
	for got := 0; got < n; {
		m, err := unix.Read(l.end, buf[got:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		got += max(m, 0)
	}
	_, err := l.stream.Write(buf)
	return err
}
