package workspace

import (
	"cmp"
	"context"

	"github.com/caisson-run/caisson"
)

// Followed is what [Workspaces.Follow] did.
type Followed struct {
	Old       string `json:"old"` // of the branch inside
	New       string `json:"new"` // of the branch, inside and outside
	IndexKept string `json:"index_kept,omitempty"`
}

// Tip returns the commit of the workspace's branch outside; "" where there is
// no branch.
func (w *Workspaces) Tip(ctx context.Context, ws caisson.Workspace) (string, error) {
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return "", err
	}
	return w.branchTip(ctx, repo, ws.Branch)
}

// follow moves the branch inside, and brings the index along where the branch is
// checked out there. The tree is not touched: both are around the same.
const follow = `
set -e
git -c core.hooksPath=/dev/null update-ref -m "caisson: follow" "refs/heads/$CAISSON_BRANCH" "$CAISSON_TO" "$CAISSON_FROM"
if [ "$(git symbolic-ref -q HEAD)" = "refs/heads/$CAISSON_BRANCH" ]; then
	git -c core.hooksPath=/dev/null -c submodule.recurse=false read-tree -i -m "$CAISSON_SEEN" "$CAISSON_TO" || echo "the index inside could not be brought along"
fi
`

// Follow brings the branch inside to where a person has put it outside. It is
// the reverse of [Workspaces.Import], and is done only where nothing was
// committed inside that the branch outside does not know (CodeImportHeld). What
// the branch was at before stays kept. Nobody may work inside meanwhile, which
// the caller sees to. Doing it again does no harm.
func (w *Workspaces) Follow(ctx context.Context, ws caisson.Workspace, given Box) (done Followed, err error) {
	if err := w.Check(ctx, ws); err != nil || isClone(ws) { // a clone's branch is the one that a person moved
		return done, err
	}
	release, err := w.lock(ctx, ws)
	if err != nil {
		return done, err
	}
	defer release()
	seen, err := w.readState(ws)
	if err != nil {
		return done, failed("read what was seen last", err)
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return done, err
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil {
		return done, err
	}
	now, err := readShadow(ws)
	if err != nil {
		return done, err
	}
	branch := "refs/heads/" + ws.Branch
	done = Followed{Old: now.refs[branch], New: tip}
	switch {
	case tip == "":
		return done, caisson.Errorf(caisson.CodeWorkspaceBindingLost, "branch %s is gone", printable(ws.Branch)).WithHint("Make it again: `git branch %s %s`.", quoted(ws.Branch), seen.Tip)
	case tip == done.Old && tip == seen.Tip:
		return done, nil
	case done.Old != seen.Tip && done.Old != tip || seen.Diverged != "":
		return done, caisson.Errorf(caisson.CodeImportHeld, "inside, branch %s has commits that the branch outside does not have", printable(ws.Branch)).
			WithHint("Merge %s into it with git, or bring the branch back to %s.", cmp.Or(seen.Diverged, "what was made inside"), seen.Tip)
	}
	updates := []refUpdate{{pin(ws.ID, "tip"), tip, ""}}
	if kept, err := w.descends(ctx, repo, tip, seen.Tip); err != nil {
		return done, err
	} else if !kept {
		updates = append(updates, refUpdate{inside(ws.ID) + keptWas + seen.Tip, seen.Tip, ""})
	}
	if err := w.updateRefs(ctx, repo, "caisson: follow", updates...); err != nil {
		return done, failed("keep the commits of "+ws.Branch, err)
	}
	pass("workspace.follow.kept")
	if done.IndexKept, err = w.followInside(ctx, ws, given, done, seen.Tip); err != nil {
		return done, err
	}
	pass("workspace.follow.moved")
	now.refs[branch], seen.Tip, seen.Index = tip, tip, ""
	seen.Refs = listRefs(now.refs)
	return done, w.writeState(ws, seen)
}

// followInside moves the branch inside from where it was last seen.
func (w *Workspaces) followInside(ctx context.Context, ws caisson.Workspace, given Box, to Followed, seen string) (kept string, err error) {
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return "", err
	}
	var said tailBuffer
	said.limit = maxComplaint
	_, err = w.inside(ctx, ws, box, follow, &said, "CAISSON_BRANCH="+ws.Branch, "CAISSON_TO="+to.New, "CAISSON_FROM="+to.Old, "CAISSON_SEEN="+seen)
	if closeErr := closeBox(); err == nil {
		err = closeErr
	}
	return printable(said.String()), err
}
