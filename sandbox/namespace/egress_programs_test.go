//go:build linux

package namespace_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// site is a web server of the test with a certificate for site.example.
func site(t testing.TB, h http.Handler) (plain, secure string, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site.example"}, DNSNames: []string{"site.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := httptest.NewServer(h)
	t.Cleanup(a.Close)
	b := httptest.NewUnstartedServer(h)
	b.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	b.StartTLS()
	t.Cleanup(b.Close)
	return a.Listener.Addr().String(), b.Listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// getEnv makes the test program one that gets a page.
const getEnv = "CAISSON_TEST_GET"

func getPage() int {
	r, err := http.Get(os.Getenv(getEnv))
	if err == nil {
		defer r.Body.Close()
		_, err = io.Copy(os.Stdout, r.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Programs as they are, none of which is told anything but by the environment.
func TestEgressPrograms(t *testing.T) {
	plain, secure, authority := site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s", r.Method, r.Host)
	}))
	way := newExit(map[string]string{"site.example:80": plain, "site.example:443": secure})
	sb, ws := openWith(t, way, func(s *caisson.SandboxSpec) {
		s.Env = []string{"CURL_CA_BUNDLE=" + s.Workspace + "/ca.pem", "SSL_CERT_FILE=" + s.Workspace + "/ca.pem", "NODE_EXTRA_CA_CERTS=" + s.Workspace + "/ca.pem"}
	})
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(ws, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("ca.pem", string(authority))
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(ws, "get"), self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	put("Get.java", `import java.net.*; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
	System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
} }
`)
	unset := "env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY "
	for name, c := range map[string]struct{ program, line, want string }{
		"curl":             {"curl", "curl -sS --noproxy '*' http://site.example/", "GET at site.example"},
		"curl TLS":         {"curl", "curl -sS https://site.example/", "GET at site.example"}, // CONNECT: this proxy knows nothing else
		"curl TLS by name": {"curl", unset + "curl -sS https://site.example/", "GET at site.example"},
		"python":           {"python3", unset + `python3 -c 'import urllib.request as u; print(u.urlopen("https://site.example/").read().decode())'`, "GET at site.example"},
		"python proxy":     {"python3", `python3 -c 'import urllib.request as u; print(u.urlopen("https://site.example/").read().decode())'`, "GET at site.example"},
		"node":             {"node", `node -e 'fetch("https://site.example/").then(r => r.text()).then(console.log)'`, "GET at site.example"},
		"go":               {"sh", unset + "GODEBUG=netdns=go " + getEnv + "=https://site.example/ ./get", "GET at site.example"},
		"go with libc":     {"sh", unset + "GODEBUG=netdns=cgo " + getEnv + "=https://site.example/ ./get", "GET at site.example"},
		"go proxy":         {"sh", getEnv + "=https://site.example/ ./get", "GET at site.example"},
		"java":             {"java", "java Get.java http://site.example/", "GET at site.example"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.program); err != nil {
				t.Skipf("this machine has no %s", c.program)
			}
			e, out := inside(t, sb, caisson.Command{Line: c.line})
			if e.Code != 0 || strings.TrimSpace(out) != c.want {
				t.Errorf("exit %d: %s", e.Code, out)
			}
		})
	}
}

// A repository is cloned and pushed to by name.
func TestEgressGit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	backend := filepath.Join(git("--exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("this machine has no git-http-backend")
	}
	git("init", "-q", "--bare", "repo.git")
	git("-C", "repo.git", "config", "http.receivepack", "true")
	plain, _, _ := site(t, &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"}})
	sb, _ := openWith(t, newExit(map[string]string{"site.example:80": plain}))
	e, out := inside(t, sb, caisson.Command{Line: `set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example NO_PROXY='*' no_proxy='*'
git clone -q http://site.example/repo.git one 2>/dev/null
cd one && head -c 5000000 /dev/urandom > file && git add . && git commit -qm first && git -c http.postBuffer=10000000 push -q origin HEAD:main
cd .. && git clone -q -b main http://site.example/repo.git two && cmp one/file two/file && echo same`})
	if e.Code != 0 || strings.TrimSpace(out) != "same" {
		t.Errorf("exit %d: %s", e.Code, out)
	}
	if got := git("-C", "repo.git", "rev-list", "--count", "main"); got != "1" {
		t.Errorf("%s commits arrived", got)
	}
}

// ssh, which knows no proxy, to a real server.
func TestEgressSSH(t *testing.T) {
	server := "/usr/sbin/sshd" // it starts itself again, by its whole path
	if path, err := exec.LookPath("sshd"); err == nil {
		server = path
	}
	if _, err := os.Stat(server); err != nil {
		t.Skip("this machine has no sshd")
	}
	if os.Getuid() == 0 && os.Mkdir("/run/sshd", 0o755) == nil { // where root's parts with its rights
		t.Cleanup(func() { _ = os.Remove("/run/sshd") })
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("this machine has no ssh")
	}
	if _, err := user.Current(); err != nil {
		t.Skip("ssh runs only for users that the machine has a name for")
	}
	dir := t.TempDir()
	for _, name := range []string{"host", "user"} {
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	at := listen(t, func(c *net.TCPConn) { // as inetd starts one for each connection
		f, err := c.File()
		if err != nil {
			return
		}
		defer f.Close()
		cmd := exec.Command(server, "-i", "-f", "/dev/null", "-h", dir+"/host", "-o", "AuthorizedKeysFile="+dir+"/user.pub", "-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PidFile=none")
		cmd.Stdin, cmd.Stdout = f, f
		if err := cmd.Run(); err != nil {
			t.Logf("sshd: %v", err)
		}
	})
	sb, ws := openWith(t, newExit(map[string]string{"git.example:22": at}))
	key, err := os.ReadFile(filepath.Join(dir, "user"))
	if err == nil {
		err = os.WriteFile(filepath.Join(ws, "key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	me, err := exec.Command("id", "-un").Output()
	if err != nil {
		t.Skip("this user has no name")
	}
	e, out := inside(t, sb, caisson.Command{Line: "cp key /tmp/key && chmod 600 /tmp/key && ssh -F none -i /tmp/key -o StrictHostKeyChecking=accept-new -o BatchMode=yes -l " + strings.TrimSpace(string(me)) + " git.example 'echo from the server; wc -c' < /bin/sh"})
	if e.Code != 0 || !strings.Contains(out, "from the server") {
		t.Errorf("exit %d: %s", e.Code, out)
	}
}
