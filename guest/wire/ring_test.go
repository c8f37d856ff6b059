package wire_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/guest/wire"
)

// What goes into a ring comes out, whole and in order, while both sides are at work.
func TestRingKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 20_000), 0, 30).Draw(t, "parts")
		ring, credit := wire.NewRing(), wire.NewCredit()
		var got []byte
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				n, err := ring.Take(func(chunk []byte) error {
					got = append(got, chunk...)
					return nil
				})
				if err != nil {
					return
				}
				if !credit.Give(n) {
					t.Errorf("%d bytes came out that did not go in", n)
				}
			}
		})
		for _, part := range parts {
			for rest := part; len(rest) > 0; {
				n := credit.Take(len(rest))
				fits, err := ring.Fill(n, func(p []byte) error {
					rest = rest[copy(p, rest):]
					return nil
				})
				if !fits || err != nil {
					t.Errorf("%d bytes do not fit: %v", n, err)
				}
			}
		}
		ring.End()
		wg.Wait()
		if want := bytes.Join(parts, nil); !bytes.Equal(got, want) {
			t.Errorf("%d bytes went in, %d came out", len(want), len(got))
		}
	})
}

func TestRingRefusesMoreThanItsWindow(t *testing.T) {
	ring := wire.NewRing()
	zero := func([]byte) error { return nil }
	if fits, err := ring.Fill(wire.Window, zero); !fits || err != nil {
		t.Errorf("%v, %v", fits, err)
	}
	if fits, _ := ring.Fill(1, zero); fits {
		t.Error("more than the window fits")
	}
	if n, err := ring.Take(zero); n != wire.Window/4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	ring.Break()
	if _, err := ring.Take(zero); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
	if !ring.End() || ring.End() {
		t.Error("the end is told once")
	}
	if fits, _ := ring.Fill(1, zero); fits {
		t.Error("something fits after the end")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{33, 0, 0, 0, 1, 0xff, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := wire.NewReader(bytes.NewReader(raw), wire.MaxReply)
		for {
			h, err := r.Next()
			if err != nil {
				return
			}
			if limit := map[bool]int{true: wire.MaxData, false: wire.MaxReply}[h.Type.Data()]; h.Length > limit {
				t.Fatalf("a frame of %d bytes", h.Length)
			}
			if body, err := r.Control(h); err == nil && len(body) != h.Length {
				t.Fatalf("a body of %d bytes, not %d", len(body), h.Length)
			}
		}
	})
}
