package workspace

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxUnknownCommits bounds how many commits of one kind are asked for.
const maxUnknownCommits = 20_000

// Kinds of pins.
const (
	pinHead    = "head"
	pinRef     = "ref"
	pinStash   = "stash"
	pinReflog  = "reflog"
	pinState   = "state"
	pinIndex   = "index"
	pinOutside = "outside"
)

// types asks which of the objects the repository has, and of which type.
func (w *Workspaces) types(ctx context.Context, repo *repository, ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	inv := repo.in("cat-file", "--batch-check=%(objectname) %(objecttype)")
	inv.stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	out, err := w.git.run(ctx, inv)
	if err != nil {
		return nil, failed("look for objects", err)
	}
	return readTypes(string(out), ids)
}

// whole tells whether the repository has all that the objects lead to.
func (w *Workspaces) whole(ctx context.Context, repo *repository, ids []string) bool {
	if len(ids) == 0 {
		return true
	}
	inv := repo.in("rev-list", "--objects", "--stdin", "--not", "--all", "--quiet")
	inv.stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	_, err := w.git.run(ctx, inv)
	return err == nil
}

// elsewhere are arguments that stand for all that keeps commits without the
// workspace: other branches and remotes, and none of our own references.
func elsewhere(branch string) []string {
	return []string{"--not", "--exclude=" + branch, "--branches", "--remotes"}
}

// nowhereElse lists commits that only heads lead to: neither other branches,
// nor remotes, nor any of known. With their subjects, newest first.
func (w *Workspaces) nowhereElse(ctx context.Context, repo *repository, branch string, heads, known []string) (ids []string, subjects map[string]string, err error) {
	if len(heads) == 0 {
		return nil, nil, nil
	}
	inv := repo.in(append([]string{"log", "-z", "--no-color", "--encoding=UTF-8", "--topo-order", "--format=%H %s", fmt.Sprint("--max-count=", maxUnknownCommits), "--stdin"}, elsewhere(branch)...)...)
	lines := slices.Clone(heads)
	for _, id := range known {
		lines = append(lines, "^"+id)
	}
	inv.stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := w.git.run(ctx, inv)
	if err != nil {
		return nil, nil, err
	}
	subjects = map[string]string{}
	for _, item := range splitZ(out) {
		id, subject, _ := strings.Cut(item, " ")
		if !isObjectID(id) {
			return nil, nil, fmt.Errorf("git listed %q", printable(id[:min(len(id), 80)]))
		}
		ids, subjects[id] = append(ids, id), subject
	}
	return ids, subjects, nil
}

