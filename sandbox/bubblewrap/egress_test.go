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
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// The way out leads through the product's proxy, and the report says which
// programs it serves.
func TestEgress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "from %s", r.Host) }))
	defer server.Close()
	open, err := rule.Parse("site.example")
	if err != nil {
		t.Fatal(err)
	}
	proxy := egress.New(egress.Options{
		Rules: []rule.Rule{open},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
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
	if code, out := run("curl -sS -m 20 http://site.example/"); code != 0 || out != "from site.example" {
		t.Errorf("by the proxy: exit %d: %s", code, out)
	}
	if code, out := run("curl -sSf -m 20 http://other.example/"); code == 0 {
		t.Errorf("another site: %s", out)
	}
	byName, out := run("curl -sS -m 20 --noproxy '*' http://site.example/")
	if served := byName == 0 && out == "from site.example"; !served && row.Why == "" {
		t.Errorf("by name: exit %d: %s; and the report says nothing of it", byName, out)
	}
}
