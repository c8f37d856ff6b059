package caisson

import (
	"context"
	"encoding/json"
)

// Hook sees every call before it is judged.
type Hook interface {
	Name() string
	// Before returns the input to use instead, or nil to leave it. An error
	// refuses the call. A hook must be stable: given its own answer it
	// changes nothing more, else the call is refused with CodePrepareUnstable.
	Before(ctx context.Context, tool ToolRef, input json.RawMessage) (json.RawMessage, error)
}
