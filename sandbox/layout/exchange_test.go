//go:build linux

package layout

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// A process that was stopped while it waited finds its time over and the answer
// unread: it reads it. What does not answer is not waited for, and nobody is whose
// wait was ended.
func TestStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	answered := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	const over = -time.Second
	r, w := answered()
	if _, err := w.WriteString("answer"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if said, err := io.ReadAll(Within(t.Context(), r, over)); err != nil || string(said) != "answer" {
		t.Errorf("%q, %v", said, err)
	}
	r, _ = answered()
	began := time.Now()
	if _, err := io.ReadAll(Within(t.Context(), r, over)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < thawed {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	r, w = answered()
	if _, err := w.WriteString("answer"); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(Within(ended, r, over)); !errors.Is(err, os.ErrDeadlineExceeded) || len(said) > 0 {
		t.Errorf("%q, %v", said, err)
	}
}
