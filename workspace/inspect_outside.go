package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fromOutside looks at the worktree's record in the repository, as a person's
// git left it, and at the branch.
func (l *look) fromOutside(ctx context.Context) {
	ws := l.ws
	if l.repo == nil {
		return
	}
	var err error
	if l.found.Tip, err = l.tip(ctx); err != nil {
		l.unknown("the branch", err)
	}
	if log, err := readInside(ws.Binding.CommonDir, "logs/refs/heads/"+ws.Branch, maxLogs); err == nil {
		ids, _ := parseLog(log)
		l.outside = append(l.outside, ids...)
	}
	admin := l.w.ownAdmin(ws)
	if admin == "" {
		return
	}
	state, err := l.record(admin)
	if err != nil {
		l.unknown("the worktree's record", err)
	}
	for _, op := range state.operations {
		l.lose(LossOperation, op, "outside, by hand")
	}
	l.outside = slices.Concat(l.outside, state.logged, state.state)
	for _, id := range l.outer {
		l.outside = append(l.outside, id)
	}
	if err := l.stagedOutside(ctx, admin); err != nil {
		l.unknown("what is staged outside", err)
	}
}

// record reads the worktree's record in the repository.
func (l *look) record(admin string) (gitState, error) {
	root, err := os.OpenRoot(admin)
	if err != nil {
		return gitState{}, err
	}
	defer root.Close()
	refs, err := readRefs(root)
	if err != nil {
		return gitState{}, err
	}
	l.outer = refs.refs
	return readGitState(root)
}

// stagedOutside lists what a person staged in the worktree's own index. Only the index
// and the branch are compared; no file of the tree is looked at.
func (l *look) stagedOutside(ctx context.Context, admin string) error {
	tip := l.found.Tip
	if head := l.outer["HEAD"]; head != "" {
		tip = head
	}
	if _, err := os.Lstat(filepath.Join(admin, "index")); errors.Is(err, fs.ErrNotExist) || tip == "" {
		return nil // none was ever written
	}
	list := func(args ...string) ([]string, error) {
		inv := l.repo.in(args...)
		inv.index = filepath.Join(admin, "index")
		out, err := l.w.git.run(ctx, inv)
		return splitZ(out), err
	}
	blobs, conflict := map[string]bool{}, false
	changed, err := list("diff-index", "--cached", "--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=all", tip, "--")
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(changed); i += 2 {
		fields := strings.Fields(changed[i])
		if len(fields) != 5 {
			return fmt.Errorf("git listed %q", printable(changed[i][:min(len(changed[i]), 80)]))
		}
		l.lose(LossStaged, changed[i+1], "in the index outside")
		blobs[fields[3]] = true
		conflict = conflict || fields[4] == "U"
	}
	if conflict {
		sides, err := list("ls-files", "-u", "-z")
		if err != nil {
			return err
		}
		for _, item := range sides {
			if fields := strings.Fields(item); len(fields) > 2 {
				blobs[fields[1]] = true
			}
		}
	}
	return l.holdStaged(ctx, slices.Sorted(maps.Keys(blobs)))
}

// holdStaged makes a commit that holds what is staged outside.
func (l *look) holdStaged(ctx context.Context, blobs []string) error {
	blobs = slices.DeleteFunc(blobs, func(id string) bool { return !isObjectID(id) })
	types, err := l.w.types(ctx, l.repo, blobs)
	if err != nil {
		return err
	}
	var tree strings.Builder
	for _, id := range blobs {
		if types[id] == "blob" {
			tree.WriteString("100644 blob " + id + "\t" + id + "\n")
		}
	}
	if tree.Len() == 0 {
		return nil
	}
	inv := l.repo.in("mktree")
	inv.stdin = strings.NewReader(tree.String())
	id, err := l.w.git.line(ctx, inv)
	if err != nil {
		return err
	}
	inv = l.repo.in("commit-tree", "-m", "index", id)
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		inv.env = append(inv.env, "GIT_"+who+"_NAME=Caisson", "GIT_"+who+"_EMAIL=caisson@localhost", "GIT_"+who+"_DATE=@0 +0000")
	}
	if id, err = l.w.git.line(ctx, inv); err != nil {
		return err
	}
	l.outside, l.outerIndex = append(l.outside, id), id
	return nil
}
