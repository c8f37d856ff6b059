//go:build linux

package container_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// site is a way out that leads to one site, which a server of this machine is.
func site(t *testing.T, name string) caisson.Egress {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "from %s", r.Host) }))
	t.Cleanup(server.Close)
	open, err := rule.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return egress.New(egress.Options{
		Rules: []rule.Rule{open},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	})
}

// runIn runs a shell line in a sandbox to its end.
func runIn(t *testing.T, sb caisson.Sandbox, line string) (int, string) {
	t.Helper()
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

// The way out leads through the product's proxy to what is allowed alone, with
// proxy variables and without, and the socket by which the guest came is closed.
func TestEgress(t *testing.T) {
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			opts := options(t, engine.name, engine.env)
			// Longer than the path of a socket may be.
			opts.StateDir = filepath.Join(opts.StateDir, strings.Repeat("long", 30))
			e := open(t, opts)
			sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: t.TempDir(), Egress: site(t, "site.example")})
			if err != nil {
				t.Fatal(err)
			}
			row := sb.Isolation().Row(caisson.ControlNetwork)
			if !row.Enforced || !strings.Contains(row.By, "proxy") || row.Why == "" {
				t.Errorf("%+v", row)
			}
			for line, want := range map[string]string{
				"curl -sS -m 60 http://site.example/":                                                                       "from site.example",
				"curl -sS -m 60 --noproxy '*' http://site.example/":                                                         "from site.example",
				`python3 -c 'import urllib.request as u; print(u.urlopen("http://site.example/").read().decode(), end="")'`: "from site.example",
			} {
				if code, out := runIn(t, sb, line); code != 0 || out != want {
					t.Errorf("%s: exit %d: %s", line, code, out)
				}
			}
			for _, line := range []string{
				"curl -sSf -m 60 http://other.example/",
				"curl -sSf -m 60 --noproxy '*' http://other.example/",
				"curl -sSf -m 5 --noproxy '*' http://93.184.215.14/",
				// The host's door is closed for good, if it is to be seen at all.
				`python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("/.caisson/outlet")'`,
			} {
				if code, out := runIn(t, sb, line); code == 0 {
					t.Errorf("%s: succeeded: %s", line, out)
				}
			}
			for _, dir := range sb.Record().Leftovers {
				if _, err := os.Lstat(filepath.Join(dir, "outlet")); err == nil {
					t.Error("the socket is still on the host")
				}
			}
			if err := sb.Close(); err != nil {
				t.Error(err)
			}
			nothing(t, e)
		})
	}
}
