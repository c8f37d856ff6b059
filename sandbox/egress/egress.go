// Package egress is the host's half of a sandbox's only way out: it judges every
// connection that programs inside make, and carries those that may be made.
//
// A name is judged in its canonical form, resolved once, and each address that
// it has is screened; the connection goes to an address that was screened, and
// nothing is looked up again. What a program says later inside the connection
// (TLS server name, HTTP Host) must agree with what was judged.
//
// What is not promised: what happens inside an encrypted connection cannot be
// seen. A host that forwards for others, as some content networks do, can be
// made to forward; allow only hosts that you would send the workspace to.
package egress

import (
	"context"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// Options configure a [Proxy]. Zero numbers and times are the defaults named.
type Options struct {
	Rules []rule.Rule
	// Unknown is asked about a target that no rule opens, and returns nil if it
	// may be reached for as long as the proxy asks it. It must return when ctx
	// ends, and bounds how often it asks people. Addresses and names of this machine
	// are never asked about. Nil: what is unknown is refused. [Proxy.Update] changes it.
	Unknown func(ctx context.Context, t rule.Target) error
	// Credentials are put into requests for their hosts.
	Credentials []Credential
	// Refused is told of the first refusal of each kind to each target, up to
	// MaxTold of them; all are counted. It must return at once. Nil: nobody is told.
	Refused func(Refusal)

	// Resolve looks a name up; nil asks the host's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Here tells whether an address is one of this machine's; nil asks the kernel.
	Here func(ctx context.Context, a netip.Addr) bool
	// Roots are what the certificates of hosts with credentials are checked with;
	// nil: the system's.
	Roots *x509.CertPool
	// Dial connects to a screened address; nil connects with TCP.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)

	MaxConns int           // connections from inside at a time; as many as a guest hands over ([outlet.MaxConns])
	Head     time.Duration // for what says where a connection goes: request heads, TLS and SOCKS greetings; 20 s
	Idle     time.Duration // without a byte either way; 15 min
	Connect  time.Duration // to look a host up and connect to it; 30 s
	Wait     time.Duration // for an answer of Unknown; 5 min
}

// MaxTold bounds what Refused is told of, and maxCounts what is counted by
// target: a program inside chooses both.
const (
	MaxTold   = 200
	maxCounts = 2000
)

// Proxy implements [caisson.Egress]. Safe for concurrent use.
type Proxy struct {
	o       Options
	secrets []secret
	lent    atomic.Int64 // bytes of buffers that tunnels hold beyond the least

	mu       sync.Mutex
	rules    []rule.Rule
	unknown  func(ctx context.Context, t rule.Target) error
	approved map[rule.Target]bool // while there is unknown
	links    map[*link]struct{}
	conns    int
	counts   map[string]*Count
	told     map[Refusal]bool
}

var _ caisson.Egress = (*Proxy)(nil)

// New returns a proxy. It starts nothing.
func New(o Options) *Proxy {
	orElse := func(at *time.Duration, d time.Duration) {
		if *at <= 0 {
			*at = d
		}
	}
	orElse(&o.Head, 20*time.Second)
	orElse(&o.Idle, 15*time.Minute)
	orElse(&o.Connect, 30*time.Second)
	orElse(&o.Wait, 5*time.Minute)
	if o.MaxConns <= 0 {
		o.MaxConns = outlet.MaxConns
	}
	if o.Resolve == nil {
		o.Resolve = resolve
	}
	if o.Here == nil {
		o.Here = here
	}
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	return &Proxy{
		o: o, secrets: placeholders(o.Credentials), rules: slices.Clone(o.Rules), unknown: o.Unknown,
		approved: map[rule.Target]bool{}, links: map[*link]struct{}{}, counts: map[string]*Count{}, told: map[Refusal]bool{},
	}
}

// Update puts other rules into force, and another Unknown, and ends the
// connections to what they do not open. What was approved stays so; it is closed
// while unknown is nil.
func (p *Proxy) Update(rules []rule.Rule, unknown func(ctx context.Context, t rule.Target) error) {
	p.mu.Lock()
	p.rules, p.unknown = slices.Clone(rules), unknown
	var ended []*link
	for l := range p.links {
		if _, ok := p.findLocked(l.target); !ok {
			ended = append(ended, l)
		}
	}
	p.mu.Unlock()
	for _, l := range ended {
		l.end()
	}
}

// Resolvable implements [caisson.Egress].
func (p *Proxy) Resolvable(_ context.Context, name string) bool {
	host, err := rule.ParseHost(name)
	if err != nil || host.Name == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.rules, func(r rule.Rule) bool { return r.Names(host) }) {
		return true
	}
	// No look-up leaves the sandbox for it, and a target is asked about only
	// when it is dialled. What was approved could be asked about.
	return p.unknown != nil && askable(host)
}

