package workspace

import (
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson"
)

// moduleState is what was last seen in the git directory of a submodule inside.
type moduleState struct {
	Refs []byte `json:"refs"`
	Past past   `json:"past"`
	// Snapshot is the last one of its tree.
	Snapshot taken `json:"snapshot,omitzero"`
}

// importModules keeps what was committed in submodules, in the repositories
// that they borrow from: a commit of the tree only names theirs. What was
// committed in a submodule that was fetched or added inside is kept in the
// workspace's own repository, with what it stands on. No branch is moved. LFS
// contents come along.
func (w *Workspaces) importModules(ctx context.Context, ws caisson.Workspace, box Box, seen *state, result *Imported) (changed bool, err error) {
	root, err := boundShadow(ws)
	if err != nil {
		return false, caisson.Errorf(caisson.CodeImportHeld, "the git directory inside cannot be read: %w", err)
	}
	defer root.Close()
	if err := w.importContents(root, ws.Binding.CommonDir, result); err != nil {
		return false, err
	}
	for _, name := range moduleDirs(root) {
		dir := filepath.Join(ws.Shadow, name)
		i := slices.IndexFunc(ws.Submodules, func(m caisson.Submodule) bool { return m.GitDir == dir })
		from, outside := source{dir: dir, prefix: inside(ws.ID) + name + "/"}, ws.Binding.CommonDir
		if i >= 0 {
			m := ws.Submodules[i]
			if _, _, err := directoryID(m.Repository); err == nil {
				outside = m.Repository
				from.prefix, from.haves, from.pinned = inside(ws.ID), []string{m.Commit}, []string{pin(ws.ID, "")}
			}
		}
		module, err := root.OpenRoot(name)
		if err != nil {
			continue // replaced meanwhile
		}
		news := false
		if err = w.importContents(module, outside, result); err == nil {
			news, err = w.importModule(ctx, ws, box, from, module, outside, seen, result)
		}
		_ = module.Close()
		changed = changed || news
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (w *Workspaces) importContents(root *os.Root, common string, result *Imported) error {
	unkept, err := importLFS(root, common)
	result.Unkept = cmp.Or(result.Unkept, unkept)
	return err
}

// importModule keeps what is new in one submodule. What git inside does not give
// whole is told, and keeps nothing else from being imported.
func (w *Workspaces) importModule(ctx context.Context, ws caisson.Workspace, box Box, from source, root *os.Root, outside string, seen *state, result *Imported) (changed bool, err error) {
	untaken := func(err error) (bool, error) {
		if caisson.CodeOf(err) != caisson.CodeImportHeld {
			return false, err
		}
		result.Unkept = cmp.Or(result.Unkept, "of the submodule at "+printable(from.dir)+": "+err.Error())
		return false, nil
	}
	now, err := readRefs(root)
	if err != nil {
		return untaken(err)
	}
	from.dropKnown(now.refs)
	last := seen.Modules[from.dir]
	list, logs := listRefs(now.refs), findLogged(root)
	if bytes.Equal(list, last.Refs) && logs.mark == last.Past.Mark {
		return false, nil
	}
	if seen.Modules == nil {
		seen.Modules = map[string]moduleState{}
	}
	if len(from.haves) == 0 {
		own, err := w.hasOwn(ctx, ws, box, from)
		if err != nil {
			return false, err
		}
		if !own {
			seen.Modules[from.dir] = moduleState{Past: past{Mark: logs.mark}, Refs: list, Snapshot: last.Snapshot}
			return true, nil
		}
		last = moduleState{Snapshot: last.Snapshot} // of what was not wanted before, all may be
	}
	if from.repo, err = w.repository(ctx, outside, false); err != nil {
		return false, err
	}
	before := parseRefs(last.Refs)
	if err := w.fetchFrom(ctx, from, ws, box, wanted(before, now.refs)); err != nil {
		return untaken(err)
	}
	pinned, err := w.pinOthers(ctx, from, "", before, now.refs)
	if err != nil {
		return false, err
	}
	result.Pinned = append(result.Pinned, pinned...)
	known := map[string]bool{}
	for _, id := range slices.Concat(slices.Collect(maps.Values(now.refs)), slices.Collect(maps.Values(before)), from.haves) {
		known[id] = true
	}
	if err := w.importPast(ctx, ws, box, from, root, logs, known, &last.Past, result); err != nil {
		return false, err
	}
	last.Refs = list
	seen.Modules[from.dir] = last
	return true, nil
}

// dropKnown leaves out the references of a submodule that need not be kept.
func (from source) dropKnown(refs map[string]string) {
	for name := range refs { // these can be fetched again
		if strings.HasPrefix(name, "refs/remotes/") || len(from.haves) == 0 && strings.HasPrefix(name, "refs/tags/") {
			delete(refs, name)
		}
	}
	if len(from.haves) > 0 && refs["HEAD"] == from.haves[0] {
		delete(refs, "HEAD") // as it was made
	}
}

// hasOwn asks git inside whether a submodule that was fetched there has commits
// that are on no remote of it.
func (w *Workspaces) hasOwn(ctx context.Context, ws caisson.Workspace, given Box, from source) (bool, error) {
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return false, err
	}
	defer closeBox() //nolint:errcheck // it has answered
	out := &limitedBuffer{limit: 4096}
	const ask = `GIT_DIR=$CAISSON_MODULE GIT_NO_LAZY_FETCH=1; export GIT_DIR GIT_NO_LAZY_FETCH
{ git rev-list --max-count=1 --all --reflog --not --remotes; git rev-list --max-count=1 HEAD --not --remotes; } 2>/dev/null || :`
	_, err = w.inside(ctx, ws, box, ask, out, "CAISSON_MODULE="+from.dir)
	if err != nil {
		return false, err
	}
	return len(bytes.TrimSpace(out.Bytes())) > 0, nil
}

// moduleDirs lists the git directories of submodules in a shadow, by their path
// there, as data.
func moduleDirs(root *os.Root) []string {
	var found []string
	looked := 0
	var look func(dir string, depth int)
	look = func(dir string, depth int) {
		f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		entries, _ := f.ReadDir(maxModules * 4) // what could be read is looked at
		_ = f.Close()
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if looked++; looked > maxModules*16 || len(found) >= maxModules || !entry.IsDir() || !isRefName("refs/"+name) {
				continue
			}
			if info, err := root.Lstat(name + "/objects"); err == nil && info.IsDir() {
				found = append(found, name)
				look(name+"/modules", depth+1)
			} else if depth < maxModuleDepth*2 {
				look(name, depth+1)
			}
		}
	}
	if info, err := root.Lstat("modules"); err == nil && info.IsDir() {
		look("modules", 0)
	}
	return found
}
