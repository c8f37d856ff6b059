package egress

import (
	"bufio"
	"errors"
	"io"
	"net/netip"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// SOCKS 5 numbers (RFC 1928).
const (
	socks4 = 4
	socks5 = 5

	socksNoAuth   = 0
	socksNoMethod = 0xff
	socksConnect  = 1
	socksIPv4     = 1
	socksName     = 3
	socksIPv6     = 4

	socksOK         = 0
	socksRefused    = 2
	socksNoHost     = 4
	socksNoCommand  = 7
	socksNoAddrKind = 8
)

var errSocks = errors.New("it is no SOCKS 5 request that is carried")

// socksGreeting reads what a client offers and tells whether no password is among it.
func socksGreeting(r *bufio.Reader) (bool, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return false, err
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(r, methods); err != nil {
		return false, err
	}
	for _, m := range methods {
		if m == socksNoAuth {
			return head[0] == socks5, nil
		}
	}
	return false, nil
}

// socksRequest reads a request. code is what to answer where there is an error
// that is not of the connection.
func socksRequest(r *bufio.Reader) (t rule.Target, code byte, err error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return t, 0, err
	}
	size := 0
	switch head[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		n, err := r.ReadByte()
		if err != nil {
			return t, 0, err
		}
		size = int(n)
	default:
		return t, socksNoAddrKind, errSocks
	}
	body := make([]byte, size+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return t, 0, err
	}
	t.Port = uint16(body[size])<<8 | uint16(body[size+1])
	switch {
	case head[0] != socks5 || head[2] != 0:
		return t, socksRefused, errSocks
	case head[1] != socksConnect:
		return t, socksNoCommand, errSocks
	case t.Port == 0:
		return t, socksRefused, errors.New("there is no port 0")
	case head[3] != socksName:
		addr, _ := netip.AddrFromSlice(body[:size])
		t.Host = rule.Host{Addr: addr.Unmap()}
		return t, 0, nil
	}
	t.Host, err = rule.ParseHost(string(body[:size]))
	return t, socksRefused, err
}

// socksReply is the answer; the address in it says nothing.
func socksReply(code byte) []byte { return []byte{socks5, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0} }
