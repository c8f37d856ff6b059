package egress

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// Credential is a secret that programs inside can use and not see. A sandbox
// has a placeholder in the variable; in the header of a request to the host, of
// plain HTTP, the proxy puts the secret in its place and sends the request on
// over TLS.
type Credential struct {
	Env    string    // the variable inside
	Host   rule.Host // the only host that gets it, on port 443
	Header string    // the only header that it is put into
	Value  string    // empty: not there; requests that need it are refused
}

// leastSecret is how long a secret must be: one that is shorter stands in
// answers by chance.
const leastSecret = 8

type secret struct {
	Credential
	placeholder string
}

func placeholders(all []Credential) []secret {
	var out []secret
	for _, c := range all {
		c.Header = http.CanonicalHeaderKey(c.Header)
		out = append(out, secret{c, "caisson-placeholder-" + rand.Text()})
	}
	return out
}

// Env returns the variables of the sandbox, KEY=value, with placeholders for
// secrets.
func (p *Proxy) Env() []string {
	var env []string
	for _, s := range p.secrets {
		env = append(env, s.Env+"="+s.placeholder)
	}
	return env
}

// putSecrets makes a request for a host that has credentials one over TLS, and
// puts in those that it asks for.
func (p *Proxy) putSecrets(o *outgoing) error {
	used := false
	for _, s := range p.secrets {
		if s.Host != o.target.Host || o.target.Port != rule.HTTP && o.target.Port != rule.HTTPS {
			continue
		}
		o.secret = append(o.secret, s)
		values := o.req.Header[s.Header]
		for i, value := range values {
			filled, found := s.fill(value)
			if !found {
				continue
			}
			switch {
			case len(s.Value) < leastSecret:
				return p.refuse(o.target.String(), ReasonCredential, fmt.Errorf("%s is not set", s.Env))
			case strings.ContainsAny(s.Value, "\r\n\x00"):
				return p.refuse(o.target.String(), ReasonCredential, fmt.Errorf("%s holds a line break, which no header can", s.Env))
			}
			values[i], used = filled, true
			o.hide = append(o.hide, swap{filled, value})
		}
	}
	if o.secret == nil {
		return nil
	}
	o.target.Port = rule.HTTPS
	o.req.URL.Scheme, o.req.URL.Host, o.req.Host = "https", o.target.String(), hostHeader(o.target)
	if !used {
		o.secret, o.hide = nil, nil
		return nil
	}
	for _, s := range o.secret {
		o.hide = append(o.hide, swaps(s.Value, s.placeholder)...)
	}
	// The longest first: one may be the beginning of another.
	slices.SortStableFunc(o.hide, func(a, b swap) int { return len(b.from) - len(a.from) })
	if o.socket {
		return p.refuse(o.target.String(), ReasonCredential, errors.New("what comes back over a WebSocket cannot be seen through"))
	}
	// What comes back must be seen whole and as it is.
	o.req.Header.Set("Accept-Encoding", "identity")
	o.req.Header.Del("Range")
	o.req.Header.Del("If-Range")
	return nil
}

// fill puts the secret into the value of a header, also where it is part of a
// user name and password.
func (s secret) fill(value string) (string, bool) {
	if strings.Contains(value, s.placeholder) {
		return strings.ReplaceAll(value, s.placeholder, s.Value), true
	}
	scheme, coded, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return value, false
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
	if err != nil || !bytes.Contains(plain, []byte(s.placeholder)) {
		return value, false
	}
	filled := bytes.ReplaceAll(plain, []byte(s.placeholder), []byte(s.Value))
	return "Basic " + base64.StdEncoding.EncodeToString(filled), true
}

// swap is a text that must not come back, and what stands for it.
type swap struct{ from, to string }

// swaps are the forms that answers commonly have a value in. That a host hides
// it in another one cannot be seen: it is the host's own secret.
func swaps(value, placeholder string) []swap {
	if len(value) < leastSecret {
		return nil
	}
	all := []swap{{value, placeholder}}
	for _, form := range []func(string) string{
		url.QueryEscape, url.PathEscape, html.EscapeString, inJSON,
		func(s string) string { b, _ := json.Marshal(s); return strings.Trim(string(b), `"`) }, // with what HTML has no use for
		func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	} {
		if from := form(value); from != value {
			all = append(all, swap{from, form(placeholder)})
		}
	}
	return all
}

func inJSON(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`).Replace(s) }

// hideSecrets takes out of an answer what was put into its request.
func (p *Proxy) hideSecrets(o *outgoing, answer *http.Response) error {
	if o.secret == nil {
		return nil
	}
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return p.refuse(o.target.String(), ReasonCredential, errors.New("the answer is compressed and cannot be seen through"))
	}
	answer.Status = "" // the host's own words for the status
	for name, values := range answer.Header {
		for _, s := range o.hide {
			if strings.Contains(strings.ToLower(name), strings.ToLower(s.from)) {
				delete(answer.Header, name)
			}
			for i := range values {
				values[i] = strings.ReplaceAll(values[i], s.from, s.to)
			}
		}
	}
	if answer.Body != nil && answer.Body != http.NoBody && answer.Request != nil && answer.Request.Method != http.MethodHead {
		answer.Body = &hiding{from: answer.Body, hide: o.hide}
		answer.ContentLength = -1
		answer.Header.Del("Content-Length")
	}
	return nil
}

// hiding is a body in which placeholders stand for secrets, also for one that
// comes in pieces. It holds back only what may be the beginning of a secret.
type hiding struct {
	from  io.ReadCloser
	hide  []swap
	held  []byte // read and not looked at to its end
	ready []byte
	err   error
}

func (h *hiding) Read(b []byte) (int, error) {
	for len(h.ready) == 0 {
		if h.err != nil {
			return 0, h.err
		}
		piece := make([]byte, max(len(b), 4<<10))
		n, err := h.from.Read(piece)
		h.held, h.err = append(h.held, piece[:n]...), err
		for _, s := range h.hide {
			h.held = bytes.ReplaceAll(h.held, []byte(s.from), []byte(s.to))
		}
		keep := 0
		if err == nil {
			keep = h.begun()
		}
		h.ready, h.held = h.held[:len(h.held)-keep], append([]byte(nil), h.held[len(h.held)-keep:]...)
	}
	n := copy(b, h.ready)
	h.ready = h.ready[n:]
	return n, nil
}

// begun is how many bytes at the end may be the beginning of a secret.
func (h *hiding) begun() int {
	longest := 0
	for _, s := range h.hide {
		for n := min(len(s.from)-1, len(h.held)); n > longest; n-- {
			if bytes.HasSuffix(h.held, []byte(s.from[:n])) {
				longest = n
			}
		}
	}
	return longest
}

func (h *hiding) Close() error { return h.from.Close() }
