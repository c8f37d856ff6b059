//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkSocket wants a stream of TCP over IPv4 that is no listener: what the
// guest's listeners yield.
func checkSocket(fd int) error {
	for _, is := range []struct {
		what         string
		option, want int
	}{
		{"domain", unix.SO_DOMAIN, unix.AF_INET},
		{"type", unix.SO_TYPE, unix.SOCK_STREAM},
		{"protocol", unix.SO_PROTOCOL, unix.IPPROTO_TCP},
		{"listening", unix.SO_ACCEPTCONN, 0},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, is.option)
		if err != nil {
			return errors.New("a descriptor that is no socket")
		}
		if got != is.want {
			return fmt.Errorf("a socket that is no connection of the sandbox's (%s %d)", is.what, got)
		}
	}
	return nil
}

// socketConn is a connection whose descriptor the guest had first and may have
// a copy of. With that it can make the socket one that blocks: so nothing is
// read or written here that would then wait in the kernel, with a thread of the
// host's. It has what a [net.TCPConn] has but ways around Read and Write.
type socketConn struct {
	net.Conn
	tcp *net.TCPConn
	raw syscall.RawConn
}

// newSocketConn owns fd. An error means that the connection is over already.
func newSocketConn(fd int) (*socketConn, error) {
	f := os.NewFile(uintptr(fd), "connection") //nolint:gosec // a descriptor
	defer f.Close()
	conn, err := net.FileConn(f) // a copy, which does not block
	if err != nil {
		return nil, err
	}
	tcp, is := conn.(*net.TCPConn)
	if !is {
		_ = conn.Close()
		return nil, errors.New("no TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &socketConn{Conn: conn, tcp: tcp, raw: raw}, nil
}

// Read implements net.Conn.
func (c *socketConn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waitErr := c.raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, c.failed("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *socketConn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		var sent int
		waitErr := c.raw.Write(func(fd uintptr) bool {
			for {
				sent, err = unix.SendmsgN(int(fd), p[n:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				if !errors.Is(err, unix.EINTR) {
					return !errors.Is(err, unix.EAGAIN)
				}
			}
		})
		if waitErr != nil {
			return n, waitErr
		}
		if err != nil {
			return n, c.failed("write", err)
		}
		n += sent
	}
	return n, nil
}

func (c *socketConn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// CloseWrite ends what is sent, and leaves the other direction open.
func (c *socketConn) CloseWrite() error { return c.tcp.CloseWrite() }

// SetLinger sets what Close does with what is not sent yet: with 0 the other
// end is told that the connection failed.
func (c *socketConn) SetLinger(seconds int) error { return c.tcp.SetLinger(seconds) }

// Close implements net.Conn. It does not wait for the other end to read,
// whatever the guest has asked of the socket.
func (c *socketConn) Close() error {
	_ = c.raw.Control(func(fd uintptr) { // closed already: Close says so
		linger, err := unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER)
		if err == nil && linger.Onoff != 0 && linger.Linger != 0 {
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		}
	})
	return c.Conn.Close()
}
