//go:build linux

package verb

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/caisson-run/caisson"
)

// What needs git outside waits for its turn, and does nothing where that does not
// come: neither a snapshot nor the import before a push.
func TestWorkTakesItsTurn(t *testing.T) {
	late := errors.New("it is not its turn")
	tree := Tree{
		Turn:   func(context.Context, func() error) error { return late },
		Import: func(context.Context) error { t.Error("it was imported"); return nil },
	}
	held, err := Snapshot{tree}.Hold(t.Context(), caisson.Call{Input: json.RawMessage(`{"why":"x"}`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Open(t.Context()); !errors.Is(err, late) {
		t.Errorf("a snapshot: %v", err)
	}
	push := Push{Tree: tree}
	call := caisson.Call{Input: json.RawMessage(`{"commit":"","address":"x"}`)}
	if _, err := push.Preview(t.Context(), call); !errors.Is(err, late) {
		t.Errorf("what is asked of a push: %v", err)
	}
	if _, err := push.Hold(t.Context(), call, ""); !errors.Is(err, late) {
		t.Errorf("a push: %v", err)
	}
}
