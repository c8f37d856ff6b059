package rule

import "net/netip"

// What addresses are that are not hosts of the internet.
const (
	loopback = "a loopback address"
	private  = "an address of a private network"
	carrier  = "an address of a carrier's network"
	metadata = "an address of a cloud's metadata service"
)

// block is a range of addresses and what it is for.
type block struct {
	prefix netip.Prefix
	what   string
}

// blocks are the special-purpose registries of IANA (RFC 6890 and its
// successors), with the addresses at which clouds give out credentials. Ranges
// that carry an IPv4 address inside an IPv6 one are closed as a whole: what is
// inside would have to be screened as whoever translates it reads it.
func blocks() []block {
	list := func(what string, prefixes ...string) []block {
		out := make([]block, len(prefixes))
		for i, p := range prefixes {
			out[i] = block{netip.MustParsePrefix(p), what}
		}
		return out
	}
	var all []block
	for _, group := range [][]block{
		list(metadata, "169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd20:ce::254/128"),
		list(loopback, "127.0.0.0/8", "::1/128"),
		list(private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
		list(carrier, "100.64.0.0/10"),
		list("an address of this network", "0.0.0.0/8", "::/128"),
		list("a link-local address", "169.254.0.0/16", "fe80::/10", "fec0::/10"),
		list("a multicast address", "224.0.0.0/4", "ff00::/8"),
		list("an address for documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
		list("an address for benchmarks", "198.18.0.0/15", "2001:2::/48"),
		list("an IPv4 address inside an IPv6 one", "::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
		list("a reserved address", "240.0.0.0/4", "192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24", "192.88.99.0/24", "100::/64", "100:0:0:1::/64", "2001::/23", "5f00::/16"),
	} {
		all = append(all, group...)
	}
	return all
}

// globalUnicast is where the internet's IPv6 hosts are; what is outside it is
// not assigned to any.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// special is the table, read once.
var special = blocks()

// Special says what an address is that is no host of the internet; "" of one that is.
func Special(a netip.Addr) string {
	if a.Zone() != "" {
		return "an address with a zone"
	}
	if a.Is4In6() {
		return "an IPv4 address inside an IPv6 one"
	}
	for _, b := range special {
		if b.prefix.Contains(a) {
			return b.what
		}
	}
	switch {
	case !a.IsValid():
		return "no address"
	case a.Is6() && !globalUnicast.Contains(a):
		return "a reserved address"
	}
	return ""
}
