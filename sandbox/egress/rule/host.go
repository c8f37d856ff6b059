// Package rule reads the names of hosts and the rules that speak of them.
//
// A name is judged only in its canonical form, and what has none is no name: a
// program inside writes names in any way that might be read as another one by
// somebody else. The package does no look-ups.
package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Host is a canonical host: a name in lower-case ASCII without a trailing dot,
// or an address. Exactly one is set. Hosts can be compared.
type Host struct {
	Name string
	Addr netip.Addr // never an IPv4 address in IPv6 form, never with a zone
}

// String returns the host as it stands in a URL without a port, but for the
// brackets of an IPv6 address.
func (h Host) String() string {
	if h.Name != "" {
		return h.Name
	}
	return h.Addr.String()
}

// Outside is what this machine is called inside a sandbox, where localhost is
// the sandbox itself. A rule for localhost speaks of it too.
const Outside = "host.caisson.internal"

// Local tells whether the host names this machine by name (RFC 6761).
func (h Host) Local() bool {
	return h.Name == "localhost" || h.Name == Outside || strings.HasSuffix(h.Name, ".localhost")
}

// Target is a host and a port.
type Target struct {
	Host Host
	Port uint16
}

// String returns host:port, with brackets around an IPv6 address.
func (t Target) String() string {
	if t.Host.Name == "" {
		return netip.AddrPortFrom(t.Host.Addr, t.Port).String()
	}
	return t.Host.Name + ":" + strconv.Itoa(int(t.Port))
}

const (
	maxText  = 1024 // no host that can be meant is longer in any form
	maxName  = 253
	maxLabel = 63
)

// names maps a name as browsers do before a look-up and checks its labels. What
// DNS allows in names and STD3 does not (the underscore) is checked here.
func names() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false), idna.ValidateLabels(true), idna.BidiRule())
}

// ParseHost returns the canonical form of a host: case, a trailing dot and
// international names are brought to one form; an IPv6 address may have
// brackets. Anything else is an error: empty, NUL and control bytes, blanks,
// percent signs, user names, paths, zones, and numbers that some programs would
// read as an IPv4 address (0x7f.1, 2130706433, 010.0.0.1).
func ParseHost(text string) (Host, error) {
	switch {
	case text == "":
		return Host{}, errors.New("the host is empty")
	case len(text) > maxText:
		return Host{}, errors.New("the host is too long")
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok || !strings.Contains(inner, ":") {
			return Host{}, fmt.Errorf("%q is no IPv6 address in brackets", text)
		}
		return parseAddr(inner)
	}
	if strings.Contains(text, ":") {
		return parseAddr(text)
	}
	return parseName(text)
}

func parseAddr(text string) (Host, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return Host{}, fmt.Errorf("%q is no address, or has a zone", text)
	}
	return Host{Addr: addr.Unmap()}, nil
}

func parseName(text string) (Host, error) {
	for i := range len(text) {
		// The bytes of a name that are ASCII are these before any mapping: what
		// could end a name for somebody else never gets as far as that.
		if c := text[i]; c < 0x80 && !plainByte(c) {
			return Host{}, fmt.Errorf("%q holds a character that no host has", text)
		}
	}
	profile := names()
	name, err := profile.ToASCII(text)
	if err != nil || !utf8.ValidString(text) {
		return Host{}, fmt.Errorf("%q is no name of a host", text)
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	// A form that has another one in turn is not canonical.
	if again, err := profile.ToASCII(name); err != nil || again != name || name == "" || len(name) > maxName {
		return Host{}, fmt.Errorf("%q is no name of a host", text)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !validLabel(label) {
			return Host{}, fmt.Errorf("%q is no name of a host", text)
		}
	}
	if numeric(labels[len(labels)-1]) {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return Host{}, fmt.Errorf("%q is an address in an unusual form", text)
		}
		return Host{Addr: addr}, nil
	}
	return Host{Name: name}, nil
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
}

func validLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		if !plainByte(label[i]) || label[i] == '.' {
			return false
		}
	}
	return true
}

// numeric tells whether programs would read a name that ends in this label as
// an IPv4 address (WHATWG URL, "ends in a number").
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// ParseTarget reads host:port. Without a port it is otherwise; 0 there says
// that there must be one.
func ParseTarget(text string, otherwise uint16) (Target, error) {
	host, port, given := cutPort(text)
	t := Target{Port: otherwise}
	if strings.Contains(text, "://") {
		return t, fmt.Errorf("%q is a URL, and not a host", text)
	}
	var err error
	if given {
		if t.Port, err = ParsePort(port); err != nil {
			return t, err
		}
	}
	if t.Port == 0 {
		return t, fmt.Errorf("%q has no port", text)
	}
	t.Host, err = ParseHost(host)
	return t, err
}

// cutPort takes the port off. An IPv6 address has one only behind brackets.
func cutPort(text string) (host, port string, given bool) {
	i := strings.LastIndexByte(text, ':')
	switch {
	case i < 0, strings.HasSuffix(text, "]"):
		return text, "", false
	case strings.IndexByte(text, ':') != i && !strings.HasPrefix(text, "["):
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// ParsePort reads a port in decimal digits, from 1.
func ParsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return uint16(n), nil
}
