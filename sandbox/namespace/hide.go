//go:build linux

package namespace

import (
	"context"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/layout"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// hide masks what the spec hides, before anything runs.
func (b *box) hide(ctx context.Context, spec caisson.SandboxSpec) error {
	b.inside = b.client
	if len(spec.Hide) == 0 || spec.Workspace == "" {
		return nil
	}
	m, err := mask.Open(mask.Options{
		Workspace: spec.Workspace, Patterns: spec.Hide, Guest: b.root.PID, File: layout.Masks.File, Dir: layout.Masks.Dir,
	})
	if err != nil {
		return err
	}
	b.mask = m
	b.inside, err = m.Guard(ctx, b.client, spec.GitDir != "")
	return err
}
