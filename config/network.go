package config

import (
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/caisson-run/caisson/internal/strictyaml"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// NoNetwork says that nothing may be reached.
const NoNetwork = "none"

// What happens when a program inside wants to reach a host that is not listed.
const (
	UnknownDeny   = "deny"   // it is refused
	UnknownReview = "review" // policy judges it, and a person is asked where it says so
)

// Credential is a secret of the person's environment that programs inside can
// use at one host and not see.
type Credential struct {
	Env    string // the variable, outside and inside
	Host   rule.Host
	Header string
}

func readNetwork(c *Config, v strictyaml.Value) error {
	c.Network = nil
	if !v.IsList() {
		text, err := v.String()
		if err == nil && text != NoNetwork {
			err = v.Errorf("must be %s or a list of hosts, not %q", NoNetwork, text)
		}
		return err
	}
	items, err := v.List()
	if err != nil {
		return err
	}
	for _, item := range items {
		r, err := readHost(item)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.Network, func(other rule.Rule) bool { return other.String() == r.String() }) {
			return item.Errorf("%s is there twice", r)
		}
		c.Network = append(c.Network, r)
	}
	return nil
}

func readHost(v strictyaml.Value) (rule.Rule, error) {
	if !v.IsMap() {
		text, err := v.String()
		if err != nil {
			return rule.Rule{}, err
		}
		r, err := rule.Parse(text)
		if err != nil {
			err = v.Errorf("%v", err)
		}
		return r, err
	}
	fields, err := v.Fields("host", "ports", "private")
	if err != nil {
		return rule.Rule{}, err
	}
	host, private := "", false
	var ports []uint16
	for _, f := range fields {
		switch f.Name {
		case "host":
			host, err = f.Value.String()
		case "ports":
			ports, err = readPorts(f.Value)
		case "private":
			private, err = f.Value.Bool()
		}
		if err != nil {
			return rule.Rule{}, err
		}
	}
	r, err := rule.ParseParts(host, ports, private)
	if err != nil {
		err = v.Errorf("%v", err)
	}
	return r, err
}

func readPorts(v strictyaml.Value) ([]uint16, error) {
	items, err := v.Items()
	if err != nil {
		return nil, err
	}
	var ports []uint16
	for _, item := range items {
		n, err := item.Int()
		if err != nil {
			return nil, err
		}
		port, err := rule.ParsePort(strconv.FormatInt(n, 10))
		if err != nil || slices.Contains(ports, port) {
			return nil, item.Errorf("%d is no port, or is there twice", n)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func readNetworkUnknown(c *Config, v strictyaml.Value) (err error) {
	c.NetworkUnknown, err = oneOf(v, UnknownDeny, UnknownReview)
	return err
}

// tightenNetwork lets a repository close everything, and open nothing.
func tightenNetwork(_, after *Config) string {
	if len(after.Network) > 0 {
		return "would open hosts; a repository may only say " + NoNetwork
	}
	after.NetworkUnknown = UnknownDeny
	return ""
}

func tightenNetworkUnknown(before, after *Config) string {
	if after.NetworkUnknown == UnknownReview && before.NetworkUnknown != UnknownReview {
		return "review would let hosts be asked for that are refused"
	}
	return ""
}

func readCredentials(c *Config, v strictyaml.Value) error {
	items, err := v.List()
	if err != nil {
		return err
	}
	c.Credentials = nil
	for _, item := range items {
		credential, err := readCredential(item)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.Credentials, func(other Credential) bool {
			return other.Env == credential.Env || other.Host == credential.Host && other.Header == credential.Header
		}) {
			return item.Errorf("a second credential in %s, or for that header of %s", credential.Env, credential.Host)
		}
		c.Credentials = append(c.Credentials, credential)
	}
	return nil
}

func readCredential(v strictyaml.Value) (Credential, error) {
	out := Credential{Header: "Authorization"}
	fields, err := v.Fields("env", "host", "header")
	if err != nil {
		return out, err
	}
	for _, f := range fields {
		text, err := f.Value.String()
		if err != nil {
			return out, err
		}
		switch f.Name {
		case "env":
			if out.Env = text; !envText.MatchString(text) {
				return out, f.Value.Errorf("%q is not the name of a variable", text)
			}
		case "host":
			if out.Host, err = rule.ParseHost(text); err != nil || out.Host.Name == "" || out.Host.Local() {
				return out, f.Value.Errorf("%q is not the name of a host of the internet", text)
			}
		case "header":
			if out.Header = textproto.CanonicalMIMEHeaderKey(text); !mayHoldSecret(out.Header) {
				return out, f.Value.Errorf("%q is not a header that a credential can be in", text)
			}
		}
	}
	if out.Env == "" || out.Host.Name == "" {
		return out, v.Errorf("a credential has env and host")
	}
	return out, nil
}

// mayHoldSecret leaves out what the proxy itself reads or writes.
func mayHoldSecret(header string) bool {
	return httpguts.ValidHeaderFieldName(header) && !strings.HasPrefix(header, "Proxy-") && !slices.Contains([]string{
		"Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Range", "If-Range", "Accept-Encoding", "Http2-Settings",
	}, header)
}

func ruleTexts(rules []rule.Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.String()
	}
	return out
}

func credentialTexts(all []Credential) []string {
	out := make([]string, len(all))
	for i, c := range all {
		out[i] = c.Env + " in " + c.Header + " of " + c.Host.String()
	}
	return out
}
