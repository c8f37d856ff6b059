//go:build linux

package outlet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// state is what Run works with.
type state struct {
	host  *os.File
	done  chan struct{} // closed when the host is gone
	conns chan struct{} // one for each connection that the host carries
	asks  chan struct{} // one for each look-up under way

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]func(Answer)
}

// Run serves programs inside until the host's socket ends, or breaks, or the
// host does not keep to the protocol. It returns when all that it started has
// ended: at once but for programs that are just asking over TCP, which have
// dnsPatience.
func (o *Outlet) Run() error {
	_ = unix.SetNonblock(FD, true) // it is a socket, as Open saw
	o.state = state{
		host: os.NewFile(FD, "host"), done: make(chan struct{}),
		conns: make(chan struct{}, MaxConns), asks: make(chan struct{}, MaxLookups), waiting: map[uint32]func(Answer){},
	}
	var serving sync.WaitGroup
	var files []*os.File
	serve := func(fd int, name string, with func(*os.File)) {
		f := os.NewFile(uintptr(fd), name) //nolint:gosec // a descriptor
		files = append(files, f)
		serving.Go(func() { with(f) }) // ends when f is closed
	}
	if o.mode != ModeProxy {
		serve(o.udp, "look-ups", o.serveDatagrams)
		serve(o.tcp, "look-ups", o.serveStreams)
	}
	serve(o.proxy, "proxy", func(f *os.File) { o.serveConns(f, asProxy) })
	for _, fd := range o.direct {
		serve(fd, "connections", func(f *os.File) { o.serveConns(f, o.target) })
	}
	err := o.hear()
	close(o.done)
	for _, f := range append(files, o.host) {
		f.Close()
	}
	serving.Wait()
	return err
}

// hear takes the host's frames. It never waits for a program inside.
func (o *Outlet) hear() error {
	buf := make([]byte, MaxFrame+1)
	for {
		n, err := o.host.Read(buf)
		if errors.Is(err, io.EOF) || n == 0 && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("hear the host: %w", err)
		}
		f, err := ParseFrame(buf[:n])
		if err != nil {
			return fmt.Errorf("hear the host: %w", err)
		}
		switch f.Kind {
		case KindDone:
			select {
			case <-o.conns:
			default:
			}
		case KindAnswer:
			o.mu.Lock()
			then := o.waiting[f.ID]
			delete(o.waiting, f.ID)
			o.mu.Unlock()
			if then != nil {
				<-o.asks
				then(f.Answer)
			}
		case KindLookup, KindCarry:
			return fmt.Errorf("hear the host: a frame of kind %q", f.Kind)
		}
	}
}

// ask asks the host for a name; then is called with the answer, if one comes.
// While too many look-ups are under way it waits: further queries do so in the
// socket's queue.
func (o *Outlet) ask(name string, then func(Answer)) {
	select {
	case o.asks <- struct{}{}:
	case <-o.done:
		return
	}
	o.mu.Lock()
	o.last++
	id := o.last
	o.waiting[id] = then
	o.mu.Unlock()
	_ = o.tell(Frame{Kind: KindLookup, ID: id, Text: name}, nil) // a broken socket ends Run in hear
}

// tell sends a frame to the host and waits while the host is behind.
func (o *Outlet) tell(f Frame, rights []byte) error {
	raw, err := o.host.SyscallConn()
	if err != nil {
		return err
	}
	packet := f.Append(nil)
	waitErr := raw.Write(func(fd uintptr) bool {
		for {
			err = unix.Sendmsg(int(fd), packet, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	return errors.Join(waitErr, err)
}

// serveConns hands over what a listener gets. target says where to; not ok
// means that the connection is refused.
func (o *Outlet) serveConns(listener *os.File, target func(fd int) (to string, ok bool)) {
	for {
		fd, err := accept(listener)
		if err != nil {
			return
		}
		to, ok := target(fd)
		if ok {
			select {
			case o.conns <- struct{}{}:
			case <-o.done:
				unix.Close(fd)
				return
			}
			if o.tell(Frame{Kind: KindCarry, Text: to}, unix.UnixRights(fd)) != nil {
				ok = false // too many descriptors are under way for this user
				select {
				case <-o.conns:
				default:
				}
			}
		}
		if !ok {
			reset(fd)
		}
		unix.Close(fd)
	}
}

// reset makes the close of a connection tell its other end that it failed.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // else it is told of an end
}

func asProxy(int) (string, bool) { return "", true }

// target returns the name and port that a connection was meant for.
func (o *Outlet) target(fd int) (string, bool) {
	addr, port, err := o.meant(fd)
	if err != nil {
		return "", false
	}
	name, ok := o.names.name(addr)
	return fmt.Sprintf("%s:%d", name, port), ok
}

func (o *Outlet) meant(fd int) (addr [4]byte, port uint16, err error) {
	if o.mode != ModeRedirect {
		local, err := unix.Getsockname(fd)
		if at, is := local.(*unix.SockaddrInet4); err == nil && is {
			return at.Addr, uint16(at.Port), nil //nolint:gosec // a port
		}
		return addr, 0, errors.Join(err, errors.New("no address"))
	}
	// A struct sockaddr_in: family, port (big endian), address. This is the
	// request with x/sys that has room for it.
	raw, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return addr, 0, err
	}
	m := raw.Multiaddr
	return [4]byte(m[4:8]), uint16(m[2])<<8 | uint16(m[3]), nil
}

// pause is how long an accept that failed for want of descriptors or memory is
// put off: whoever has them may be giving them back.
const pause = 10 * time.Millisecond

// accept returns the next connection. An error means that the listener was closed.
func accept(listener *os.File) (int, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return -1, err
	}
	for {
		var fd int
		waitErr := raw.Read(func(on uintptr) bool {
			fd, _, err = unix.Accept4(int(on), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case waitErr != nil:
			return -1, waitErr
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			<-time.After(pause)
		case errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL):
			return -1, err
		}
	}
}
