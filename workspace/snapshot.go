package workspace

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// insideDeadline bounds a look at a tree from inside.
const insideDeadline = 10 * time.Minute

// gather brings a private index up to date with the tree: untracked files too,
// ignored ones not. It is kept, so that the next time only what changed is
// read. The agent's own index is never touched. $1 is the shadow, $2 the tree.
const gather = `set -eu
GIT_DIR=$CAISSON_SHADOW GIT_WORK_TREE=$CAISSON_TREE GIT_INDEX_FILE=$CAISSON_SHADOW/caisson-index
export GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
cd "$CAISSON_TREE"
rm -f "$GIT_INDEX_FILE.lock"
[ -f "$GIT_INDEX_FILE" ] || cp "$GIT_DIR/index" "$GIT_INDEX_FILE" 2>/dev/null || git read-tree HEAD
partial=
git -c advice.addEmbeddedRepo=false -c core.safecrlf=false add -A --ignore-errors . >&2 || partial=partial
`

// keep writes a snapshot as a commit, unless it is the last one again.
const keep = gather + `
tree=$(git write-tree)
head=$(git rev-parse --verify --quiet HEAD || :)
if [ "$tree" = "$CAISSON_TREE_BEFORE" ] && [ "$head" = "$CAISSON_HEAD_BEFORE" ]; then
	echo "$head $tree $CAISSON_COMMIT_BEFORE $partial"
	exit 0
fi
GIT_AUTHOR_NAME=Caisson GIT_AUTHOR_EMAIL=caisson@localhost GIT_COMMITTER_NAME=Caisson GIT_COMMITTER_EMAIL=caisson@localhost
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
commit=$(echo "$CAISSON_MESSAGE" | git -c commit.gpgSign=false commit-tree "$tree" ${head:+-p "$head"})
echo "${head:-none} $tree $commit $partial"
`

// Snapshot is a tree as it was at one moment.
type Snapshot struct {
	Commit  string // holds the tree; its parent is what was checked out inside
	Ref     string // outside: refs/caisson/runs/<run>/<turn>
	Changed bool   // since the last snapshot
	Partial string // why some files are not in it
}

// SnapshotRef is the reference that holds the tree after a turn of a run.
func SnapshotRef(run caisson.RunID, turn int) string {
	return "refs/caisson/runs/" + string(run) + "/" + strconv.Itoa(turn)
}

// Snapshot keeps the tree as it is, under [SnapshotRef]. The box computes it;
// what it says is data: it can lie about its own tree only.
func (w *Workspaces) Snapshot(ctx context.Context, ws caisson.Workspace, given Box, run caisson.RunID, turn int) (Snapshot, error) {
	ref := SnapshotRef(run, turn)
	if !isRefName(ref) || turn < 0 {
		return Snapshot{}, caisson.Errorf(caisson.CodeUsage, "%q is no run", printable(string(run)))
	}
	if err := w.Check(ctx, ws); err != nil {
		return Snapshot{}, err
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return Snapshot{}, err
	}
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return Snapshot{}, err
	}
	defer closeBox() //nolint:errcheck // what was needed has been received
	release, err := w.lock(ctx, ws)
	if err != nil {
		return Snapshot{}, err
	}
	defer release()
	seen, err := w.readState(ws)
	if err != nil {
		return Snapshot{}, failed("read what was seen last", err)
	}
	out := &limitedBuffer{limit: 4096}
	complaint, err := w.inside(ctx, ws, box, keep, out, "CAISSON_TREE_BEFORE="+seen.Snapshot.Tree, "CAISSON_HEAD_BEFORE="+seen.Snapshot.Head,
		"CAISSON_COMMIT_BEFORE="+seen.Snapshot.Commit, "CAISSON_MESSAGE=snapshot of "+string(run)+" after turn "+strconv.Itoa(turn))
	if err != nil {
		return Snapshot{}, err
	}
	fields := strings.Fields(out.String())
	if len(fields) < 3 || !isObjectID(fields[1]) || !isObjectID(fields[2]) {
		return Snapshot{}, caisson.Errorf(caisson.CodeGitFailed, "the tree of %s could not be kept: git inside gave %q", ws.Name, printable(out.String()))
	}
	now := taken{fields[0], fields[1], fields[2]}
	snap := Snapshot{Commit: now.Commit, Ref: ref, Changed: now != seen.Snapshot}
	if len(fields) > 3 {
		snap.Partial = orElse(complaint, "some files could not be read")
	}
	if snap.Changed {
		if err := w.fetch(ctx, repo, ws, box, []string{now.Commit}, []string{seen.Snapshot.Commit, seen.Tip, ws.Base}); err != nil {
			return Snapshot{}, err
		}
	}
	commit, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", now.Commit+"^{commit}"))
	if err != nil || commit != now.Commit {
		return Snapshot{}, caisson.Errorf(caisson.CodeImportHeld, "what git inside gave as a snapshot of %s is no commit", ws.Name)
	}
	if err := w.updateRefs(ctx, repo, "", refUpdate{ref, now.Commit, ""}); err != nil {
		return Snapshot{}, failed("keep the snapshot", err)
	}
	seen.Snapshot = now
	return snap, w.writeState(ws, seen)
}

// inside runs a script of ours in a box and returns what it complained of.
func (w *Workspaces) inside(ctx context.Context, ws caisson.Workspace, box Box, script string, out io.Writer, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, insideDeadline)
	defer cancel()
	complaint := &tailBuffer{limit: maxComplaint}
	proc, err := box.Hold(ctx, caisson.Command{
		Argv:   []string{"/bin/sh", "-c", script},
		Env:    append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "CAISSON_SHADOW="+ws.Shadow, "CAISSON_TREE="+ws.Path),
		Stdout: out, Stderr: complaint, Deadline: insideDeadline,
	})
	if err != nil {
		return "", err
	}
	if err := proc.Release(); err != nil {
		proc.Drop()
		return "", err
	}
	exit, err := proc.Wait(ctx)
	said := printable(complaint.String())
	switch {
	case err != nil:
		return said, err
	case ctx.Err() != nil:
		return said, failed("look at the tree of "+ws.Name, ctx.Err())
	case exit.Code != 0:
		return said, caisson.Errorf(cmp.Or(diskCode(nil, said), caisson.CodeGitFailed), "the tree of %s could not be read inside (status %d): %s", ws.Name, exit.Code, said)
	}
	return said, nil
}
