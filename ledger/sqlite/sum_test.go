package sqlite

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
)

// TestEventSum compares the short way to an event's hash with the one that
// verifiers take.
func TestEventSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body, err := caisson.CanonicalOf(rapid.MapOf(rapid.String(), rapid.Float64()).Draw(t, "body"))
		if err != nil {
			t.Fatal(err)
		}
		e := caisson.Event{
			Run: caisson.RunID(rapid.String().Draw(t, "run")), Seq: rapid.Int64Range(1, 1<<52).Draw(t, "seq"), Body: body,
			Kind: caisson.EventKind(rapid.String().Draw(t, "kind")), Prev: caisson.Digest(rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(t, "prev")),
			At: time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "at")).UTC(),
		}
		want, err := e.Sum()
		if err != nil {
			t.Fatal(err)
		}
		got, err := eventSum(e.Run, e.Seq, e.At, e.Kind, body, e.Prev)
		if err != nil || got != want {
			t.Fatalf("got %s (%v), want %s", got, err, want)
		}
	})
}
