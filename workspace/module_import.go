package workspace

import (
	"context"

	"github.com/caisson-run/caisson"
)

// moduleState is what was last seen in the git directory of a submodule inside.
type moduleState struct {
	Refs []byte `json:"refs"`
	Past past   `json:"past"`
}

func (w *Workspaces) importModules(ctx context.Context, ws caisson.Workspace, box Box, seen *state, result *Imported) (changed bool, err error) {
	return false, nil
}
