//go:build !linux

package guest

import (
	"context"
	"os"
	"sync"

	"github.com/caisson-run/caisson"
)

// egress is for guests on the same kernel, and those are on Linux.
type egress struct{ serving sync.WaitGroup }

func newEgress(_ context.Context, _ caisson.Egress, socket *os.File) (*egress, error) {
	socket.Close()
	return nil, caisson.Errorf(caisson.CodeUnsupported, "connections are handed over by guests on the same kernel alone")
}

func (e *egress) serve() error { return nil }

func (e *egress) close() {}
