package host

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// streamCount is how many descriptors come with a session.
const streamCount = 3

// closeGrace is how long the end of streams waits for those who are about to
// leave them. Who does not is stuck in one call, and waited for by nobody.
const closeGrace = 100 * time.Millisecond

// streams are the standard streams of another process. They stay as they are
// for that process and whoever has them too: no flag of theirs is changed, so
// that what would wait is asked first whether it can go on, beside a descriptor
// that says that nobody wants it any more.
//
// Others may read and write them at the same time, and then a call waits all the
// same where the kernel cannot be told not to: it may stay until they go on, and
// is the last to have what it uses.
type streams struct {
	in       *streamIn
	out, err *streamOut

	mu   sync.Mutex
	over bool
	wake *descriptor
	gone chan struct{} // closed when they are over and nobody uses them
}

// descriptor is one of ours, of a file that others have too.
type descriptor struct {
	fd    int
	users int  // protected by the streams' mu
	plain bool // a call of it may wait: the kernel has no other; of its one reader or writer
}

func newStreams(files []*os.File) (*streams, error) {
	if len(files) != streamCount {
		return nil, caisson.Errorf(caisson.CodeUsage, "%d streams came with the session, not %d", len(files), streamCount)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "make an event descriptor: %w", err)
	}
	s := &streams{wake: &descriptor{fd: wake}, gone: make(chan struct{})}
	var own []*descriptor
	for _, f := range files {
		d, err := duplicate(f)
		if err != nil {
			shut(append(own, s.wake))
			return nil, caisson.Errorf(caisson.CodeInternal, "take a stream of the session: %w", err)
		}
		own = append(own, d)
	}
	s.in, s.out, s.err = &streamIn{s, own[0]}, &streamOut{s: s, d: own[1]}, &streamOut{s: s, d: own[2]}
	return s, nil
}

// duplicate makes a descriptor that is not closed while somebody is in a call of it.
func duplicate(f *os.File) (d *descriptor, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(of uintptr) {
		var fd int
		fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0)
		d = &descriptor{fd: fd}
	})
	return d, errors.Join(controlErr, err)
}

func shut(all []*descriptor) {
	for _, d := range all {
		_ = unix.Close(d.fd) // of a file whose owner has it still
	}
}

// close gives up what waits: reads end, and writes fail. It waits for nobody who
// is stuck. Safe to call twice.
func (s *streams) close() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over = true
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(s.wake.fd, one[:]) // a counter at 0
	var unused []*descriptor
	for _, d := range []*descriptor{s.in.d, s.out.d, s.err.d} {
		if d.users == 0 {
			unused = append(unused, d)
		}
	}
	if s.wake.users == 0 {
		unused = append(unused, s.wake)
		close(s.gone)
	}
	s.mu.Unlock()
	go shut(unused) // a file system that is stuck would hold it up
	select {
	case <-s.gone:
	case <-time.After(closeGrace):
	}
}

var errStreamsClosed = errors.New("the session has ended")

// use keeps a descriptor, and the one that wakes, open for a call.
func (s *streams) use(d *descriptor, do func() error) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return errStreamsClosed
	}
	d.users++
	s.wake.users++
	s.mu.Unlock()
	defer s.leave(d)
	return do()
}

// leave closes what nobody uses any more, where the streams are over.
func (s *streams) leave(d *descriptor) {
	s.mu.Lock()
	var unused []*descriptor
	for _, d := range []*descriptor{d, s.wake} {
		if d.users--; d.users == 0 && s.over {
			unused = append(unused, d)
		}
	}
	if s.over && s.wake.users == 0 {
		close(s.gone)
	}
	s.mu.Unlock()
	shut(unused)
}

// ready waits until a descriptor is ready for events, or the streams are closed.
func (s *streams) ready(d *descriptor, events int16) error {
	for {
		fds := []unix.PollFd{{Fd: int32(d.fd), Events: events}, {Fd: int32(s.wake.fd), Events: unix.POLLIN}} //nolint:gosec // descriptors
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

// lostPause is for when another took what a descriptor was ready for, in ms.
const lostPause = 1

// lost tells whether a call that failed is to be done again, after another look.
func (s *streams) lost(err error) bool {
	if errors.Is(err, unix.EAGAIN) {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.wake.fd), Events: unix.POLLIN}}, lostPause) //nolint:gosec // a descriptor; the look tells
		return true
	}
	return errors.Is(err, unix.EINTR)
}

// try does a call that does not wait, where the kernel has one for the
// descriptor, else one that may.
func (d *descriptor) try(p []byte, call func(fd int, iovs [][]byte, offset int64, flags int) (int, error), plain func(fd int, p []byte) (int, error)) (int, error) {
	if !d.plain {
		n, err := call(d.fd, [][]byte{p}, -1, unix.RWF_NOWAIT)
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
			return n, err
		}
		d.plain = true
	}
	return plain(d.fd, p)
}

// look finds out of what kind a descriptor is. A file is ready always; what is
// read or written without waiting is only what has a queue.
func (d *descriptor) look() (file bool) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return false // its use will tell
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR:
	default:
		d.plain = true
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG
}

type streamIn struct {
	s *streams
	d *descriptor
}

// Read implements io.Reader. It ends when the streams are closed, and no byte
// that comes then is taken; but where another took what there was, and the
// kernel has no call that does not wait for more.
func (r *streamIn) Read(p []byte) (n int, err error) {
	err = r.s.use(r.d, func() error {
		r.d.look()
		for {
			if err := r.s.ready(r.d, unix.POLLIN); err != nil {
				return err
			}
			if n, err = r.d.try(p, unix.Preadv2, unix.Read); !r.s.lost(err) {
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
// waiting, unless another writes too: a page, for pipes.
const atOnce = 4 << 10

type streamOut struct {
	s *streams
	d *descriptor
}

// Write implements io.Writer.
func (w *streamOut) Write(p []byte) (n int, err error) {
	err = w.s.use(w.d, func() error {
		file := w.d.look() // it waits for nobody, but where its file system is stuck
		for n < len(p) {
			part := p[n:]
			if !file {
				if err := w.s.ready(w.d, unix.POLLOUT); err != nil {
					return err
				}
				part = part[:min(len(part), atOnce)]
			}
			m, err := w.d.try(part, unix.Pwritev2, unix.Write)
			if w.s.lost(err) {
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

// told says once that output is lost, and why: a program inside is not told by
// its kernel, as it would be outside, and would go on for nobody.
type told struct {
	end func()

	mu  sync.Mutex
	why unix.Errno
}

func (l *told) lost() unix.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// by returns a writer to a stream that tells of its loss. One of streams that
// were closed is none.
func (l *told) by(to io.Writer) io.Writer { return &telling{to, l} }

type telling struct {
	to io.Writer
	of *told
}

// Write implements io.Writer.
func (w *telling) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	var why unix.Errno
	if err != nil && errors.As(err, &why) {
		w.of.mu.Lock()
		if w.of.why == 0 {
			w.of.why = why
		}
		w.of.mu.Unlock()
		w.of.end()
	}
	return n, err
}
