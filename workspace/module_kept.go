package workspace

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
)

// What a workspace keeps of its submodules is in the repositories that they
// borrow from, under the same names as in its own: names that bear its id, or
// that of a run that worked in it. It goes when that in its own goes.

// repositoryOf returns the repository of a submodule; an error where it is
// gone or cannot be used.
func (w *Workspaces) repositoryOf(ctx context.Context, m caisson.Submodule) (*repository, error) {
	if m.Repository == "" || !isGitDir(m.Repository) {
		return nil, fmt.Errorf("the repository of the submodule %s is gone", printable(m.Path))
	}
	return w.repository(ctx, m.Repository, false)
}

// dropFrom is dropRefs in a workspace's repository and in those of its
// submodules. One that is gone has nothing any more.
func (w *Workspaces) dropFrom(ctx context.Context, ws caisson.Workspace, goes func(name string) (bool, error), patterns ...string) error {
	repo, err := w.boundRepository(ctx, ws)
	if err != nil || repo == nil {
		return err
	}
	seen := map[string]bool{repo.common: true}
	var errs []error
	for _, m := range ws.Submodules {
		if m.Repository == "" || seen[m.Repository] || !isGitDir(m.Repository) {
			continue
		}
		seen[m.Repository] = true
		of, err := w.repositoryOf(ctx, m)
		if err == nil {
			err = w.dropRefs(ctx, of, goes, patterns...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("of the submodule %s: %w", printable(m.Path), err))
		}
	}
	return errors.Join(append(errs, w.dropRefs(ctx, repo, goes, patterns...))...)
}
