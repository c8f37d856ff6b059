package control

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// look is a question that may hang, to an engine or to a file system: each
// answer is waited for only so long, and none is asked for while one is still
// outstanding.
type look[T any] struct {
	ask func(context.Context) (T, error)

	mu    sync.Mutex
	under *asked[T]
}

type asked[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// within returns the answer, or an error when limit is over.
func (l *look[T]) within(ctx context.Context, limit time.Duration) (T, error) {
	a := l.begin(ctx, limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var none T
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-timer.C:
		return none, fmt.Errorf("no answer within %s", limit)
	}
}

func (l *look[T]) begin(ctx context.Context, limit time.Duration) *asked[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under != nil {
		return l.under
	}
	a := &asked[T]{done: make(chan struct{})}
	l.under = a
	// It ends with its own deadline, or when the system call that hangs returns:
	// nobody waits for it, but for the one who looks next.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	go func() {
		defer cancel()
		a.value, a.err = l.ask(asking)
		l.mu.Lock()
		l.under = nil
		l.mu.Unlock()
		close(a.done)
	}()
	return a
}

// backoff is the pause after the nth failure in a row (from 1).
func backoff(n int) time.Duration {
	switch n {
	case 1:
		return time.Second
	case 2:
		return 2 * time.Second
	case 3:
		return 4 * time.Second
	default:
		return lookEvery
	}
}

const (
	// lookEvery is how often each thing is looked at while all is well.
	lookEvery = 5 * time.Second
	// lookFor is how long an answer is waited for.
	lookFor = 2 * time.Second
)
