package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHeadsTakeLittle sends what takes the most memory for its bytes: heads of
// many short lines, on requests whose bodies do not come.
func TestHeadsTakeLittle(t *testing.T) {
	const conns = 32
	w := newWorld(t, Options{}, "site.com")
	w.tcp("site.com", "80", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	head := func(lines int) string {
		var b strings.Builder
		b.WriteString("POST / HTTP/1.1\r\nHost: site.com\r\nContent-Length: 9\r\n")
		for i := range lines {
			fmt.Fprintf(&b, "%x:\n", i)
		}
		return b.String() + "\r\n"
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range conns {
		w.open("site.com:80").send(head(maxLines - 4))
	}
	for end := time.Now().Add(prompt); len(strings.Fields(w.reached())) < conns; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the requests do not arrive")
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := int64(after.HeapAlloc-before.HeapAlloc) / conns; each > 6*maxHead {
		t.Errorf("%d KiB a connection", each>>10)
	}
	c := w.open("site.com:80")
	c.send(head(maxLines))
	if r, body := c.answer(); r.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !strings.Contains(body, "lines") {
		t.Errorf("a head of too many lines: %d %q", r.StatusCode, body)
	}
}
