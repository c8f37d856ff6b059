package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// look is a question that may hang, to an engine or to a file system: each
// answer is waited for only so long, and none is asked for while one is still
// outstanding.
type look[T any] struct {
	ask question[T]

	mu    sync.Mutex
	under *asked[T]
	spare *asked[T] // one that nobody waited for
}

type question[T any] interface {
	answer(ctx context.Context) (T, error)
}

// asking is a question that is a function.
type asking[T any] func(context.Context) (T, error)

func (a asking[T]) answer(ctx context.Context) (T, error) { return a(ctx) }

type asked[T any] struct {
	done  chan struct{} // nil where nobody waits
	value T
	err   error
}

// within returns the answer, or an error when limit is over.
func (l *look[T]) within(ctx context.Context, limit time.Duration) (T, error) {
	a, ours := l.claim(true)
	if ours {
		// It ends with its own deadline, or when the system call that hangs returns:
		// nobody waits for it, but for the one who looks next.
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		go func() {
			defer cancel()
			_, _ = l.answer(asking, a) // whoever waits has both
		}()
	}
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

// here asks in the caller's own goroutine, which may hang for it. It asks nothing
// while an answer is outstanding.
func (l *look[T]) here(ctx context.Context) (value T, asked bool, err error) {
	a, ours := l.claim(false)
	if !ours {
		return value, false, nil
	}
	value, err = l.answer(ctx, a)
	return value, true, err
}

// claim returns the answer that is outstanding, or one that the caller has to see
// to. With wait it can be waited for.
func (l *look[T]) claim(wait bool) (a *asked[T], ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ours = l.under == nil; ours {
		l.under, l.spare = l.spare, nil
		if l.under == nil {
			l.under = &asked[T]{}
		}
	}
	if wait && l.under.done == nil {
		l.under.done = make(chan struct{})
	}
	return l.under, ours
}

func (l *look[T]) answer(ctx context.Context, a *asked[T]) (T, error) {
	value, err := l.ask.answer(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("no answer in time") // whatever it makes of that
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under = nil
	if a.done == nil {
		l.spare = a
		return value, err
	}
	a.value, a.err = value, err
	close(a.done)
	return value, err
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

// lookFor is how long an answer is waited for.
const lookFor = 2 * time.Second
