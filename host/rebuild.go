package host

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/container"
)

// RebuildRequest says whose image of sandboxes is made anew, and how.
type RebuildRequest struct {
	// Engine is a container engine. Empty: the config's, if that is one, else the
	// first that answers.
	Engine string
	// Refresh also brings what the image is made from.
	Refresh bool
	// Output receives what the engine says meanwhile. Nil: nothing.
	Output io.Writer
}

// Rebuilt says which image was made.
type Rebuilt struct {
	Engine string `json:"engine"`
	Image  string `json:"image"`
}

// Rebuild makes the image of the sandboxes of a container engine.
func (h *Host) Rebuild(ctx context.Context, want RebuildRequest) (Rebuilt, error) {
	candidates, err := h.rebuildable(want.Engine)
	if err != nil {
		return Rebuilt{}, err
	}
	var reasons error
	for _, engine := range candidates {
		err := engine.Rebuild(ctx, container.RebuildOptions{Refresh: want.Refresh, Output: want.Output})
		if err == nil {
			return Rebuilt{Engine: engine.Name(), Image: engine.Image()}, nil
		}
		if len(candidates) == 1 || caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
			return Rebuilt{}, err
		}
		reasons = errors.Join(reasons, err)
	}
	return Rebuilt{}, caisson.Errorf(caisson.CodeEngineUnavailable, "no container engine answers: %w", reasons).
		WithHint("Start one, or name it with --engine.")
}

// rebuildable are the engines that Rebuild tries, in their order.
func (h *Host) rebuildable(name string) ([]*container.Engine, error) {
	var all []*container.Engine
	var known []string
	for _, engine := range h.engines {
		c, is := engine.(*container.Engine)
		if !is {
			continue
		}
		if c.Name() == name || name == "" && c.Name() == h.Config.Engine {
			return []*container.Engine{c}, nil
		}
		all, known = append(all, c), append(known, c.Name())
	}
	if name == "" {
		return all, nil
	}
	if _, err := h.engine(name); err == nil {
		return nil, caisson.Errorf(caisson.CodeUsage, "the engine %s has no image", name).WithHint("Container engines here: %s.", strings.Join(known, ", "))
	}
	return nil, sandbox.Unsupported(name, known)
}
