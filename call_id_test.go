package caisson_test

import (
	"testing"

	"github.com/caisson-run/caisson"
)

func TestRequestOfCall(t *testing.T) {
	for _, id := range []caisson.RequestID{"0123456789abcdef", "----------------", "0000000000000001", "cccccccccccccccc"} {
		generation, request, ok := caisson.NewRequestCallID("rc1", 12, id).Request()
		if generation != 12 || request != id || !ok {
			t.Errorf("%s: got %d, %q, %t", id, generation, request, ok)
		}
	}
	for _, id := range []caisson.CallID{
		"", "r", "r.1.2", "r.1.2.3", "r.c1", "r.c1.", "r.c1.short", "r.c0.0123456789abcdef", "r.c01.0123456789abcdef", "r.c+1.0123456789abcdef",
		"r.c-1.0123456789abcdef", "r.c1.0123456789abcdef.1", "r.1.c1.0123456789abcdef", "r.c1.0123456789abcdeX", "r.c99999999999999999999.0123456789abcdef",
		caisson.NewRequestCallID("r", 1, "0123456789abcdef").Nested(0),
	} {
		if generation, request, ok := id.Request(); ok {
			t.Errorf("%q is taken for request %q of generation %d", id, request, generation)
		}
	}
}
