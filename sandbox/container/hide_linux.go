package container

import (
	"context"
	"os"

	"github.com/moby/moby/api/types/system"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// live tells whether files can be hidden in a box that runs: by who may enter
// its mount namespace, which is root, or the user whose engine it is. Those of a
// virtual machine's are out of reach.
func (e *Engine) live(info system.Info) bool {
	switch e.opts.Name {
	case Docker, Podman:
		return os.Geteuid() == 0 || secured(info, "rootless")
	}
	return false
}

// maskLive returns what hides files in the box as they come.
func (b *box) maskLive(ctx context.Context, spec caisson.SandboxSpec) (mask.Client, func(), error) {
	if !b.shared {
		return nil, nil, caisson.Errorf(caisson.CodeUnsupported, "engine %s cannot hide files of a workspace (`hide`) from here: its containers are on another kernel", b.engine.opts.Name).
			WithHint("Use an engine on this kernel, or leave `hide` out of the config.")
	}
	m, err := mask.Open(mask.Options{Workspace: spec.Workspace, Patterns: spec.Hide, Guest: b.root.PID, File: maskFile, Dir: maskDir})
	if err != nil {
		return nil, nil, err
	}
	client, err := mask.Guard(ctx, m, b.guest, spec.GitDir != "")
	return client, m.Close, err
}
