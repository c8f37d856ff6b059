package egress

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// Reason is why a connection or request was refused.
type Reason string

// Reasons.
const (
	ReasonUnlisted   Reason = "unlisted"    // no rule opens the host and port
	ReasonName       Reason = "name"        // it is no name of a host
	ReasonAddress    Reason = "address"     // the name has only addresses that are not open
	ReasonHost       Reason = "host"        // the Host header names another one
	ReasonServerName Reason = "server-name" // TLS names another one, or none, or hides it
	ReasonProtocol   Reason = "protocol"    // not what is spoken on the port, or not carried
	ReasonCredential Reason = "credential"  // the credential is not there, or could come back
	ReasonFull       Reason = "full"        // too many connections at a time
)

// Refusal is something that was refused.
type Refusal struct {
	Target string `json:"target,omitempty"` // host:port; empty where it could not be read
	Reason Reason `json:"reason"`
}

// Count is what happened with one target.
type Count struct {
	Target      string           `json:"target,omitempty"` // empty: what could not be read, and what there was no room for
	Connections int64            `json:"connections"`
	Up          int64            `json:"up"`   // bytes sent to it
	Down        int64            `json:"down"` // bytes received
	Refused     map[Reason]int64 `json:"refused,omitempty"`
}

// Counts returns what happened so far, by target.
func (p *Proxy) Counts() []Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Count
	for _, target := range slices.Sorted(maps.Keys(p.counts)) {
		c := *p.counts[target]
		c.Refused = maps.Clone(c.Refused)
		out = append(out, c)
	}
	return out
}

func (p *Proxy) countLocked(target string) *Count {
	c := p.counts[target]
	if c == nil && len(p.counts) >= maxCounts {
		c, target = p.counts[""], ""
	}
	if c == nil {
		c = &Count{Target: target}
		p.counts[target] = c
	}
	return c
}

func (p *Proxy) count(target string, up, down int64) {
	if up == 0 && down == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.countLocked(target)
	c.Up += up
	c.Down += down
}

// refusedError is a refusal on its way to the program that is refused.
type refusedError struct {
	Refusal
	err *caisson.Error
	why error // nil where the reason says all
}

func (e *refusedError) Error() string { return e.err.Error() }

func (e *refusedError) Unwrap() []error {
	if e.why == nil {
		return []error{e.err}
	}
	return []error{e.err, e.why}
}

// refuse counts and tells a refusal, and returns it. why is a further reason
// in words, or nil.
func (p *Proxy) refuse(target string, reason Reason, why error) error {
	refusal := Refusal{target, reason}
	p.mu.Lock()
	c := p.countLocked(target)
	if c.Refused == nil {
		c.Refused = map[Reason]int64{}
	}
	c.Refused[reason]++
	tell := p.o.Refused != nil && !p.told[refusal] && len(p.told) < MaxTold
	if tell {
		p.told[refusal] = true
	}
	p.mu.Unlock()
	if tell {
		p.o.Refused(refusal)
	}
	return &refusedError{refusal, p.words(refusal, why), why}
}

// words is what the program, and so the agent, is told.
func (p *Proxy) words(r Refusal, why error) *caisson.Error {
	text, hint := "", ""
	switch r.Reason {
	case ReasonUnlisted:
		text = fmt.Sprintf("%s is not among the hosts that may be reached from this sandbox", r.Target)
		hint = fmt.Sprintf("Ask the person to add %q to `network:` in their own Caisson config; it holds at once, without a restart. Open now: %s.", entry(r.Target), p.open())
	case ReasonName:
		text = "that is no name of a host"
		hint = "Write a plain host name, without user name, percent signs or zones."
	case ReasonAddress:
		text = fmt.Sprintf("%s has no address that may be reached", r.Target)
		hint = "A name of a private network, or of this machine, needs its ports and `private: true` in `network:`; what listens on loopback is listed as localhost:PORT."
	case ReasonHost:
		text = fmt.Sprintf("the Host header is not that of %s", r.Target)
		hint = "Send one Host header that names the host of the request."
	case ReasonServerName:
		text = fmt.Sprintf("the TLS greeting does not name %s in clear", r.Target)
		hint = "Let the client send the host's name (SNI), without encrypted client hello."
	case ReasonProtocol:
		text = fmt.Sprintf("%s may not be spoken to in this way", cmp.Or(r.Target, "this proxy"))
		hint = "HTTP on port 80, TLS on port 443, other protocols on a port that `network:` names; no HTTP/2 without TLS; WebSocket is the only upgrade. The proxy speaks HTTP, CONNECT and SOCKS5."
	case ReasonCredential:
		text = fmt.Sprintf("the credential for %s cannot be used", r.Target)
		hint = "Its variable must be set where Caisson runs, to at least 8 bytes."
	case ReasonFull:
		text = "too many connections are open from this sandbox"
		hint = "Close some first."
	}
	if why != nil {
		text += ": " + why.Error()
	}
	return caisson.Errorf(caisson.CodeNetworkRefused, "%s", text).WithHint("%s", hint)
}

// entry is how a target would be listed.
func entry(target string) string {
	for _, port := range []string{":443", ":80"} {
		if host, ok := strings.CutSuffix(target, port); ok && !strings.HasSuffix(host, "]") {
			return host
		}
	}
	return target
}

// open lists what is open, for a refusal.
func (p *Proxy) open() string {
	const most = 20
	p.mu.Lock()
	defer p.mu.Unlock()
	var texts []string
	for _, r := range p.rules {
		text := r.String()
		if r.Host.Name == "localhost" {
			text += " (as " + rule.Outside + ")"
		}
		texts = append(texts, text)
	}
	for t := range p.approved {
		if p.unknown != nil {
			texts = append(texts, t.String())
		}
	}
	switch {
	case len(texts) == 0:
		return "nothing"
	case len(texts) > most:
		texts = append(texts[:most], "…")
	}
	return strings.Join(texts, ", ")
}

// badName refuses what is no name. Nothing of the name is kept: it may be of any
// length and hold anything.
func (p *Proxy) badName(why error) error { return p.refuse("", ReasonName, why) }

// refusalOf returns the refusal in an error.
func refusalOf(err error) (*refusedError, bool) {
	var refused *refusedError
	ok := errors.As(err, &refused)
	return refused, ok
}
