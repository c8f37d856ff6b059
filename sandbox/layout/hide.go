//go:build linux

package layout

import (
	"context"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// Masks are at the top of every box that hides something: an empty file and an
// empty directory that nobody may read.
var Masks = plan.Mask{File: "/.hidden-file", Dir: "/.hidden-dir"}

// Hide masks what the spec hides in a box that was proved, before anything runs
// in it, and returns what to run commands and to read files with from then on.
// The mask, nil where nothing is hidden, is closed with the box.
func Hide(ctx context.Context, spec caisson.SandboxSpec, guest int, client mask.Client) (*mask.Mask, mask.Client, error) {
	if len(spec.Hide) == 0 || spec.Workspace == "" {
		return nil, client, nil
	}
	m, err := mask.Open(mask.Options{Workspace: spec.Workspace, Patterns: spec.Hide, Guest: guest, File: Masks.File, Dir: Masks.Dir})
	if err != nil {
		return nil, nil, err
	}
	client, err = m.Guard(ctx, client, spec.GitDir != "")
	return m, client, err
}
