package rule

import (
	"net/netip"
	"strings"
	"testing"
)

// TestCase_S21 covers names that are written so that two readers take them for
// different hosts (reported of SOCKS names with a NUL in another sandbox).
func TestCase_S21(t *testing.T) {
	allowed := must(Parse("allowed.com"))
	for text, same := range map[string]bool{
		"allowed.com": true, "ALLOWED.COM.": true, "Allowed.Com": true, "ａllowed.com": true, "allowed。com": true,
		"allowed.com\x00.evil.com": false, "allowed.com@evil.com": false, "evil.com@allowed.com": false, "evil-allowed.com": false,
		"allowed.com.evil.com": false, "аllowed.com": false /* Cyrillic */, "xn--llowed-4of.com": false, "allowed.com%00.evil.com": false,
		"allowed.com%2eevil.com": false, " allowed.com": false, "allowed.com ": false, "allowed.com\t": false, "allowed.com\r\n": false,
		"allowed.com..": false, "allowed..com": false, ".allowed.com": false, "allowed.com/": false, "allowed.com#": false, "allowed.com?": false,
		`allowed.com\`: false, "allowed.com,evil.com": false, "sub.allowed.com": false, "": false, ".": false, "[allowed.com]": false,
		"allowed.com\x7f": false, "allowed\xff.com": false, "http://allowed.com": false, "allowed.com:443": false,
	} {
		host, err := ParseHost(text)
		if got := err == nil && allowed.Names(host); got != same {
			t.Errorf("%q: taken for allowed.com: %v, want %v (%v, %v)", text, got, same, host, err)
		}
	}
	below := must(Parse("*.allowed.com"))
	for text, same := range map[string]bool{"a.allowed.com": true, "A.B.Allowed.Com.": true, "evil-allowed.com": false, "allowed.com": false, "allowed.com.evil.com": false} {
		if host, err := ParseHost(text); err != nil || below.Names(host) != same {
			t.Errorf("%q: taken for a name below allowed.com: %v, want %v (%v)", text, !same, same, err)
		}
	}
}

func TestAddressesInUnusualForms(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "[::1]": "::1", "::1": "::1", "[::ffff:10.0.0.1]": "10.0.0.1", "127.0.0.1.": "127.0.0.1",
		"0x7f.1": "", "2130706433": "", "0x7f000001": "", "127.1": "", "0177.0.0.1": "", "010.0.0.1": "", "127.0.0.1.1": "",
		"0x7F.0.0.1": "", "1.2.3.0x4": "", "0x": "", "[::1%eth0]": "", "fe80::1%1": "", "[127.0.0.1]": "", "[::1": "", "::1]": "", "１２７.0.0.1": "127.0.0.1",
		"1.2.3": "", "256.1.1.1": "",
	} {
		host, err := ParseHost(text)
		got := ""
		if err == nil {
			got = host.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q (%v)", text, got, want, err)
		}
	}
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"Example.COM:443": "example.com:443", "example.com": "example.com:80", "[::1]:8080": "[::1]:8080", "[2001:DB8::1]": "[2001:db8::1]:80",
		"2001:db8::1": "[2001:db8::1]:80", "1.2.3.4:1": "1.2.3.4:1",
		"example.com:": "", "example.com:0": "", "example.com:65536": "", "example.com:+80": "", "example.com:080": "", "example.com:80:80": "",
		"example.com:８０": "", ":80": "", "example.com: 80": "", "a@example.com:80": "",
	} {
		target, err := ParseTarget(text, 80)
		got := ""
		if err == nil {
			got = target.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q (%v)", text, got, want, err)
		}
	}
	if _, err := ParseTarget("example.com", 0); err == nil {
		t.Error("a target without a port where one is needed")
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct{ rule, open, closed string }{
		{"api.example.com", "api.example.com:443 api.example.com:80 API.example.com.:443", "api.example.com:22 api.example.com:8443 x.api.example.com:443 example.com:443"},
		{"*.example.org:443", "a.example.org:443 a.b.example.org:443", "example.org:443 a.example.org:80 aexample.org:443 a.example.org.evil.com:443"},
		{"*.example.co.uk", "a.example.co.uk:443", "b.co.uk:443"},
		{"*.github.io", "a.github.io:443", "github.io:443"},
		{"*.corp.internal:443", "a.corp.internal:443", "corp.internal:443"},
		{"github.com:22", "github.com:22", "github.com:443 github.com:80"},
		{"localhost:5432", "localhost:5432 host.caisson.internal:5432", "host.caisson.internal:80 localhost:5433 127.0.0.1:5432 a.localhost:5432"},
		{"10.0.0.5:8080", "10.0.0.5:8080 [::ffff:10.0.0.5]:8080", "10.0.0.5:80 10.0.0.6:8080"},
		{"[2001:db8::5]:8080", "[2001:db8:0::5]:8080", "[2001:db8::6]:8080"},
		{"1.1.1.1", "1.1.1.1:443 1.1.1.1:80", "1.1.1.1:53"},
		{"bücher.example", "xn--bcher-kva.example:443 BÜCHER.example:443", "bucher.example:443"},
	} {
		r := must(Parse(c.rule))
		for _, text := range strings.Fields(c.open) {
			if !r.Matches(must(ParseTarget(text, 0))) {
				t.Errorf("%s does not open %s", c.rule, text)
			}
		}
		for _, text := range strings.Fields(c.closed) {
			if r.Matches(must(ParseTarget(text, 0))) {
				t.Errorf("%s opens %s", c.rule, text)
			}
		}
	}
	for _, text := range []string{
		"", "*", "*.com", "*.co.uk", "*.CO.UK.:443", "*.com.au", "*.xn--55qx5d.cn", "*.kobe.jp", "*.*", "a.*.com", "*example.com", "*.", "localhost", "10.0.0.5", "127.0.0.1", "[::1]", "0.0.0.0:80", "224.0.0.1:80",
		"255.255.255.255:1", "*.10.0.0.5:80", "*.localhost:80", "host.caisson.internal", "example.com:http", "http://example.com", "example.com/path", "user@example.com", "169.254.169.254",
	} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q is a rule: %v", text, r)
		}
	}
	if _, err := ParseParts("10.0.0.5", []uint16{80}, true); err == nil {
		t.Error("an address that is private in two ways")
	}
	if _, err := ParseParts("db.internal", nil, true); err == nil {
		t.Error("a private name without ports")
	}
}

// TestCase_S22 covers allowed names that have addresses of this machine, of
// private networks or of a cloud's metadata service (reported of another
// sandbox's proxy).
func TestCase_S22(t *testing.T) {
	public := must(Parse("allowed.com"))
	for _, text := range []string{
		"127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.1.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1",
		"100.100.100.200", "168.63.129.16", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.51.100.1",
		"203.0.113.1", "198.18.0.1", "198.19.255.255", "192.0.0.1", "192.88.99.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1",
		"fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "fd12::1", "ff02::1", "2001:db8::1", "2001:2::1", "100::1", "3fff::1", "4000::1", "5f00::1", "::ffff:0:7f00:1",
		"2001:10::1", "2001:20::1",
	} {
		if ok, what := public.Permits(netip.MustParseAddr(text)); ok || what == "" {
			t.Errorf("%s is taken for a host of the internet", text)
		}
	}
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "93.184.216.34", "2400::1"} {
		if ok, what := public.Permits(netip.MustParseAddr(text)); !ok {
			t.Errorf("%s is refused: it is %s", text, what)
		}
	}
	private := must(ParseParts("db.internal", []uint16{5432}, true))
	local := must(Parse("localhost:80"))
	exact := must(Parse("10.0.0.5:80"))
	for _, c := range []struct {
		r    Rule
		addr string
		ok   bool
	}{
		{private, "10.0.0.5", true},
		{private, "192.168.1.1", true},
		{private, "fd12::1", true},
		{private, "100.64.0.1", true},
		{private, "8.8.8.8", true},
		{private, "127.0.0.1", false},
		{private, "169.254.169.254", false},
		{private, "fd00:ec2::254", false},
		{private, "100.100.100.200", false},
		{private, "::ffff:10.0.0.1", false},
		{local, "127.0.0.1", true},
		{local, "::1", true},
		{local, "10.0.0.1", false},
		{local, "8.8.8.8", false},
		{local, "::ffff:127.0.0.1", false},
		{exact, "10.0.0.5", true},
		{exact, "10.0.0.6", false},
		{exact, "127.0.0.1", false},
	} {
		if ok, _ := c.r.Permits(netip.MustParseAddr(c.addr)); ok != c.ok {
			t.Errorf("%v permits %s: %v", c.r, c.addr, ok)
		}
	}
}

// FuzzParseHost checks that the canonical form is one: it is its own, and holds
// only what a name may hold.
func FuzzParseHost(f *testing.F) {
	for _, seed := range []string{"allowed.com", "ALLOWED.COM.", "a\x00b", "bücher.example", "xn--bcher-kva.example", "[::1]", "0x7f.1", "2130706433", "a@b", "1.2.3.4", "ß.de", "a。b", "xn--", "a_b.c", "-a.b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := ParseHost(text)
		if err != nil {
			return
		}
		again, err := ParseHost(host.String())
		if err != nil || again != host {
			t.Fatalf("%q: %v becomes %v (%v)", text, host, again, err)
		}
		if (host.Name == "") == !host.Addr.IsValid() {
			t.Fatalf("%q: neither name nor address, or both: %v", text, host)
		}
		for _, c := range host.Name {
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
				t.Fatalf("%q: %q is in the name", text, c)
			}
		}
		target := Target{host, 443}
		if back, err := ParseTarget(target.String(), 0); err != nil || back != target {
			t.Fatalf("%v becomes %v (%v)", target, back, err)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
