//go:build linux

package namespace_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// With the product's own proxy at the other end: the same site by proxy
// variables, by SOCKS, and by name alone; and others by none of them.
func TestEgressWithProxy(t *testing.T) {
	plain, secure, authority := site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s", r.Method, r.Host)
	}))
	open, err := rule.Parse("site.example")
	if err != nil {
		t.Fatal(err)
	}
	proxy := egress.New(egress.Options{
		Rules: []rule.Rule{open},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			at := plain
			if to.Port() == 443 {
				at = secure
			}
			return new(net.Dialer).DialContext(ctx, "tcp", at)
		},
	})
	sb, ws := openWith(t, proxy, func(s *caisson.SandboxSpec) { s.Env = []string{"CURL_CA_BUNDLE=" + s.Workspace + "/ca.pem"} })
	if err := os.WriteFile(filepath.Join(ws, "ca.pem"), authority, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"", "--noproxy '*' ", "-x socks5h://127.0.0.1:3128 "} {
		for _, scheme := range []string{"http", "https"} {
			e, out := inside(t, sb, caisson.Command{Line: "curl -sS -m 20 " + how + scheme + "://site.example/"})
			if e.Code != 0 || strings.TrimSpace(out) != "GET at site.example" {
				t.Errorf("curl %s%s: exit %d: %s", how, scheme, e.Code, out)
			}
			e, out = inside(t, sb, caisson.Command{Line: "curl -sSf -m 20 " + how + scheme + "://other.example/"})
			if e.Code == 0 {
				t.Errorf("curl %s%s: another site answers %s", how, scheme, out)
			}
		}
		// The name of one site and the request for another.
		if e, out := inside(t, sb, caisson.Command{Line: "curl -sSf -m 20 " + how + "-H 'Host: other.example' http://site.example/"}); e.Code == 0 {
			t.Errorf("curl %s: another site's name was passed on: %s", how, out)
		}
	}
}
