package channel

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// inotify is an instance that one goroutine reads, waiting in the kernel: the
// runtime's own poller is woken by each event whether somebody reads it or not, so
// that a flood would take a processor by that alone.
type inotify struct {
	file *os.File // blocking, so that the runtime leaves it alone
	stop *os.File // an eventfd: something is in it when there is nothing more to read
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &inotify{os.NewFile(uintptr(fd), "inotify"), os.NewFile(uintptr(stop), "stop")}, nil
}

// control calls with with the descriptor, which is not closed meanwhile.
func (i *inotify) control(with func(fd int)) error { return control(i.file, with) }

func control(file *os.File, with func(fd int)) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) { with(int(fd)) })
}

// read waits for events. An error: there are no more, as end was called.
func (i *inotify) read(buf []byte) (int, error) {
	n, failed := 0, os.ErrClosed
	err := i.control(func(fd int) {
		_ = control(i.stop, func(stop int) { n, failed = waitAndRead(fd, stop, buf) }) // closed, it is not called
	})
	return n, errors.Join(err, failed)
}

func waitAndRead(fd, stop int, buf []byte) (int, error) {
	for {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
		_, err := unix.Poll(ready, -1)
		if err == nil && ready[1].Revents != 0 {
			return 0, os.ErrClosed
		}
		n := 0
		if err == nil {
			n, err = unix.Read(fd, buf)
		}
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// end has read return, now and ever after.
func (i *inotify) end() {
	_, _ = i.stop.Write(binary.NativeEndian.AppendUint64(nil, 1)) // it is closed, or has room
}

func (i *inotify) close() {
	i.end()
	i.file.Close()
	i.stop.Close()
}
