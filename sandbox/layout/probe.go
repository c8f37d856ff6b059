//go:build linux

package layout

import (
	"context"
	"sync"

	"github.com/caisson-run/caisson"
)

// Probe remembers what opening a box has shown. The zero value has seen nothing.
// Safe for concurrent use.
type Probe struct {
	mu    sync.Mutex
	known *found
}

type found struct {
	isolation caisson.Isolation
	err       error
}

// Of opens a box without a workspace, which proves itself, closes it, and
// returns what it reports; later the same again. What was cancelled is not kept.
func (p *Probe) Of(ctx context.Context, open func(context.Context, caisson.SandboxSpec) (caisson.Sandbox, error)) (caisson.Isolation, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil {
		return known.isolation, known.err
	}
	now := &found{}
	box, err := open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err == nil {
		now.isolation, err = box.Isolation(), box.Close()
	}
	if ctx.Err() != nil {
		return caisson.Isolation{}, caisson.Errorf(caisson.CodeCancelled, "cancelled while probing: %w", context.Cause(ctx))
	}
	now.err = err
	p.mu.Lock()
	p.known = now
	p.mu.Unlock()
	return now.isolation, err
}
