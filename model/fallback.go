package model

import (
	"context"
	"iter"

	"github.com/caisson-run/caisson"
)

// Fallback returns a model that asks the first of models and, where that fails
// before any part of its answer was passed on, the next. Its name is the
// first's; the answer says which one gave it.
//
// Its price is the highest of all, and known only if all are, so that a cost
// budget holds whichever answers. Its limits are the lowest.
func Fallback(first caisson.Model, others ...caisson.Model) caisson.Model {
	if len(others) == 0 {
		return first
	}
	return &fallback{append([]caisson.Model{first}, others...)}
}

type fallback struct{ models []caisson.Model }

func (f *fallback) Ref() string { return f.models[0].Ref() }

func (f *fallback) Price() (caisson.Price, bool) {
	var highest caisson.Price
	for _, m := range f.models {
		price, known := m.Price()
		if !known {
			return caisson.Price{}, false
		}
		highest = caisson.Price{
			Input: max(highest.Input, price.Input), Output: max(highest.Output, price.Output),
			CacheRead: max(highest.CacheRead, price.CacheRead), CacheWrite: max(highest.CacheWrite, price.CacheWrite),
		}
	}
	return highest, true
}

func (f *fallback) Limits() (window, output int64) {
	for _, m := range f.models {
		w, o := m.Limits()
		window, output = lower(window, w), lower(output, o)
	}
	return window, output
}

// lower returns the lower of two limits, of which 0 is none.
func lower(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

func (f *fallback) Stream(ctx context.Context, req caisson.ModelRequest) iter.Seq2[caisson.ModelEvent, error] {
	return func(yield func(caisson.ModelEvent, error) bool) {
		var last error
		for _, m := range f.models {
			err, again := try(ctx, m, req, yield)
			if !again {
				return
			}
			last = err
		}
		yield(caisson.ModelEvent{}, last)
	}
}
