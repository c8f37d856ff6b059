//go:build linux

package outlet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	dnsPort = 53
	// backlog is how many connections wait in a listener's queue at most; the
	// kernel lowers it to net.core.somaxconn.
	backlog = 1024
	// maxPorts bounds the listeners of ModePorts.
	maxPorts = 64
)

// unpaced is how connections inside react to loss, of which lo has none. Every
// kernel has it, and it sends as fast as is read; what the machine is set to may
// be made for long distances and send by a clock (BBR), which on lo costs more
// than the bytes.
const unpaced = "reno"

var localhost = [4]byte{127, 0, 0, 1}

// Outlet is an open outlet. Open it before anything else runs inside, so that
// no program can be the one that is asked for names; run it with Run.
type Outlet struct {
	mode  Mode
	names *names
	state

	// Descriptors, as Run's files are made of: while a box is set up, nothing
	// may start the poller.
	udp, tcp, proxy int
	direct          []int
}

// Open prepares this process's network namespace, which must be the sandbox's
// own, with lo up, and listens. It uses CAP_NET_ADMIN and CAP_NET_BIND_SERVICE
// where it has them; the caller drops them before anything else runs.
func Open(o Options) (*Outlet, error) {
	unix.CloseOnExec(FD)
	if kind, err := unix.GetsockoptInt(FD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, errors.New("the socket to the host is not there")
	}
	setUnpaced()
	out := &Outlet{mode: ModeRedirect, udp: -1, tcp: -1, proxy: -1}
	base := ownRange
	if err := AddRange(); errors.Is(err, unix.EPERM) {
		out.mode, base = ModeLoopback, loopbackRange
	} else if err != nil {
		return nil, err
	} else if addRules() != nil {
		out.mode = ModePorts // whatever the reason, it is the same to programs
	}
	out.names = newNames(base, maxNames)
	if err := out.listen(o); err != nil {
		out.closeSockets()
		return nil, err
	}
	return out, nil
}

// setUnpaced makes programs' own connections unpaced. They work without it: an
// engine may have made the file read-only.
func setUnpaced() {
	fd, err := unix.Open("/proc/sys/net/ipv4/tcp_congestion_control", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte(unpaced))
}

// Mode says how connections by name are caught.
func (o *Outlet) Mode() Mode { return o.mode }

func (o *Outlet) listen(opts Options) (err error) {
	if o.proxy, err = bind(unix.SOCK_STREAM, localhost, ProxyPort); err != nil {
		return fmt.Errorf("listen for the proxy: %w", err)
	}
	o.udp, err = bind(unix.SOCK_DGRAM, localhost, dnsPort)
	if errors.Is(err, unix.EACCES) && o.mode == ModeLoopback {
		o.mode = ModeProxy
		return nil
	}
	if err == nil {
		o.tcp, err = bind(unix.SOCK_STREAM, localhost, dnsPort)
	}
	if err != nil {
		return fmt.Errorf("listen for look-ups: %w", err)
	}
	if o.mode == ModeRedirect {
		fd, err := bind(unix.SOCK_STREAM, localhost, directPort)
		if err != nil {
			return fmt.Errorf("listen for connections: %w", err)
		}
		o.direct = []int{fd}
		return nil
	}
	// On every address: one listener then serves all names.
	for _, port := range opts.Ports[:min(len(opts.Ports), maxPorts)] {
		if port == 0 {
			continue // none, and to the kernel any
		}
		fd, err := bind(unix.SOCK_STREAM, [4]byte{}, port)
		if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) {
			continue // one of ours, a second time, or one that only root may have
		}
		if err != nil {
			return fmt.Errorf("listen on port %d: %w", port, err)
		}
		o.direct = append(o.direct, fd)
	}
	return nil
}

// bind returns a socket on which nothing waits. Streams listen.
func bind(kind int, addr [4]byte, port uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: addr}); err == nil && kind == unix.SOCK_STREAM {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, unpaced) // goes on to what is accepted, which works without
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (o *Outlet) closeSockets() {
	for _, fd := range append([]int{o.udp, o.tcp, o.proxy}, o.direct...) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
