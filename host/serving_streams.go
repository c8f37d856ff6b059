package host

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// streamCount is how many descriptors come with a session.
const streamCount = 3

// streams are the standard streams of another process. They stay as they are
// for that process and whoever has them too: no flag of theirs is changed, so
// that what would wait is asked first whether it can go on, beside a descriptor
// that says that nobody wants it any more.
type streams struct {
	in       *streamIn
	out, err *streamOut
	wake     int

	mu   sync.Mutex
	over bool
	busy sync.WaitGroup // of those that have the wake descriptor in a call
}

func newStreams(files []*os.File) (*streams, error) {
	if len(files) != streamCount {
		return nil, caisson.Errorf(caisson.CodeUsage, "%d streams came with the session, not %d", len(files), streamCount)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "make an event descriptor: %w", err)
	}
	s := &streams{wake: wake}
	s.in = &streamIn{s, files[0]}
	s.out, s.err = newStreamOut(s, files[1]), newStreamOut(s, files[2])
	return s, nil
}

// close gives up what waits: reads end, and writes fail. Safe to call twice.
func (s *streams) close() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over = true
	s.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(s.wake, one[:]) // a counter at 0
	s.busy.Wait()
	_ = unix.Close(s.wake)
}

var errStreamsClosed = errors.New("the session has ended")

// use keeps the streams' descriptors open for a call.
func (s *streams) use(f *os.File, do func(fd int) error) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return errStreamsClosed
	}
	s.busy.Add(1)
	s.mu.Unlock()
	defer s.busy.Done()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = do(int(fd)) }) //nolint:gosec // a descriptor
	return errors.Join(err, inner)
}

// ready waits until a descriptor is ready for events, or the streams are closed.
func (s *streams) ready(fd int, events int16) error {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(s.wake), Events: unix.POLLIN}} //nolint:gosec // descriptors
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case fds[1].Revents != 0:
			return errStreamsClosed
		case fds[0].Revents != 0:
			return nil
		}
	}
}

type streamIn struct {
	s *streams
	f *os.File
}

// Read implements io.Reader. It ends when the streams are closed, and no byte
// that comes then is taken.
func (r *streamIn) Read(p []byte) (n int, err error) {
	err = r.s.use(r.f, func(fd int) error {
		for {
			if err := r.s.ready(fd, unix.POLLIN); err != nil {
				return err
			}
			n, err = unix.Read(fd, p)
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
				return err
			}
		}
	})
	switch {
	case errors.Is(err, errStreamsClosed), err == nil && n <= 0 && len(p) > 0:
		return 0, io.EOF
	case err != nil:
		return 0, err
	}
	return n, nil
}

// atOnce is what can be written to anything that is ready for it without
// waiting: a page, for pipes.
const atOnce = 4 << 10

type streamOut struct {
	s     *streams
	f     *os.File
	whole bool // a file: it never waits for anybody
}

func newStreamOut(s *streams, f *os.File) *streamOut {
	info, err := f.Stat()
	return &streamOut{s, f, err == nil && info.Mode().IsRegular()}
}

// Write implements io.Writer.
func (w *streamOut) Write(p []byte) (n int, err error) {
	err = w.s.use(w.f, func(fd int) error {
		for n < len(p) {
			part := p[n:]
			if !w.whole {
				if err := w.s.ready(fd, unix.POLLOUT); err != nil {
					return err
				}
				part = part[:min(len(part), atOnce)]
			}
			m, err := unix.Write(fd, part)
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err != nil {
				return err
			}
			n += m
		}
		return nil
	})
	return n, err
}
