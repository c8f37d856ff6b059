package egress

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

const theSecret = "s3cret-of-the-person"

// withCredential is a world with an API over TLS that wants a token, and gives
// it away in every way.
func withCredential(t *testing.T, value string) (w *world, placeholder string, seen *[]string) {
	seen = new([]string)
	s := quietTLS(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, r.Header.Get("Authorization"))
		rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		if r.URL.Path == "/packed" {
			rw.Header().Set("Content-Encoding", "gzip")
		}
		rw.Header().Set("Accepted", r.Header.Get("Accept-Encoding"))
		for _, c := range "you said " + r.Header.Get("Authorization") + "." {
			_, _ = io.WriteString(rw, string(c))
			_ = http.NewResponseController(rw).Flush()
		}
	}))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	w = newWorld(t, Options{Roots: roots, Credentials: []Credential{{Env: "API_TOKEN", Host: must(rule.ParseHost("example.com")), Header: "authorization", Value: value}}}, "example.com", "other.com")
	w.serve("example.com", "443", s.Listener.Addr().String())
	w.web("other.com", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
	})
	key, placeholder, _ := strings.Cut(w.proxy.Env()[0], "=")
	if key != "API_TOKEN" || strings.Contains(placeholder, theSecret) {
		t.Fatalf("the sandbox gets %q", w.proxy.Env())
	}
	return w, placeholder, seen
}

func TestCredentials(t *testing.T) {
	w, placeholder, seen := withCredential(t, theSecret)
	ask := func(target, url, header string) (*http.Response, string) {
		c := w.open(target)
		c.send("GET " + url + " HTTP/1.1\r\nHost: " + strings.Split(strings.TrimPrefix(url, "http://"), "/")[0] + "\r\nAccept-Encoding: gzip\r\nRange: bytes=1-2\r\n" + header + "\r\n\r\n")
		return c.answer()
	}
	r, body := ask("", "http://example.com/x", "Authorization: Bearer "+placeholder)
	if want := "you said Bearer " + placeholder + "."; r.StatusCode != 200 || body != want || (*seen)[0] != "Bearer "+theSecret {
		t.Errorf("%d %q; the host saw %q", r.StatusCode, body, *seen)
	}
	if r.Header.Get("X-Echo") != "Bearer "+placeholder || r.Header.Get("Accepted") != "identity" {
		t.Errorf("came back: %v", r.Header)
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+placeholder))
	ask("", "http://example.com/x", "Authorization: "+basic)
	if want := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+theSecret)); (*seen)[1] != want {
		t.Errorf("the host saw %q", (*seen)[1])
	}
	// Without a placeholder, in another header, or to another host, nothing is put in.
	for url, header := range map[string]string{
		"http://example.com/a": "Authorization: mine", "http://example.com/b": "X-Other: " + placeholder, "http://other.com/": "Authorization: " + placeholder,
	} {
		r, body := ask("", url, header)
		if all := fmt.Sprint(r.Header, body, *seen); r.StatusCode != 200 || strings.Count(all, theSecret) > 1 {
			t.Errorf("%s %s: %d %s", url, header, r.StatusCode, all)
		}
	}
	c := w.open("example.com:80")
	c.send("GET / HTTP/1.1\r\nHost: example.com\r\nAuthorization: " + placeholder + "\r\n\r\n")
	if r, body := c.answer(); r.StatusCode != 200 || body != "you said "+placeholder+"." {
		t.Errorf("transparent: %d %q", r.StatusCode, body)
	}
	if r, _ := ask("", "http://example.com/packed", "Authorization: "+placeholder); r.StatusCode != 403 {
		t.Errorf("an answer that cannot be seen through: %d", r.StatusCode)
	}
	if r, _ := ask("", "http://example.com/", "Authorization: "+placeholder+"\r\nConnection: Upgrade\r\nUpgrade: websocket"); r.StatusCode != 403 {
		t.Errorf("a WebSocket with a secret: %d", r.StatusCode)
	}
	if got := w.reached(); strings.Contains(got, ":80 "+publicAddr+":443") && strings.Count(got, ":80") != 1 {
		t.Errorf("connected to %q", got)
	}
}

