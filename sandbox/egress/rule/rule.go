package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Scope is which addresses a rule opens.
type Scope string

// Scopes.
const (
	Public  Scope = "public"  // of the internet
	Private Scope = "private" // also those of private networks, that a name may have there
	Local   Scope = "local"   // this machine's loopback
	Exact   Scope = "exact"   // the one address that the rule names
)

// Rule is a grant: a host, or all names below one, and ports.
type Rule struct {
	Host  Host
	Below bool // the names below Host, and not Host itself
	Ports []uint16
	Scope Scope
	// Opaque says that the ports were named, so that on others than those of
	// HTTP and HTTPS any protocol may be spoken.
	Opaque bool
}

// The ports of a rule that names none.
const (
	HTTP  = 80
	HTTPS = 443
)

// Parse reads a rule as it is written in a list: HOST, HOST:PORT, *.HOST or
// *.HOST:PORT. Without a port it is of 443 and 80. What is on this machine or in
// a private network needs its port: nothing there is opened as a whole.
func Parse(text string) (Rule, error) {
	host, port, given := cutPort(text)
	r := Rule{Ports: []uint16{HTTPS, HTTP}, Scope: Public}
	if given {
		p, err := ParsePort(port)
		if err != nil {
			return r, err
		}
		r.Ports, r.Opaque = []uint16{p}, true
	}
	return r.named(host)
}

// ParseParts reads a rule of which the parts are given one by one. private says
// that the name may have an address of a private network.
func ParseParts(host string, ports []uint16, private bool) (Rule, error) {
	r := Rule{Ports: []uint16{HTTPS, HTTP}, Scope: Public}
	if len(ports) > 0 {
		r.Ports, r.Opaque = ports, true
	}
	if private {
		r.Scope = Private
	}
	return r.named(host)
}

// named gives the rule its host and checks the whole.
func (r Rule) named(text string) (Rule, error) {
	text, r.Below = strings.CutPrefix(text, "*.")
	if strings.Contains(text, "*") {
		return r, errors.New("a * stands only for the names below a host: *.example.org")
	}
	var err error
	if r.Host, err = ParseHost(text); err != nil {
		return r, err
	}
	switch {
	case r.Below && r.Host.Name == "":
		return r, errors.New("there are no names below an address")
	case r.Below && (r.Host.Local() || !strings.Contains(r.Host.Name, ".")):
		return r, fmt.Errorf("*.%s is too wide", r.Host)
	case r.Below && registry(r.Host.Name):
		return r, fmt.Errorf("*.%s is too wide: anybody can have a name there; name the host, as in *.example.%s", r.Host, r.Host)
	case r.Host.Local():
		r.Scope = Local
	case r.Host.Name == "" && r.Scope == Private:
		return r, errors.New("an address needs no private: it is opened as it is listed")
	case r.Host.Name == "":
		r.Scope = Exact
		if r.Host.Addr.IsUnspecified() || r.Host.Addr.IsMulticast() || r.Host.Addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return r, fmt.Errorf("%s is the address of no host", r.Host)
		}
	}
	if !r.Opaque && (r.Scope != Public && (r.Scope != Exact || Special(r.Host.Addr) != "")) {
		return r, fmt.Errorf("%s is not on the internet: name its port, as in %s", r.Host, Target{r.Host, 5432})
	}
	return r, nil
}

// registry tells whether names directly below a name are sold to anybody, as
// below co.uk. Where a company lends them to its customers, as below github.io,
// whoever lists them may mean all of them.
func registry(name string) bool {
	for _, name := range []string{name, "any." + name} { // the list has co.uk, and *.kobe.jp
		if suffix, registered := publicsuffix.PublicSuffix(name); registered && suffix == name {
			return true
		}
	}
	return false
}

// Names tells whether the rule speaks of the host, on whatever port.
func (r Rule) Names(h Host) bool {
	if !r.Below {
		return r.Host == h || r.Host.Name == "localhost" && h.Name == Outside
	}
	return strings.HasSuffix(h.Name, "."+r.Host.Name)
}

// Matches tells whether the rule opens the target.
func (r Rule) Matches(t Target) bool { return slices.Contains(r.Ports, t.Port) && r.Names(t.Host) }

// Permits tells whether the rule opens an address that its host was found to
// have; if not it says what the address is.
func (r Rule) Permits(a netip.Addr) (ok bool, what string) {
	what = Special(a)
	switch r.Scope {
	case Public:
		return what == "", what
	case Private:
		return what == "" || what == private || what == carrier, what
	case Local:
		return what == loopback && a == a.Unmap(), what
	case Exact:
		return a == r.Host.Addr, what
	}
	return false, what
}

// Find returns the first rule that opens the target.
func Find(rules []Rule, t Target) (Rule, bool) {
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Matches(t) })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// String returns the rule as people read it.
func (r Rule) String() string {
	text := r.Host.String()
	if r.Host.Addr.Is6() {
		text = "[" + text + "]"
	}
	if r.Below {
		text = "*." + text
	}
	if r.Opaque {
		ports := make([]string, len(r.Ports))
		for i, p := range r.Ports {
			ports[i] = fmt.Sprint(p)
		}
		text += ":" + strings.Join(ports, ",")
	}
	if r.Scope == Private {
		text += " (private)"
	}
	return text
}
