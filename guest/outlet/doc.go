// Package outlet is the inside half of a sandbox's only way out: what makes
// programs reach hosts by name, with proxy variables or without, in a network
// namespace that has no device but lo.
//
// Names are answered on 127.0.0.1:53 with made-up addresses, the kernel leads
// every TCP connection to one of those to a listener of the guest's, and that
// hands the connection itself, with the name and port that were meant, to the
// host: a descriptor over a second socket (see [Frame]). A second listener, on
// [ProxyPort], hands over connections to a proxy, which say themselves what
// they want. No byte of a connection passes through the guest.
//
// What is promised: a name is looked up and a connection carried only where the
// host says so, for each anew; memory, descriptors and goroutines are bounded
// whatever programs do; the address of a name stays its own while it is used, and
// goes to no other before all of them have been given out.
//
// What is not promised: that made-up addresses are anything but a way to ask.
// Programs may guess or exchange them and gain nothing: the host judges name and
// port. Nor that every program is served by one listener a port, where the kernel
// or the engine allows nothing better (see [Mode]).
package outlet

// FD is the descriptor on which the guest program finds its end of the socket
// to the host, a SOCK_SEQPACKET pair.
const FD = 5

// ProxyPort is the port on 127.0.0.1 of the proxy, which speaks HTTP and SOCKS5.
const ProxyPort = 3128

// directPort is where the kernel leads connections to made-up addresses.
const directPort = 3129

// Options are what the host says of the way out.
type Options struct {
	// Ports are listened on where connections cannot be redirected.
	Ports []uint16 `json:"ports,omitempty"`
}

// Mode is how connections by name are caught.
type Mode string

// Modes, the better first.
const (
	// ModeRedirect catches those to all ports, with rules of the namespace's own.
	ModeRedirect Mode = "redirect"
	// ModePorts catches those to Options.Ports: the kernel has no such rules.
	ModePorts Mode = "ports"
	// ModeLoopback is ModePorts with made-up addresses out of 127.0.0.0/8: the
	// guest may not change its network. Ports below 1024 then need
	// net.ipv4.ip_unprivileged_port_start=0, and are left out without it.
	ModeLoopback Mode = "loopback"
	// ModeProxy catches none: not even names can be answered, for want of the
	// right to listen on port 53. Programs must know of the proxy.
	ModeProxy Mode = "proxy"
)

// Valid tells whether m is one of the modes.
func (m Mode) Valid() bool {
	return m == ModeRedirect || m == ModePorts || m == ModeLoopback || m == ModeProxy
}
