package workspace

import "github.com/caisson-run/caisson"

// What we keep in a repository has a name below one of these. Below the first
// three, and the trash, comes the id of a workspace.
const (
	ownRefs       = "refs/caisson/"
	workspaceRefs = ownRefs + "workspaces/" // what a shadow borrows, and snapshots on demand
	insideRefs    = ownRefs + "inside/"     // what was made inside beside the branch
	trashRefs     = ownRefs + "trash/"      // what a workspace in the trash names
	divergedRefs  = ownRefs + "diverged/"   // by branch: commits that it could not take
	runRefs       = ownRefs + "runs/"       // by run: snapshots after its turns

	// noRef is where a HEAD of ours points to: nothing is ever there.
	noRef = ownRefs + "none"
	// baseRef names the base inside a shadow.
	baseRef = ownRefs + "base"
)

// ofWorkspace returns the names below prefixes that are a workspace's.
func ofWorkspace(id caisson.WorkspaceID, prefixes ...string) []string {
	names := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		names[i] = prefix + string(id) + "/"
	}
	return names
}
