package workspace

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
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
	From    string          `json:"from"`            // name of the snapshot
	Before  Snapshot        `json:"before,omitzero"` // the tree as it was until now: what undoes it; none where nothing was changed
	Changes []Change        `json:"changes"`         // that were made to the tree
	Left    []caisson.Bytes `json:"left,omitempty"`  // repositories in the tree, of which a snapshot holds no files
	// Submodules are those whose files were changed, and those of which the
	// snapshot holds no files, which were left as they are.
	Submodules []SubmoduleSnapshot `json:"submodules,omitempty"`
}

// put brings the tree from one snapshot to another. It is a checkout with a head
// and an index of its own; git looks, before it writes anything, that no file is
// in the way that the first snapshot does not hold, ignored or not. The index is in
// one part then, and the first part that it had goes, unless the agent's own stands
// on it too.
const put = `set -eu
cd "$CAISSON_TREE"
own=$CAISSON_SHADOW/caisson-restore
partOf() { GIT_DIR=$CAISSON_SHADOW GIT_INDEX_FILE=$CAISSON_SHADOW/$1 git rev-parse --shared-index-path 2>/dev/null || :; }
rm -rf "$own"
mkdir "$own"
echo "$CAISSON_FROM" >"$own/HEAD"
cp -p "$CAISSON_SHADOW/caisson-index" "$own/index"
first=$(partOf caisson-index)
for part in "$CAISSON_SHADOW"/sharedindex.*; do
	if [ -f "$part" ]; then ln -s "$part" "$own/"; fi
done
export GIT_DIR="$own" GIT_COMMON_DIR="$CAISSON_SHADOW" GIT_WORK_TREE="$CAISSON_TREE"
git -c core.hooksPath=/dev/null -c submodule.recurse=false -c core.logAllRefUpdates=false -c core.splitIndex=false checkout -q --no-overwrite-ignore --detach "$CAISSON_TO"
mv "$own/index" "$CAISSON_SHADOW/caisson-index"
rm -rf "$own"
if [ -n "$first" ] && [ "$first" != "$(partOf index)" ]; then rm -f "$first"; fi
`

// RestoreFiles brings files back as a snapshot holds them, those of submodules
// too. It is done inside a box, after a snapshot of what is there, so that nothing
// is lost and it can be undone; where nothing is to be done, none is left. Files
// that the snapshot does not hold are removed only where the whole tree is restored;
// ignored files stay, and one in the way of a file stops it before anything is
// written (CodeWorkspaceDirty). The branch, and what is checked out and staged
// inside, stay as they are, in submodules too. The caller sees to it that nobody
// works in the workspace.
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
		parts, err := t.parts(ctx, spec, &result)
		if err != nil {
			return err
		}
		if result.Before, err = t.pinTree(ctx, "before "+spec.Name+" was restored"); err != nil {
			return err
		}
		parts, err = t.prepared(ctx, parts, &result)
		if err == nil && !slices.ContainsFunc(parts, func(p *part) bool { return p.goal != "" }) {
			ref := result.Before.Ref
			result.Before = Snapshot{}
			return t.unpin(ctx, ref)
		}
		if err = errors.Join(err, t.counted(ctx)); err != nil {
			return err
		}
		for i, p := range parts {
			if err := p.put(ctx, t, result.Before.Name, i > 0); err != nil {
				return err
			}
		}
		return nil
	})
	return result, err
}

