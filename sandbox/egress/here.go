package egress

import (
	"context"
	"net"
	"net/netip"
)

// here tells whether an address is one of this machine's, of whatever range: it
// has addresses of the internet itself wherever there is IPv6. The kernel is asked
// in two ways. What it would send to itself it sends from the same address, also
// where that is on no interface but in a route; but from an interface's first
// address to the others of it.
func here(ctx context.Context, a netip.Addr) bool {
	a = a.Unmap()
	const discard = 9 // no port counts: nothing is sent
	var d net.Dialer
	if conn, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(a, discard).String()); err == nil {
		from, ok := conn.LocalAddr().(*net.UDPAddr)
		_ = conn.Close()
		if ok && from.AddrPort().Addr().Unmap().WithZone("") == a {
			return true
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false // it was asked once already
	}
	for _, on := range addrs {
		if prefix, err := netip.ParsePrefix(on.String()); err == nil && prefix.Addr().Unmap() == a {
			return true
		}
	}
	return false
}
