package egress

import (
	"crypto/tls"
	"errors"
	"testing"
)

// TestHelloInPieces cuts a greeting over records and over packets.
func TestHelloInPieces(t *testing.T) {
	hello := recordedHello(t, &tls.Config{ServerName: "site.com", InsecureSkipVerify: true}) //nolint:gosec // it is only recorded
	for _, size := range []int{64, 100, len(hello)} {
		cut := cutRecords(hello, size)
		for n := range len(cut) {
			if h, need, err := readHello(cut[:n]); err != nil || need <= n {
				t.Fatalf("records of %d, %d bytes: %+v, need %d, %v", size, n, h, need, err)
			}
		}
		h, need, err := readHello(append(cut, "more"...))
		if err != nil || need != 0 || h.name != "site.com" || h.hidden {
			t.Errorf("records of %d: %+v, need %d, %v", size, h, need, err)
		}
	}
	if _, _, err := readHello(cutRecords(hello, 1)); !errors.Is(err, errBigHello) {
		t.Errorf("records of one byte: %v", err)
	}
	hidden := recordedHello(t, &tls.Config{ServerName: "inner.com", EncryptedClientHelloConfigList: echConfig(t), MinVersion: tls.VersionTLS13})
	if h, _, err := readHello(hidden); err != nil || !h.hidden || h.name != "outer.com" {
		t.Errorf("an encrypted hello: %+v %v", h, err)
	}
}

// An encrypted hello can name another host than the one in clear, so that it is
// refused also where that one is open.
func TestEncryptedHelloIsRefused(t *testing.T) {
	w := newWorld(t, Options{}, "outer.com")
	w.echo("outer.com", "443")
	c := w.open("outer.com:443")
	c.send(string(recordedHello(t, &tls.Config{ServerName: "inner.com", EncryptedClientHelloConfigList: echConfig(t), MinVersion: tls.VersionTLS13})))
	if got, err := c.ended(); got != "" || err == nil || w.refusal().Reason != ReasonServerName || w.reached() != "" {
		t.Errorf("%d bytes came back, %v; refused %+v; connected to %q", len(got), err, w.refusal(), w.reached())
	}
}
