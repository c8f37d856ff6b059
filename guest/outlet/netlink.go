//go:build linux

package outlet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The few netlink messages that are needed are put together here: a library for
// them would be a quarter of the guest, and code that hostile programs' kernel
// settings pass through.

// attr is a netlink attribute: bytes, or attributes in it.
type attr struct {
	kind uint16
	data []byte
	in   []attr
}

func text(kind uint16, s string) attr { return attr{kind: kind, data: append([]byte(s), 0)} }
func number(kind uint16, v uint32) attr {
	return attr{kind: kind, data: binary.BigEndian.AppendUint32(nil, v)}
}
func nest(kind uint16, in ...attr) attr { return attr{kind: kind, in: in} }
func data(kind uint16, value ...byte) attr {
	return nest(kind, attr{kind: unix.NFTA_DATA_VALUE, data: value})
}
func align(b []byte) []byte            { return append(b, make([]byte, (4-len(b)%4)%4)...) }
func put16(b []byte, at int, v uint16) { binary.NativeEndian.PutUint16(b[at:], v) }
func put32(b []byte, at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }

func (a attr) append(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	kind := a.kind
	if a.in != nil {
		kind |= unix.NLA_F_NESTED
	}
	b = append(b, a.data...)
	for _, in := range a.in {
		b = in.append(b)
	}
	put16(b, start, uint16(len(b)-start)) //nolint:gosec // all attributes are small
	put16(b, start+2, kind)
	return align(b)
}

// message is a netlink message: a head of its own and attributes.
type message struct {
	kind  uint16
	flags uint16
	head  []byte
	attrs []attr
}

// exchange sends messages as one and returns the first error that the kernel
// has to say about those that want an answer.
func exchange(protocol int, messages ...message) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer unix.Close(fd)
	// The kernel answers before send returns; this is for one that does not.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return fmt.Errorf("bound netlink: %w", err)
	}
	var out []byte
	due := 0
	for i, m := range messages {
		start := len(out)
		out = append(out, make([]byte, unix.NLMSG_HDRLEN)...)
		out = append(out, m.head...)
		for _, a := range m.attrs {
			out = a.append(out)
		}
		put32(out, start, uint32(len(out)-start)) //nolint:gosec // all messages are small
		put16(out, start+4, m.kind)
		put16(out, start+6, m.flags|unix.NLM_F_REQUEST)
		put32(out, start+8, uint32(i+1)) //nolint:gosec // a few
		if m.flags&unix.NLM_F_ACK != 0 {
			due++
		}
	}
	if err := unix.Sendto(fd, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask netlink: %w", err)
	}
	return acknowledged(fd, due)
}

func acknowledged(fd, due int) error {
	buf := make([]byte, 8<<10)
	for due > 0 {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("hear netlink: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN+4; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return errors.New("hear netlink: a torn message")
			}
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
				if code := int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])); code != 0 { //nolint:gosec // an errno, negative
					return unix.Errno(-code)
				}
				due--
			}
			b = b[min(len(b), (size+3)&^3):]
		}
	}
	return nil
}
