package workspace

import (
	"context"
	"fmt"
	"maps"
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

// askOutside lists the references that the repository has.
func (l *look) askOutside(ctx context.Context) error {
	if l.there != nil {
		return nil
	}
	there, err := l.w.pins(ctx, l.repo, "refs/heads/", "refs/tags/", "refs/remotes/", inside(l.ws.ID), pin(l.ws.ID, ""))
	if err == nil {
		l.there = there
	}
	return err
}

// know asks for the types of objects that were not asked for yet.
func (l *look) know(ctx context.Context, ids []string) error {
	ask := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, known := l.types[id]; return known })
	types, err := l.w.types(ctx, l.repo, ask)
	for _, id := range ask {
		if err == nil {
			l.types[id] = types[id]
		}
	}
	return err
}

// tip returns where the branch is; "" where there is none.
func (l *look) tip(ctx context.Context) (string, error) {
	if err := l.askOutside(ctx); err != nil {
		return "", err
	}
	id := l.there["refs/heads/"+l.ws.Branch]
	if id == "" || l.types[id] == "commit" {
		return id, nil
	}
	return l.w.branchTip(ctx, l.repo, l.ws.Branch)
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
	if err := l.askOutside(ctx); err != nil {
		return err
	}
	// What was imported of worktrees and submodules made inside is kept by these
	// alone, and goes with them.
	for name, id := range l.there {
		if strings.HasPrefix(name, inside(ws.ID)) {
			l.kept = append(l.kept, id)
		}
	}
	slices.Sort(l.kept)
	ids := slices.Concat(l.named(), l.outside, l.kept)
	if l.found.Tip != "" {
		ids = append(ids, l.found.Tip)
	}
	slices.Sort(ids)
	if err := l.know(ctx, slices.Compact(ids)); err != nil {
		return err
	}
	if err := l.pins(ctx); err != nil {
		return err
	}
	for i, id := range l.inside.stashes {
		l.lose(LossStash, fmt.Sprintf("stash@{%d}", i), id)
	}
	own := commitsOf(l.types, l.found.Tip, l.refs.refs["refs/heads/"+ws.Branch])
	referred := commitsOf(l.types, slices.Sorted(maps.Values(l.refs.refs))...)
	logged := commitsOf(l.types, slices.Concat(l.inside.logged, l.inside.state, l.outside, l.kept)...)
	if any, err := l.anyNowhereElse(ctx, slices.Concat(own, referred, logged)); err != nil {
		return err
	} else if !any {
		l.listRefs(nil)
		return nil
	}
	return l.listNowhereElse(ctx, own, referred, logged)
}

// anyNowhereElse tells whether heads lead to a commit that nothing else leads to.
func (l *look) anyNowhereElse(ctx context.Context, heads []string) (bool, error) {
	if len(heads) == 0 {
		return false, nil
	}
	inv := l.repo.in(append([]string{"rev-list", "--max-count=1", "--stdin"}, elsewhere(l.ws.Branch)...)...)
	inv.stdin = strings.NewReader(strings.Join(heads, "\n") + "\n")
	out, err := l.w.git.run(ctx, inv)
	return len(out) > 0, err
}

// listNowhereElse lists commits that are nowhere else by what leads to them: the
// branch, other references, or a log alone.
func (l *look) listNowhereElse(ctx context.Context, own, referred, logged []string) error {
	branch := l.ws.Branch
	list, subjects, err := l.w.nowhereElse(ctx, l.repo, branch, own, nil)
	if err != nil {
		return err
	}
	for _, id := range list {
		l.lose(LossCommit, id, subjects[id])
	}
	if list, _, err = l.w.nowhereElse(ctx, l.repo, branch, referred, own); err != nil {
		return err
	}
	lonely := map[string]bool{}
	for _, id := range list {
		lonely[id] = true
	}
	l.listRefs(lonely)
	known := slices.Concat(referred, own, commitsOf(l.types, l.inside.stashes...))
	if list, subjects, err = l.w.nowhereElse(ctx, l.repo, branch, logged, known); err != nil {
		return err
	}
	for _, id := range list {
		if id != l.index && id != l.outerIndex {
			l.lose(LossReflog, id, subjects[id])
		}
	}
	return nil
}

// listRefs lists references that were made inside, or by a person in the
// worktree, and lead to a commit of lonely, or to what is no commit.
func (l *look) listRefs(lonely map[string]bool) {
	for _, refs := range []struct {
		from string
		refs map[string]string
	}{{"inside", l.refs.refs}, {"outside", l.outer}} {
		for _, name := range slices.Sorted(maps.Keys(refs.refs)) {
			id := refs.refs[name]
			kept := l.there[name] == id && !strings.HasPrefix(name, ownRefs) // those go with the workspace
			same := kept || name == "refs/heads/"+l.ws.Branch || name == "refs/stash" || l.types[id] == ""
			if !same && (l.types[id] != "commit" || lonely[id]) {
				l.lose(LossRef, name, refs.from+", "+id)
			}
		}
	}
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
func (l *look) pins(ctx context.Context) error {
	types, seen := l.types, map[string]bool{}
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
	logged = slices.DeleteFunc(logged, func(id string) bool { return seen[id] })
	lonely, err := l.unpinned(ctx, logged)
	if err != nil {
		return err
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

// unpinned are the commits that logged lead to and no pin does.
func (l *look) unpinned(ctx context.Context, logged []string) (map[string]bool, error) {
	if len(logged) == 0 {
		return nil, nil
	}
	inv := l.repo.in("rev-list", fmt.Sprint("--max-count=", maxUnknownCommits), "--stdin")
	for _, p := range l.found.Pins {
		if l.types[p.ID] == "commit" {
			logged = append(logged, "^"+p.ID)
		}
	}
	inv.stdin = strings.NewReader(strings.Join(logged, "\n") + "\n")
	out, err := l.w.git.run(ctx, inv)
	if err != nil {
		return nil, err
	}
	lonely := map[string]bool{}
	for id := range strings.FieldsSeq(string(out)) {
		lonely[id] = true
	}
	return lonely, nil
}