// fromOutside looks at the worktree's record in the repository, as a person's
// git left it, and at the branch.
func (l *look) fromOutside(ctx context.Context) {
	ws := l.ws
	if l.repo == nil {
		return
	}
	var err error
	if l.found.Tip, err = l.w.branchTip(ctx, l.repo, ws.Branch); err != nil {
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
	if err := l.staged(ctx, admin); err != nil {
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

// staged lists what a person staged in the worktree's own index. Only the index
// and the branch are compared; no file of the tree is looked at.
func (l *look) staged(ctx context.Context, admin string) error {
	tip := l.found.Tip
	if head := l.outer["HEAD"]; head != "" {
		tip = head
	}
	if _, err := readInside(admin, "index", 1<<30); err != nil || tip == "" {
		return nil //nolint:nilerr // none was ever written
	}
	list := func(args ...string) ([]string, error) {
		inv := l.repo.in(args...)
		inv.index = filepath.Join(admin, "index")
		out, err := l.w.git.run(ctx, inv)
		return splitZ(out), err
	}
	blobs := map[string]bool{}
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
	}
	conflicts, err := list("ls-files", "-u", "-z")
	if err != nil {
		return err
	}
	for _, item := range conflicts {
		if fields := strings.Fields(item); len(fields) > 2 {
			blobs[fields[1]] = true
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

// commits lists the commits, references, stashes and logged commits that are
// nowhere else, and what is to be pinned.
func (l *look) commits(ctx context.Context) {
	if l.repo == nil {
		return
	}
	if err := l.listCommits(ctx); err != nil {
		l.unknown("which commits are nowhere else", err)
	}
}

func (l *look) listCommits(ctx context.Context) error {
	ws := l.ws
	// What was imported of worktrees and submodules made inside is kept by these
	// alone, and goes with them.
	kept, err := l.w.pins(ctx, l.repo, inside(ws.ID))
	if err != nil {
		return err
	}
	l.kept = slices.Sorted(maps.Values(kept))
	ids := slices.Concat(l.named(), l.outside, l.kept)
	if l.found.Tip != "" {
		ids = append(ids, l.found.Tip)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	types, err := l.w.types(ctx, l.repo, ids)
	if err != nil {
		return err
	}
	if err := l.pins(ctx, types); err != nil {
		return err
	}
	own := commitsOf(types, l.found.Tip, l.refs.refs["refs/heads/"+ws.Branch])
	list, subjects, err := l.w.nowhereElse(ctx, l.repo, ws.Branch, own, nil)
	if err != nil {
		return err
	}
	for _, id := range list {
		l.lose(LossCommit, id, subjects[id])
	}
	known, err := l.listRefs(ctx, types, own)
	if err != nil {
		return err
	}
	for i, id := range l.inside.stashes {
		l.lose(LossStash, fmt.Sprintf("stash@{%d}", i), id)
	}
	known = slices.Concat(known, own, commitsOf(types, l.inside.stashes...))
	logged := commitsOf(types, slices.Concat(l.inside.logged, l.inside.state, l.outside, l.kept)...)
	if list, subjects, err = l.w.nowhereElse(ctx, l.repo, ws.Branch, logged, known); err != nil {
		return err
	}
	for _, id := range list {
		if id != l.index && id != l.outerIndex {
			l.lose(LossReflog, id, subjects[id])
		}
	}
	return nil
}

// listRefs lists references made inside with what is nowhere else, and returns
// the commits that references lead to.
func (l *look) listRefs(ctx context.Context, types map[string]string, own []string) ([]string, error) {
	ws := l.ws
	there, err := l.w.pins(ctx, l.repo, "refs/heads/", "refs/tags/", "refs/remotes/")
	if err != nil {
		return nil, err
	}
	var commits []string
	for _, id := range l.refs.refs {
		commits = append(commits, commitsOf(types, id)...)
	}
	list, _, err := l.w.nowhereElse(ctx, l.repo, ws.Branch, commits, own)
	if err != nil {
		return nil, err
	}
	lonely := map[string]bool{}
	for _, id := range list {
		lonely[id] = true
	}
	for _, refs := range []struct {
		from string
		refs map[string]string
	}{{"inside", l.refs.refs}, {"outside", l.outer}} {
		for _, name := range slices.Sorted(maps.Keys(refs.refs)) {
			id := refs.refs[name]
			same := there[name] == id || name == "refs/heads/"+ws.Branch || name == "refs/stash" || types[id] == ""
			if !same && (types[id] != "commit" || lonely[id]) {
				l.lose(LossRef, name, refs.from+", "+id)
			}
		}
	}
	return commits, nil
}

// commitsOf returns those of ids that are commits the repository has.
func commitsOf(types map[string]string, ids ...string) []string {
	var commits []string
	seen := map[string]bool{}
	for _, id := range ids {
		if types[id] == "commit" && !seen[id] {
			seen[id] = true
			commits = append(commits, id)
		}
	}
	return commits
}

// pins lists what is pinned, of what the repository has: everything that is
// named, and of the commits in logs those that nothing else leads to.
func (l *look) pins(ctx context.Context, types map[string]string) error {
	seen := map[string]bool{}
	add := func(kind string, ids ...string) {
		for _, id := range ids {
			if types[id] != "" && !seen[id] {
				seen[id] = true
				l.found.Pins = append(l.found.Pins, Pin{kind, id})
			}
		}
	}
	add(pinHead, l.found.Tip, l.refs.refs["refs/heads/"+l.ws.Branch], l.refs.refs["HEAD"])
	for _, name := range slices.Sorted(maps.Keys(l.refs.refs)) {
		add(pinRef, l.refs.refs[name])
	}
	add(pinStash, l.inside.stashes...)
	add(pinIndex, l.index)
	add(pinState, l.inside.state...)
	add(pinOutside, l.outerIndex)
	logged := commitsOf(types, slices.Concat(l.inside.logged, l.outside, l.kept)...)
	if len(logged) == 0 {
		return nil
	}
	inv := l.repo.in("rev-list", fmt.Sprint("--max-count=", maxUnknownCommits), "--stdin")
	for _, p := range l.found.Pins {
		if types[p.ID] == "commit" {
			logged = append(logged, "^"+p.ID)
		}
	}
	inv.stdin = strings.NewReader(strings.Join(logged, "\n") + "\n")
	out, err := l.w.git.run(ctx, inv)
	if err != nil {
		return err
	}
	lonely := map[string]bool{}
	for id := range strings.FieldsSeq(string(out)) {
		lonely[id] = true
	}
	all := len(lonely) >= maxUnknownCommits
	for _, id := range slices.Concat(l.inside.logged, l.kept) {
		if all || lonely[id] {
			add(pinReflog, id)
		}
	}
	for _, id := range l.outside {
		if all || lonely[id] || types[id] != "commit" {
			add(pinOutside, id)
		}
	}
	return nil
}
