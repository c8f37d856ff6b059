package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

const (
	maxAddresses = 16 // of one name that are tried
	tryFor       = 8 * time.Second
)

// resolve asks the host's resolver.
func resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	// The dot keeps the search list of the host's resolver out: the name is
	// the one that was judged.
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
}

func dialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: tryFor}
	return d.DialContext(ctx, "tcp", to.String())
}

// addresses returns the addresses of a target that its rule permits.
func (p *Proxy) addresses(ctx context.Context, t rule.Target, r rule.Rule) ([]netip.Addr, error) {
	found, err := p.lookUp(ctx, t.Host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.Host, err)
	}
	var open []netip.Addr
	closed := ""
	for _, a := range found {
		ok, what := r.Permits(a)
		// Whoever has the name could say that it is this machine: what listens on
		// it for this network alone would take the connection for one of its own.
		if ok && r.Scope == rule.Public && p.o.Here(ctx, a) {
			ok, what = false, "an address of this machine"
		}
		switch {
		case ok && len(open) < maxAddresses:
			open = append(open, a)
		case !ok:
			closed = what
		}
	}
	if len(open) == 0 {
		return nil, p.refuse(t.String(), ReasonAddress, errors.New("it has "+cmp.Or(closed, "no address")))
	}
	return open, nil
}

func (p *Proxy) lookUp(ctx context.Context, h rule.Host) ([]netip.Addr, error) {
	switch {
	case h.Name == "":
		return []netip.Addr{h.Addr}, nil
	case h.Local(): // never asked from anybody (RFC 6761)
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	if strings.HasSuffix(h.Name, ".invalid") { // has never an address (RFC 6761)
		return nil, &net.DNSError{Err: "no such host", Name: h.Name, IsNotFound: true}
	}
	found, err := p.o.Resolve(ctx, h.Name)
	for i, a := range found {
		// A resolver writes IPv4 addresses in either form. One that a name
		// server sent in an IPv6 record is not told apart from it here, and both
		// are screened as what is dialled.
		found[i] = a.Unmap()
	}
	return found, err
}

// dial connects to a target: to an address that was looked up now and screened.
func (p *Proxy) dial(ctx context.Context, t rule.Target, r rule.Rule) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Connect)
	defer cancel()
	addrs, err := p.addresses(ctx, t, r)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, a := range addrs {
		conn, err := p.o.Dial(ctx, netip.AddrPortFrom(a, t.Port))
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connect to %s: %w", t, failed)
}
