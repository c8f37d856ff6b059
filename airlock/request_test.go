package airlock_test

import (
	"testing"

	"github.com/caisson-run/caisson"
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
