package airlock_test

import (
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// What a model was cut off in is mended; what a program wrote is done as it is
// written, or not at all.
func TestStrict(t *testing.T) {
	w := newWorld(t)
	for i, input := range []string{`{"text":"a"`, `{"text":"a"}}`, `{"text":"a",}`} {
		request := w.request(2*i+1, "read", "")
		request.Input = input
		if s := w.settle(request); states(s) != "done" {
			t.Errorf("%q is %s", input, states(s))
		}
		strict := w.request(2*i+2, "read", "")
		strict.Input, strict.Strict = input, true
		s := w.settle(strict)
		if states(s) != "refused" || caisson.CodeOf(s.Records[0].Result.Error) != caisson.CodeCallInvalid || w.done()[strict.ID] != 0 {
			t.Errorf("strict, %q is %s", input, states(s))
		}
	}
}

// What may not begin now is not made ready, and stays as it is.
func TestBegin(t *testing.T) {
	w := newWorld(t)
	request := w.request(1, "write", "a")
	request.Begin = func() error { return caisson.Errorf(caisson.CodeStateInvalid, "not now") }
	s, err := w.door().Settle(t.Context(), []airlock.Request{request})
	if caisson.CodeOf(err) != caisson.CodeStateInvalid || s.Records[0].State.Terminal() || len(w.done()) != 0 {
		t.Errorf("%s, %v, effects %v", states(s), err, w.done())
	}
	request.Begin = func() error { return nil }
	if s := w.settle(request); states(s) != "done" || w.done()[request.ID] != 1 {
		t.Errorf("%s, effects %v", states(s), w.done())
	}
}
