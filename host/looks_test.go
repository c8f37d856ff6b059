package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// One sandbox looks once at a time, and has a part of the time and no more.
func TestLooksTakeTurns(t *testing.T) {
	t.Parallel()
	var l looks
	looking, enough := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- l.do(t.Context(), func() error { close(looking); <-enough; return nil }) }()
	<-looking
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.do(short, func() error { t.Error("two look at once"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(enough)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	began := time.Now()
	l.debt, l.at = 50*time.Millisecond, began
	if err := l.do(t.Context(), func() error { return nil }); err != nil || time.Since(began) < lookShare*40*time.Millisecond {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	for _, c := range []struct{ debt, gone, wait time.Duration }{
		{-lookSaved, time.Hour, -lookShare * lookSaved}, {lookSaved, time.Second, lookShare*lookSaved - time.Second},
	} {
		now := time.Now()
		l := looks{debt: c.debt, at: now.Add(-c.gone)}
		if wait := l.earn(now); wait != c.wait {
			t.Errorf("%+v: waits %s", c, wait)
		}
	}
}

// Whatever a request has this process look at takes its turn.
func TestLooksFromInside(t *testing.T) {
	t.Parallel()
	s := &session{host: &Host{}}
	looking, enough := make(chan struct{}), make(chan struct{})
	go s.looks.do(t.Context(), func() error { close(looking); <-enough; return nil })
	<-looking
	defer close(enough)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	w := insideWork{taskHost{s.host}, s}
	for name, look := range map[string]func() error{
		"clean":    func() error { _, err := w.Clean(over, caisson.Task{}); return err },
		"merged":   func() error { _, err := w.Merged(over, caisson.Task{}); return err },
		"tree":     func() error { _, err := w.tree(over, caisson.Task{}); return err },
		"workflow": func() error { _, err := w.workflow(over, caisson.Task{}); return err },
	} {
		if err := look(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
