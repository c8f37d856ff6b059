package egress

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// A name that is open and has an address of this machine, where that is one of
// the internet: servers that listen for this machine's own network would be
// reached past the firewall that keeps others out.
func TestThisMachineIsScreened(t *testing.T) {
	w := newWorld(t, Options{Here: func(_ context.Context, a netip.Addr) bool { return a.String() == publicAddr }}, "site.com", publicAddr+":81")
	w.web("site.com", nil)
	if s := w.status("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n"); s != 403 {
		t.Errorf("by HTTP: %d", s)
	}
	c := w.open("")
	c.send("CONNECT site.com:443 HTTP/1.1\r\n\r\n")
	if r, body := c.answer(); r.StatusCode != 403 || r.Header.Get("Caisson-Refused") != "address" {
		t.Errorf("by CONNECT: %d %q", r.StatusCode, body)
	}
	if got := w.reached(); got != "" {
		t.Errorf("connected to %q", got)
	}
	// Another address of the name is used, and what is listed as it is, is open.
	const other = "93.184.216.35"
	w.names["site.com"] = []string{publicAddr, other}
	w.servers[other+":80"] = w.servers[publicAddr+":80"]
	if s := w.status("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n"); s != 200 || w.reached() != other+":80" {
		t.Errorf("a mixed answer: %d, connected to %q", s, w.reached())
	}
	w.names["site.com"], w.dialled = []string{publicAddr}, nil
	w.proxy.Update([]rule.Rule{must(rule.ParseParts("site.com", []uint16{80}, true)), must(rule.Parse(publicAddr + ":81"))}, nil)
	if s := w.status("GET http://site.com/ HTTP/1.1\r\nHost: site.com\r\n\r\n"); s != 200 {
		t.Errorf("with private: true: %d", s)
	}
	_ = w.status("CONNECT " + publicAddr + ":81 HTTP/1.1\r\n\r\n")
	if got := w.reached(); got != publicAddr+":80 "+publicAddr+":81" {
		t.Errorf("connected to %q", got)
	}
}

func TestHere(t *testing.T) {
	for _, text := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
		if !here(t.Context(), netip.MustParseAddr(text)) {
			t.Errorf("%s is not here", text)
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range addrs {
		if a := netip.MustParsePrefix(on.String()).Addr(); !here(t.Context(), a) {
			t.Errorf("%s is on an interface and not here", a)
		}
	}
	for _, text := range []string{publicAddr, "2606:2800:220:1::1"} {
		if here(t.Context(), netip.MustParseAddr(text)) {
			t.Errorf("%s is here", text)
		}
	}
}
