//go:build !linux

package container

import (
	"context"
	"errors"

	"github.com/moby/moby/api/types/system"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// live is false: no engine is on this system's kernel.
func (*Engine) live(system.Info) bool { return false }

func (*box) maskLive(context.Context, caisson.SandboxSpec) (mask.Client, func(), error) {
	return nil, func() {}, errors.ErrUnsupported
}
