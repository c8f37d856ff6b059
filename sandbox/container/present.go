package container

import (
	"context"

	"github.com/caisson-run/caisson"
)

// Present lists the sandboxes of this state directory that have a container at
// the engine, and says which installation of the engine tells so: that is the
// EngineInstance in the records of those that it made.
func (e *Engine) Present(ctx context.Context) (instance string, sandboxes map[caisson.SandboxID]bool, err error) {
	_, info, err := e.meet(ctx)
	if err != nil {
		return "", nil, err
	}
	containers, err := e.ours(ctx)
	if err != nil {
		return "", nil, err
	}
	sandboxes = map[caisson.SandboxID]bool{}
	for id := range containers {
		sandboxes[id] = true
	}
	return e.instance(info), sandboxes, nil
}
