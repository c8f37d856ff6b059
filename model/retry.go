package model

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/caisson-run/caisson"
)

// RetryOptions bound a retry. The zero value: 4 attempts, 1 s doubling up to 30 s.
type RetryOptions struct {
	Attempts int           // in all
	First    time.Duration // wait after the first
	Longest  time.Duration // bound on one wait, also on one that the provider asks for
}

// Retry returns m asked again after a passing fault, but only as long as no
// part of the answer was passed on. It waits half to all of the doubling time,
// at random, and ends with ctx.
func Retry(m caisson.Model, opts RetryOptions) caisson.Model {
	if opts.Attempts <= 0 {
		opts.Attempts = 4
	}
	if opts.First <= 0 {
		opts.First = time.Second
	}
	if opts.Longest <= 0 {
		opts.Longest = 30 * time.Second
	}
	return &retrying{m, opts}
}

type retrying struct {
	caisson.Model
	opts RetryOptions
}

func (r *retrying) Stream(ctx context.Context, req caisson.ModelRequest) iter.Seq2[caisson.ModelEvent, error] {
	return func(yield func(caisson.ModelEvent, error) bool) {
		wait := r.opts.First
		for attempt := 1; ; attempt++ {
			err, again := try(ctx, r.Model, req, yield)
			if !again {
				return
			}
			if attempt == r.opts.Attempts || !Transient(err) {
				yield(caisson.ModelEvent{}, err)
				return
			}
			if !pause(ctx, r.delay(err, wait)) {
				yield(caisson.ModelEvent{}, interrupted(ctx))
				return
			}
			wait = min(2*wait, r.opts.Longest)
		}
	}
}

// try asks once. again says that the answer failed with err before anything of
// it was passed on; else the stream is over and the consumer has seen its end.
func try(ctx context.Context, m caisson.Model, req caisson.ModelRequest, yield func(caisson.ModelEvent, error) bool) (err error, again bool) {
	passed := false
	for event, err := range m.Stream(ctx, req) {
		if err != nil {
			if !passed && ctx.Err() == nil {
				return err, true
			}
			yield(caisson.ModelEvent{}, err)
			return nil, false
		}
		passed = true
		if !yield(event, nil) {
			return nil, false
		}
	}
	return nil, false
}

func (r *retrying) delay(err error, wait time.Duration) time.Duration {
	var e *caisson.Error
	if errors.As(err, &e) {
		if after, ok := e.Detail[detailAfter].(int64); ok {
			return min(time.Duration(after)*time.Millisecond, r.opts.Longest)
		}
	}
	return wait/2 + rand.N(wait/2+1)
}

// pause waits for d; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
