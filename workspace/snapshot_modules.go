package workspace

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// A snapshot holds of a submodule which commit is checked out there. Its files
// are kept beside it: as a commit in the repository that the submodule borrows
// from, under the name that the snapshot has in the workspace's own.

// SubmoduleSnapshot is the tree of a submodule as it was at a snapshot.
type SubmoduleSnapshot struct {
	Path    string `json:"path"`
	Commit  string `json:"commit,omitempty"` // holds the tree, in the repository that the submodule borrows from
	Changed bool   `json:"changed"`          // since the last snapshot
	Unkept  string `json:"unkept,omitempty"` // why it is not kept, or with a commit some files of it
}

// madeModules are the submodules that have a tree.
func madeModules(ws caisson.Workspace) []caisson.Submodule {
	return slices.DeleteFunc(slices.Clone(ws.Submodules), func(m caisson.Submodule) bool { return m.Empty != "" })
}

// into returns a look at the tree of a submodule.
func (t *treeLook) into(ctx context.Context, m caisson.Submodule) (*treeLook, error) {
	repo, err := t.w.repositoryOf(ctx, m)
	if err != nil {
		return nil, err
	}
	of := &treeLook{t.w, t.ws, repo, t.box, state{Tip: m.Commit, Snapshot: t.seen.Modules[m.GitDir].Snapshot}}
	of.ws.Name, of.ws.Path, of.ws.Shadow, of.ws.Base = "submodule "+printable(m.Path), filepath.Join(t.ws.Path, m.Path), m.GitDir, m.Commit
	if !t.w.has(ctx, repo, of.seen.Snapshot.Commit) {
		tree, err := t.w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", m.Commit+"^{tree}"))
		if err != nil {
			return nil, failed("look at "+of.ws.Name, err)
		}
		of.seen.Snapshot = taken{m.Commit, tree, m.Commit}
	}
	return of, nil
}

// keepModules keeps the trees of the submodules under the name of a snapshot.
// What git inside does not give of one is told, and keeps no other from it.
func (t *treeLook) keepModules(ctx context.Context, ref, message string, snap *Snapshot) error {
	for _, m := range madeModules(t.ws) {
		kept, err := t.keepModule(ctx, m, ref, message)
		switch code := caisson.CodeOf(err); {
		case err == nil:
		case ctx.Err() != nil || code == caisson.CodeDiskFull || code == caisson.CodeWriteFailed:
			return err
		default:
			kept.Unkept = caisson.AsError(err).Error()
		}
		snap.Changed = snap.Changed || kept.Changed
		snap.Submodules = append(snap.Submodules, kept)
	}
	return nil
}

func (t *treeLook) keepModule(ctx context.Context, m caisson.Submodule, ref, message string) (SubmoduleSnapshot, error) {
	kept := SubmoduleSnapshot{Path: m.Path}
	of, err := t.into(ctx, m)
	if err != nil {
		return kept, err
	}
	got, err := of.take(ctx, message)
	if err != nil {
		return kept, err
	}
	pins, err := t.w.pins(ctx, of.repo, ref)
	if err != nil {
		return kept, err
	}
	updates := []refUpdate{{ref, got.Commit, cmp.Or(pins[ref], absent)}}
	if was := pins[ref]; was != "" && was != got.Commit { // of the same turn, before a crash
		updates = append(updates, refUpdate{pin(t.ws.ID, keptWas) + was, was, ""})
	}
	if err := t.w.updateRefs(ctx, of.repo, "", updates...); err != nil {
		return kept, failed("keep the snapshot of "+of.ws.Name, err)
	}
	kept.Commit, kept.Changed, kept.Unkept = got.Commit, got.Changed, got.Partial
	if t.seen.Modules == nil {
		t.seen.Modules = map[string]moduleState{}
	}
	seen := t.seen.Modules[m.GitDir]
	seen.Snapshot = of.seen.Snapshot
	t.seen.Modules[m.GitDir] = seen
	return kept, nil
}

// moveModules gives what is kept of submodules under one name another one, as a
// snapshot of the workspace was given it.
func (t *treeLook) moveModules(ctx context.Context, from, to string) error {
	for _, m := range madeModules(t.ws) {
		repo, err := t.w.repositoryOf(ctx, m)
		if err != nil {
			continue // nothing of it can be kept any more
		}
		pins, err := t.w.pins(ctx, repo, from)
		if id := pins[from]; err == nil && id != "" {
			err = t.w.updateRefs(ctx, repo, "", refUpdate{to, id, absent}, refUpdate{from, absent, id})
		}
		if err != nil {
			return failed("keep the snapshot of submodule "+printable(m.Path), err)
		}
	}
	return nil
}

// thin drops old snapshots below prefix, those of submodules too.
func (t *treeLook) thin(ctx context.Context, prefix string) {
	t.w.thin(ctx, t.repo, prefix)
	for _, m := range madeModules(t.ws) {
		if repo, err := t.w.repositoryOf(ctx, m); err == nil {
			t.w.thin(ctx, repo, prefix)
		}
	}
}

// addModules adds to snapshots, oldest first, what was changed in submodules, and
// of which they hold no files.
func (w *Workspaces) addModules(ctx context.Context, ws caisson.Workspace, kept []Kept) error {
	for _, m := range madeModules(ws) {
		pins := map[string]string{}
		repo, err := w.repositoryOf(ctx, m)
		if err == nil {
			pins, err = w.pins(ctx, repo, demandPrefix(ws), runRefs)
		}
		if err != nil {
			pins = nil // it is told of each
		}
		before := m.Commit
		for i := range kept {
			id := pins[kept[i].ref]
			if id == "" {
				kept[i].Without = append(kept[i].Without, m.Path)
				continue
			}
			changes, err := w.changes(ctx, repo, before, id)
			if err != nil {
				return err
			}
			kept[i].Changes = append(kept[i].Changes, below(m.Path, changes)...)
			before = id
		}
	}
	return nil
}

// below are changes of a submodule as seen from the workspace's tree.
func below(path string, changes []Change) []Change {
	for i := range changes {
		changes[i].Path = caisson.Bytes(path+"/") + changes[i].Path
	}
	return changes
}

// refOf is the reference of the snapshot that a name means, as of [Snapshot.Name]
// or with the run in it; "" where it is no name of one.
func refOf(ws caisson.Workspace, name string) string {
	word, is := strings.CutPrefix(name, "@")
	run, turn, of := strings.Cut(word, "/")
	ref := ""
	switch {
	case !is || word == "":
	case of:
		ref = turnPrefix(caisson.RunID(run)) + turn
	case word[0] == 's':
		ref = demandPrefix(ws) + word[1:]
	case ws.Run != "":
		ref = turnPrefix(ws.Run) + word
	}
	if !isRefName(ref) {
		return ""
	}
	return ref
}
