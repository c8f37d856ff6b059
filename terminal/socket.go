package terminal

import (
	"context"

	"github.com/caisson-run/caisson/internal/localsocket"
)

// Answers tells whether a server listens at path.
func Answers(ctx context.Context, path string) bool {
	return localsocket.Answers(ctx, localsocket.Stream, path)
}