func TestCredentialFailsClosed(t *testing.T) {
	for _, value := range []string{"", "short", theSecret + "\n", theSecret + "\r\nHost: evil.com"} {
		w, placeholder, seen := withCredential(t, value)
		c := w.open("")
		c.send("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nAuthorization: " + placeholder + "\r\n\r\n")
		if r, body := c.answer(); r.StatusCode != 403 || !strings.Contains(body, "API_TOKEN") || len(*seen) != 0 || w.reached() != "" {
			t.Errorf("%d %q; the host saw %q", r.StatusCode, body, *seen)
		}
	}
	// A host whose certificate is another's gets nothing.
	w, placeholder, seen := withCredential(t, theSecret)
	w.secure("example.com", "443") // the same certificate, so that another root is needed
	w.proxy.o.Roots = x509.NewCertPool()
	c := w.open("")
	c.send("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nAuthorization: " + placeholder + "\r\n\r\n")
	if r, body := c.answer(); r.StatusCode != 502 || len(*seen) != 0 {
		t.Errorf("%d %q; the host saw %q", r.StatusCode, body, *seen)
	}
}

func TestHidingInPieces(t *testing.T) {
	secrets := []swap{{"abcabd-abc", "PLACE"}, {"12345678", "OTHER"}}
	for _, c := range []struct{ from, to string }{
		{"x abcabcabd-abc y 12345678", "x abcPLACE y OTHER"}, {"abcabd-ab", "abcabd-ab"}, {"1234567", "1234567"}, {"", ""}, {"abcabd-abcabcabd-abc", "PLACEPLACE"},
	} {
		for name, reader := range map[string]io.Reader{"whole": strings.NewReader(c.from), "bytes": iotest.OneByteReader(strings.NewReader(c.from)), "with end": iotest.DataErrReader(strings.NewReader(c.from))} {
			got, err := io.ReadAll(&hiding{from: io.NopCloser(reader), hide: secrets})
			if err != nil || string(got) != c.to {
				t.Errorf("%s: %q becomes %q, want %q (%v)", name, c.from, got, c.to, err)
			}
		}
	}
	failing := &hiding{from: io.NopCloser(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("abc")))), hide: secrets}
	if got, err := io.ReadAll(failing); !errors.Is(err, iotest.ErrTimeout) || string(got) != "a" {
		t.Errorf("%q %v", got, err)
	}
}

// A host that says back what it was sent, in the forms that programs print
// values in, in its status and in the name of a header.
func TestSecretComesBackInNoForm(t *testing.T) {
	const value = `p/a+s"s&<w>ord=%`
	s := quietTLS(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		_, plain, _ := strings.Cut(got, " ")
		if decoded, err := base64.StdEncoding.DecodeString(plain); err == nil {
			plain = strings.TrimPrefix(string(decoded), "user:")
		}
		quoted, _ := json.Marshal(plain)
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close() //nolint:errcheck // a test's server
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 %s\r\nConnection: close\r\nX-Query: %s\r\nX-Plain: %s\r\n\r\n", plain, url.QueryEscape(plain), got)
		_, _ = fmt.Fprintln(c, got, plain, string(quoted), url.QueryEscape(plain), url.PathEscape(plain), html.EscapeString(plain),
			base64.StdEncoding.EncodeToString([]byte(plain)), base64.URLEncoding.EncodeToString([]byte(plain)))
	}))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	w := newWorld(t, Options{Roots: roots, Credentials: []Credential{{Env: "TOKEN", Host: must(rule.ParseHost("example.com")), Header: "authorization", Value: value}}}, "example.com")
	w.serve("example.com", "443", s.Listener.Addr().String())
	_, placeholder, _ := strings.Cut(w.proxy.Env()[0], "=")
	for _, sent := range []string{"Bearer " + placeholder, "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+placeholder))} {
		c := w.open("")
		c.send("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nAuthorization: " + sent + "\r\n\r\n")
		all, err := c.ended()
		if err != nil || !strings.HasPrefix(all, "HTTP/1.1 200 OK\r\n") || !strings.Contains(all, "X-Plain: "+sent) {
			t.Errorf("%q %v", all, err)
		}
		for _, form := range swaps(value, placeholder) {
			if strings.Contains(all, form.from) {
				t.Errorf("%q came back in %q", form.from, all)
			}
		}
		if strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("user:"+value))) {
			t.Errorf("user name and password came back: %q", all)
		}
	}
}
