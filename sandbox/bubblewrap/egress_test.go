//go:build linux

package bubblewrap_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// The way out leads through the product's proxy, serves programs that know of
// it, and the report says that it serves no others.
func TestEgress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "from %s", r.Host) }))
	defer server.Close()
	open, err := rule.Parse("site.example")
	if err != nil {
		t.Fatal(err)
	}
	var asked, dialled atomic.Int32
	proxy := egress.New(egress.Options{
		Rules: []rule.Rule{open},
		Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
			if asked.Add(1); name != "site.example" {
				t.Errorf("%s was looked up", name)
			}
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	})
	sb, err := engine(t).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: t.TempDir(), Egress: proxy})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	row := sb.Isolation().Row(caisson.ControlNetwork)
	if !row.Enforced || !strings.Contains(row.By, "proxy") {
		t.Errorf("%+v", row)
	}
	run := func(line string) (int, string) {
		var out bytes.Buffer
		p, err := sb.Hold(t.Context(), caisson.Command{Line: line, Stdout: &out, Stderr: &out})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Release(); err != nil {
			t.Fatal(err)
		}
		e, err := p.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e.Code, out.String()
	}
	if code, out := run("curl -sS -m 60 http://site.example/"); code != 0 || out != "from site.example" {
		t.Errorf("by the proxy: exit %d: %s", code, out)
	}
	for line, want := range map[string]string{
		"curl -sS -m 60 http://other.example/":                                  "other.example:80 is not among the hosts",
		"curl -sS -m 60 http://93.184.215.14/":                                  "93.184.215.14:80 is not among the hosts",
		"curl -sS -m 60 -H 'Host: other.example' http://site.example/":          "the Host header is not that of site.example:80",
		"curl -sS -m 60 https://other.example/":                                 "403",
		"curl -sS -m 60 --socks5-hostname 127.0.0.1:3128 http://other.example/": "curl: ",
		"curl -sS -m 60 --noproxy '*' http://other.example/":                    "curl: ",
		"curl -sS -m 60 --noproxy '*' http://93.184.215.14/":                    "curl: ",
	} {
		if _, out := run(line); !strings.Contains(out, want) || strings.Contains(out, "from site") {
			t.Errorf("%s: %q, not %q", line, out, want)
		}
	}
	if asked.Load() != 1 || dialled.Load() != 1 {
		t.Errorf("%d look-ups and %d connections for one request that may be made", asked.Load(), dialled.Load())
	}
	byName, out := run("curl -sS -m 60 --noproxy '*' http://site.example/")
	if served := byName == 0 && out == "from site.example"; !served && !strings.Contains(row.Why, sandbox.ProxyOnly) {
		t.Errorf("by name: exit %d: %s; and the report says of it %q", byName, out, row.Why)
	}
	probed, err := engine(t).Probe(t.Context())
	if err != nil || !strings.Contains(probed.Row(caisson.ControlNetwork).Why, sandbox.ProxyOnly) {
		t.Errorf("a probe says nothing of it: %+v %v", probed.Row(caisson.ControlNetwork), err)
	}
}
