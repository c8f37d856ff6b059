package workspace

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
)

// RestoreSpec says what is brought back.
type RestoreSpec struct {
	Name   string   // of the snapshot, for messages
	Commit string   // that holds the tree
	Paths  []string // files and directories, relative to the tree; none: the whole tree
}

// Restored is what was brought back.
type Restored struct {
	From    string          `json:"from"`           // name of the snapshot
	Before  Snapshot        `json:"before"`         // the tree as it was until now: what undoes it
	Changes []Change        `json:"changes"`        // that were made to the tree
	Left    []caisson.Bytes `json:"left,omitempty"` // repositories in the tree, of which a snapshot holds no files
}

// put brings the tree from one snapshot to another. It is a checkout with a head
// and an index of its own; git looks, before it writes anything, that no file is
// in the way that the first snapshot does not hold, ignored or not.
const put = `set -eu
cd "$CAISSON_TREE"
own=$CAISSON_SHADOW/caisson-restore
rm -rf "$own"
mkdir "$own"
echo "$CAISSON_FROM" >"$own/HEAD"
cp "$CAISSON_SHADOW/caisson-index" "$own/index"
export GIT_DIR="$own" GIT_COMMON_DIR="$CAISSON_SHADOW" GIT_WORK_TREE="$CAISSON_TREE"
git -c core.hooksPath=/dev/null -c submodule.recurse=false -c core.logAllRefUpdates=false -c core.splitIndex=false checkout -q --no-overwrite-ignore --detach "$CAISSON_TO"
mv "$own/index" "$CAISSON_SHADOW/caisson-index"
rm -rf "$own"
`