// prepared finds out what is to be written, and refuses all that can be refused
// before anything is.
func (t *treeLook) prepared(ctx context.Context, parts []*part, result *Restored) ([]*part, error) {
	parts, err := t.keptNow(parts, result)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if err := p.prepare(ctx, t, result); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// keptNow refuses where files that are there now could not be kept. A submodule
// that could not be kept at all is left as it is, and told.
func (t *treeLook) keptNow(parts []*part, result *Restored) ([]*part, error) {
	unkept := map[string]SubmoduleSnapshot{}
	for _, m := range result.Before.Submodules {
		if m.Unkept != "" {
			unkept[m.Path] = m
		}
	}
	partial := result.Before.Partial
	parts = slices.DeleteFunc(parts, func(p *part) bool {
		if p.module == nil {
			return false
		}
		m := unkept[p.module.Path]
		if m.Commit != "" {
			partial = cmp.Or(partial, printable(m.Path)+": "+m.Unkept)
		}
		if m.Unkept != "" {
			result.Submodules = append(result.Submodules, SubmoduleSnapshot{Path: m.Path, Unkept: m.Unkept})
		}
		return m.Unkept != ""
	})
	if partial != "" {
		return nil, caisson.Errorf(caisson.CodeWorkspaceDirty, "some files of %s cannot be kept, and could be lost: %s", t.ws.Name, partial).
			WithHint("Make them readable, or move them away, and try again.")
	}
	return parts, nil
}

// part is a tree being brought back: that of the workspace, or of a submodule.
type part struct {
	*treeLook
	module *caisson.Submodule // nil: the workspace's own
	wanted string             // tree
	paths  []string           // none: all of it

	before, goal string // commits; goal is "" where nothing is to be done
}

// parts finds what is to be brought back of the tree and of submodules, and
// refuses paths of which the snapshot has nothing. Submodules of which it holds no
// files are told.
func (t *treeLook) parts(ctx context.Context, spec RestoreSpec, result *Restored) ([]*part, error) {
	wanted, err := t.treeOf(ctx, spec.Commit)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeNotFound, "snapshot %s is gone", spec.Name)
	}
	modules := madeModules(t.ws)
	own := spec
	own.Paths = slices.DeleteFunc(slices.Clone(spec.Paths), func(p string) bool { return innermost(modules, p) != nil })
	var parts []*part
	if len(own.Paths) > 0 || len(spec.Paths) == 0 {
		if err := t.checkPaths(ctx, own, wanted); err != nil {
			return nil, err
		}
		parts = append(parts, &part{treeLook: t, wanted: wanted, paths: own.Paths})
	}
	ref := refOf(t.ws, spec.Name)
	if pins, err := t.w.pins(ctx, t.repo, cmp.Or(ref, noRef)); err != nil || pins[ref] != spec.Commit {
		ref = noRef // it is not the snapshot of that name, and submodules have none of it
	}
	for _, m := range modules {
		p := &part{module: &m}
		named := false
		for _, at := range spec.Paths {
			if in := innermost(modules, at); in != nil && in.Path == m.Path {
				p.paths, named = append(p.paths, strings.TrimPrefix(at, m.Path+"/")), true
			} else if at == "." || at == m.Path || strings.HasPrefix(m.Path, at+"/") {
				p.paths = append(p.paths, ".")
			}
		}
		if len(spec.Paths) > 0 && len(p.paths) == 0 {
			continue
		}
		why := t.findIn(ctx, p, ref)
		if why != "" && named {
			return nil, caisson.Errorf(caisson.CodeNotFound, "snapshot %s holds no files of submodule %s: %s", spec.Name, printable(m.Path), why)
		}
		if why != "" {
			result.Submodules = append(result.Submodules, SubmoduleSnapshot{Path: m.Path, Unkept: why})
			continue
		}
		if err := p.checkPaths(ctx, RestoreSpec{Name: spec.Name, Paths: p.paths}, p.wanted); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// innermost returns the submodule in which a path is; nil where it is in none.
func innermost(modules []caisson.Submodule, at string) *caisson.Submodule {
	var in *caisson.Submodule
	for i, m := range modules {
		if strings.HasPrefix(at, m.Path+"/") && (in == nil || len(m.Path) > len(in.Path)) {
			in = &modules[i]
		}
	}
	return in
}

// findIn looks for the tree of a submodule under the name of a snapshot, or tells
// why there is none.
func (t *treeLook) findIn(ctx context.Context, p *part, ref string) (why string) {
	of, err := t.into(ctx, *p.module)
	if err != nil {
		return caisson.AsError(err).Error()
	}
	pins, err := t.w.pins(ctx, of.repo, ref)
	if err == nil && pins[ref] == "" {
		return "the snapshot was taken without it"
	}
	if err == nil {
		p.treeLook = of
		p.wanted, err = of.treeOf(ctx, pins[ref])
	}
	if err != nil {
		return caisson.AsError(err).Error()
	}
	return ""
}

// treeOf returns the tree of a commit.
func (t *treeLook) treeOf(ctx context.Context, commit string) (string, error) {
	return t.w.git.line(ctx, t.repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}"))
}

// prepare finds out what is to be there, with the tree as it is kept now.
func (p *part) prepare(ctx context.Context, whole *treeLook, result *Restored) error {
	at := ""
	p.before = result.Before.Commit
	if p.module != nil {
		at, p.before = p.module.Path+"/", whole.seen.Modules[p.module.GitDir].Snapshot.Commit
	}
	from, err := p.treeOf(ctx, p.before)
	if err != nil {
		return failed("look at the snapshot", err)
	}
	to, left, err := p.treeLook.goal(ctx, from, p.wanted, p.paths)
	if err != nil {
		return err
	}
	for _, path := range left {
		path = caisson.Bytes(at) + path
		if !slices.ContainsFunc(madeModules(whole.ws), func(m caisson.Submodule) bool { return m.Path == string(path) }) {
			result.Left = append(result.Left, path)
		}
	}
	changes, err := p.w.changes(ctx, p.repo, from, to)
	if err != nil || from == to {
		return err
	}
	if p.module != nil {
		changes = below(p.module.Path, changes)
		result.Submodules = append(result.Submodules, SubmoduleSnapshot{Path: p.module.Path, Commit: p.before, Changed: true})
	}
	result.Changes = append(result.Changes, changes...)
	p.goal, err = p.made(ctx, to, "restore")
	return err
}

// put writes it. begun: something of the workspace was written before.
func (p *part) put(ctx context.Context, whole *treeLook, before string, begun bool) error {
	if p.goal == "" {
		return nil
	}
	out := &limitedBuffer{limit: 64 << 10}
	said, err := p.w.inside(ctx, p.ws, p.box, put, out, "CAISSON_FROM="+p.before, "CAISSON_TO="+p.goal)
	if err == nil {
		return nil
	}
	if !begun && (strings.Contains(said, "would be overwritten") || strings.Contains(said, "would lose untracked files")) {
		return caisson.Errorf(caisson.CodeWorkspaceDirty, "files are in the way that no snapshot holds; nothing was changed: %s", said).
			WithHint("Ignored files are never overwritten. Move them away and try again.")
	}
	return caisson.AsError(err).WithHint("The tree may be restored in part. As it was before: `caisson workspace restore %s --snapshot %s`.", whole.ws.Name, strings.TrimPrefix(before, "@"))
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