// askable tells whether a host that no rule names can be asked about.
func askable(h rule.Host) bool { return h.Name != "" && !h.Local() }

// Ports implements [caisson.Egress].
func (p *Proxy) Ports() []uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ports := map[uint16]bool{}
	for _, r := range p.rules {
		for _, port := range r.Ports {
			ports[port] = true
		}
	}
	if p.unknown != nil {
		ports[rule.HTTP], ports[rule.HTTPS] = true, true
	}
	return slices.Sorted(maps.Keys(ports))
}

// findLocked returns the rule that opens a target now.
func (p *Proxy) findLocked(t rule.Target) (rule.Rule, bool) {
	if r, ok := rule.Find(p.rules, t); ok {
		return r, true
	}
	if p.unknown != nil && p.approved[t] {
		return rule.Rule{Host: t.Host, Ports: []uint16{t.Port}, Scope: rule.Public, Opaque: true}, true
	}
	return rule.Rule{}, false
}

func (p *Proxy) find(t rule.Target) (rule.Rule, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findLocked(t)
}

// admit judges a target. Where nobody has said anything about it, it may wait
// for somebody who does.
func (p *Proxy) admit(ctx context.Context, t rule.Target) (rule.Rule, error) {
	p.mu.Lock()
	r, ok := p.findLocked(t)
	unknown := p.unknown
	p.mu.Unlock()
	if ok {
		return r, nil
	}
	if unknown == nil || !askable(t.Host) {
		return rule.Rule{}, p.refuse(t.String(), ReasonUnlisted, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Wait)
	defer cancel()
	if err := unknown(ctx, t); err != nil {
		return rule.Rule{}, p.refuse(t.String(), ReasonUnlisted, err)
	}
	p.Approve(t)
	if r, ok = p.find(t); !ok { // nobody is asked any more
		return rule.Rule{}, p.refuse(t.String(), ReasonUnlisted, nil)
	}
	return r, nil
}

// Approve opens a target of the internet until the proxy's end, while there is
// an Unknown that could be asked about it.
func (p *Proxy) Approve(t rule.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.approved[t] = true
}

// link is an open connection to a target.
type link struct {
	target rule.Target
	end    func()
}

// join registers a connection. It returns false if the target was closed
// meanwhile; then nothing was registered.
func (p *Proxy) join(t rule.Target, end func()) (leave func(), ok bool) {
	l := &link{t, end}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.findLocked(t); !open {
		return nil, false
	}
	p.links[l] = struct{}{}
	p.countLocked(t.String()).Connections++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}, true
}

// Carry implements [caisson.Egress]. A connection over the bound of MaxConns, or
// one that is no network connection, is ended at once.
func (p *Proxy) Carry(ctx context.Context, conn io.ReadWriteCloser, target string) {
	nc, ok := conn.(net.Conn)
	if !ok {
		_ = conn.Close() // nothing can be carried on it
		return
	}
	if !p.enter() {
		_ = p.refuse("", ReasonFull, nil)
		reset(nc)
		return
	}
	defer p.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	s := newStream(p, nc)
	defer s.close()
	s.serve(ctx, target)
}

func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns >= p.o.MaxConns {
		return false
	}
	p.conns++
	return true
}

func (p *Proxy) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns--
}

// reset ends a connection so that the program sees that it was refused, and
// not that the other side had nothing to say.
func reset(conn net.Conn) {
	if hard, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = hard.SetLinger(0)
	}
	_ = conn.Close()
}