// RestoreFiles brings files back as a snapshot holds them. It is done inside a
// box, after a snapshot of what is there, so that nothing is lost and it can be
// undone. Files that the snapshot does not hold are removed only where the
// whole tree is restored; ignored files stay, and one in the way of a file
// stops it before anything is written (CodeWorkspaceDirty). The branch, and what
// is checked out and staged inside, stay as they are. The caller sees to it that
// nobody works in the workspace.
func (w *Workspaces) RestoreFiles(ctx context.Context, ws caisson.Workspace, given Box, spec RestoreSpec) (Restored, error) {
	result := Restored{From: spec.Name}
	for i, p := range spec.Paths {
		clean := path.Clean(p)
		if p == "" || path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") {
			return result, caisson.Errorf(caisson.CodePathOutside, "%q is not in the workspace", printable(p))
		}
		spec.Paths[i] = clean
	}
	err := w.withTree(ctx, ws, given, func(t *treeLook) error {
		wanted, err := w.git.line(ctx, t.repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", spec.Commit+"^{tree}"))
		if err != nil {
			return caisson.Errorf(caisson.CodeNotFound, "snapshot %s is gone", spec.Name)
		}
		if err := t.checkPaths(ctx, spec, wanted); err != nil {
			return err
		}
		if result.Before, err = t.takeNow(ctx, "before "+spec.Name+" was restored"); err != nil {
			return err
		}
		if result.Before.Partial != "" {
			return caisson.Errorf(caisson.CodeWorkspaceDirty, "some files of %s cannot be kept, and could be lost: %s", ws.Name, result.Before.Partial).
				WithHint("Make them readable, or move them away, and try again.")
		}
		from, err := w.git.line(ctx, t.repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", result.Before.Commit+"^{tree}"))
		if err != nil {
			return failed("look at the snapshot", err)
		}
		to, left, err := t.goal(ctx, from, wanted, spec.Paths)
		if err != nil {
			return err
		}
		result.Left = left
		if result.Changes, err = w.changes(ctx, t.repo, from, to); err != nil || from == to {
			return err
		}
		goal, err := t.made(ctx, to, "restore")
		if err != nil {
			return err
		}
		out := &limitedBuffer{limit: 64 << 10}
		if said, err := w.inside(ctx, ws, t.box, put, out, "CAISSON_FROM="+result.Before.Commit, "CAISSON_TO="+goal); err != nil {
			if strings.Contains(said, "would be overwritten") || strings.Contains(said, "would lose untracked files") {
				return caisson.Errorf(caisson.CodeWorkspaceDirty, "files are in the way that no snapshot holds; nothing was changed: %s", said).
					WithHint("Ignored files are never overwritten. Move them away and try again.")
			}
			return caisson.AsError(err).WithHint("The tree may be restored in part. As it was before: `caisson workspace restore %s --snapshot %s`.", ws.Name, strings.TrimPrefix(result.Before.Name, "@"))
		}
		return nil
	})
	return result, err
}

// made returns a commit of a tree, which nothing holds yet.
func (t *treeLook) made(ctx context.Context, tree, message string, parents ...string) (string, error) {
	args := []string{"commit-tree"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	inv := t.repo.in(append(args, "-F", "-", "--", tree)...)
	inv.stdin, inv.env = strings.NewReader(message+"\n"), []string{
		"GIT_AUTHOR_NAME=Caisson", "GIT_AUTHOR_EMAIL=caisson@localhost", "GIT_COMMITTER_NAME=Caisson", "GIT_COMMITTER_EMAIL=caisson@localhost",
	}
	commit, err := t.w.git.line(ctx, inv)
	if err != nil {
		return "", failed("make a commit of the tree", err)
	}
	return commit, nil
}

// checkPaths refuses a path of which the snapshot has nothing.
func (t *treeLook) checkPaths(ctx context.Context, spec RestoreSpec, tree string) error {
	for _, p := range spec.Paths {
		if p == "." {
			continue
		}
		out, err := t.w.git.run(ctx, t.repo.in("ls-tree", "-z", "--full-tree", tree, "--", p))
		if err != nil {
			return failed("look for the files in the snapshot", err)
		}
		if len(out) == 0 {
			return caisson.Errorf(caisson.CodeNotFound, "%s is not in snapshot %s", printable(p), spec.Name).
				WithHint("Paths are as in the tree of the workspace; ignored files are in no snapshot.")
		}
	}
	return nil
}

// goal returns the tree that is to be there: wanted, but for repositories
// inside, which stay as they are; with paths, the tree as it is, with them from
// wanted.
func (t *treeLook) goal(ctx context.Context, now, wanted string, paths []string) (goal string, left []caisson.Bytes, err error) {
	all, err := t.w.differences(ctx, t.repo, now, wanted, paths...)
	if err != nil {
		return "", nil, err
	}
	var removed, written strings.Builder
	for _, d := range all {
		switch {
		case d.oldMode == gitlink || d.mode == gitlink:
			left = append(left, caisson.Bytes(d.path))
		case d.mode != noMode:
			written.WriteString(d.mode + " " + d.id + "\t" + d.path + "\x00")
		case len(paths) == 0:
			removed.WriteString(noMode + " " + strings.Repeat("0", len(d.id)) + "\t" + d.path + "\x00")
		}
	}
	if len(paths) == 0 && left == nil {
		return wanted, nil, nil
	}
	index := filepath.Join(t.w.private(t.ws.ID), "restore-index")
	defer os.Remove(index) //nolint:errcheck // the next restore writes it anew
	git := func(stdin string, args ...string) (string, error) {
		inv := t.repo.in(args...)
		inv.index, inv.stdin = index, strings.NewReader(stdin)
		return t.w.git.line(ctx, inv)
	}
	if _, err := git("", "read-tree", now); err != nil {
		return "", left, failed("prepare the tree", err)
	}
	if _, err := git(removed.String()+written.String(), "update-index", "-z", "--index-info"); err != nil {
		return "", left, failed("prepare the tree", err)
	}
	if goal, err = git("", "write-tree"); err != nil {
		return "", left, failed("prepare the tree", err)
	}
	return goal, left, t.mayReplace(ctx, now, goal, len(paths) == 0)
}

// mayReplace refuses what a file and a directory of one name would remove.
func (t *treeLook) mayReplace(ctx context.Context, now, goal string, remove bool) error {
	all, err := t.w.differences(ctx, t.repo, now, goal)
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.oldMode == gitlink || d.mode == noMode && !remove {
			return caisson.Errorf(caisson.CodeWorkspaceDirty, "%s is in the way, where the snapshot has a file and there is a directory, or the other way round; nothing was changed", printable(d.path)).
				WithHint("Move it away and try again.")
		}
	}
	return nil
}
