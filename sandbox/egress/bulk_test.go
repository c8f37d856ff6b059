package egress

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// TestBulk carries more than any buffer holds, both ways at once.
func TestBulk(t *testing.T) {
	w := newWorld(t, Options{}, "site.com:9")
	w.echo("site.com", "9")
	c := w.open("site.com:9")
	const size = 32 << 20
	block := bytes.Repeat([]byte("0123456789:bcdef"), 4096) // with a byte that no method of HTTP has
	go func() {
		for sent := 0; sent < size; sent += len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
		_ = c.CloseWrite()
	}()
	got, same, buffer := 0, true, make([]byte, len(block))
	for {
		n, err := io.ReadFull(c.in, buffer)
		same = same && bytes.Equal(buffer[:n], block[:n])
		if got += n; err != nil {
			break
		}
	}
	if got != size || !same {
		t.Errorf("%d bytes came back, as sent: %v", got, same)
	}
	<-c.done
	if count := w.proxy.Counts()[0]; count.Up != size || count.Down != size {
		t.Errorf("counted %+v", count)
	}
	if lent := w.proxy.lent.Load(); lent != 0 {
		t.Errorf("%d bytes of buffers were not given back", lent)
	}
}

// TestBuffersAreBounded fills as many directions as a program can.
func TestBuffersAreBounded(t *testing.T) {
	p := New(Options{})
	all := make([]buffer, 1000)
	for i := range all {
		all[i] = buffer{p: p, bytes: make([]byte, leastBuffer)}
		for range 10 {
			all[i].fit(len(all[i].bytes))
		}
	}
	if lent := p.lent.Load(); lent > maxLent || len(all[0].bytes) != mostBuffer || len(all[999].bytes) != leastBuffer {
		t.Errorf("%d lent; buffers of %d and %d bytes", lent, len(all[0].bytes), len(all[999].bytes))
	}
	for range quietAfter * 10 {
		all[0].fit(100)
	}
	if len(all[0].bytes) != leastBuffer {
		t.Errorf("after small reads it has %d bytes", len(all[0].bytes))
	}
	for i := range all {
		all[i].fit(0)
	}
	if lent := p.lent.Load(); lent != 0 {
		t.Errorf("%d bytes were not given back", lent)
	}
}

// A program that takes next to nothing of a download keeps its connection as
// long as something moves.
func TestSlowReaderIsWaitedFor(t *testing.T) {
	const size = 24 << 20
	// A machine may keep this process from reading for as long as that: longer, then.
	for idle := 1500 * time.Millisecond; ; idle *= 2 {
		w := newWorld(t, Options{Idle: idle}, "site.com:9")
		w.tcp("site.com", "9", func(c net.Conn) { _, _ = c.Write(make([]byte, size)) })
		c := w.open("site.com:9")
		_ = c.SetReadBuffer(64 << 10)
		got, block, read, longest := 0, make([]byte, 1<<20), time.Now(), time.Duration(0)
		every := time.NewTicker(idle / 5)
		defer every.Stop()
		var err error
		for n := 0; err == nil && n < 15; n++ { // three times the bound
			<-every.C
			n, readErr := io.ReadFull(c.in, block)
			longest, read = max(longest, time.Since(read)), time.Now()
			got, err = got+n, readErr
		}
		if err == nil {
			var n int64
			n, err = io.Copy(io.Discard, c.in)
			got += int(n)
		}
		if (err != nil || got != size) && longest > idle/2 && idle < prompt {
			t.Logf("nothing was read for %v: %d bytes, %v", longest, got, err)
			continue
		}
		if err != nil || got != size {
			t.Errorf("%d bytes, %v", got, err)
		}
		return
	}
}

// One that takes nothing loses it.
func TestStalledReaderEnds(t *testing.T) {
	w := newWorld(t, Options{Idle: 300 * time.Millisecond}, "site.com:9")
	w.tcp("site.com", "9", func(c net.Conn) { _, _ = io.CopyN(c, zeros{}, 1<<30) })
	<-w.open("site.com:9").done
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
