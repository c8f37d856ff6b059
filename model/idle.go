package model

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/caisson-run/caisson"
)

// Idle returns m with a bound on its silence: an answer of which nothing comes
// for that long, at its begin or between two events, is ended with
// CodeModelStalled. The time the consumer takes does not count.
func Idle(m caisson.Model, bound time.Duration) caisson.Model {
	return &idle{m, bound}
}

type idle struct {
	caisson.Model
	bound time.Duration
}

func (i *idle) Stream(ctx context.Context, req caisson.ModelRequest) iter.Seq2[caisson.ModelEvent, error] {
	return func(yield func(caisson.ModelEvent, error) bool) {
		stalled := caisson.Errorf(caisson.CodeModelStalled, "model %s: nothing came for %s", i.Ref(), i.bound).With(detailTransient, true)
		inner, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(i.bound, func() { cancel(stalled) })
		defer timer.Stop()
		for event, err := range i.Model.Stream(inner, req) {
			timer.Stop()
			if err != nil && ctx.Err() == nil && errors.Is(context.Cause(inner), stalled) {
				err = stalled
			}
			if !yield(event, err) || err != nil {
				return
			}
			timer.Reset(i.bound)
		}
	}
}
