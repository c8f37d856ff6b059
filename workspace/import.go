package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

const (
	// maxImport bounds what one import may receive; a box cannot fill the disk
	// of the host through it.
	maxImport = 4 << 30
	// maxAncestry is how many references of one import are asked about one by
	// one whether they moved forward.
	maxAncestry = 32
	// importDeadline bounds one import.
	importDeadline = 10 * time.Minute
)

// ImportOptions say what an import may do.
type ImportOptions struct {
	// AllowRewrite lets the branch go to a commit that is no descendant of
	// where it was, as long as nobody moved it outside. What it leaves behind
	// is pinned.
	AllowRewrite bool
}

// Imported is what an import did.
type Imported struct {
	Old       string   `json:"old"` // of the branch outside
	New       string   `json:"new"`
	Moved     bool     `json:"moved"`                // the branch was moved from Old to New
	Rewritten bool     `json:"rewritten,omitempty"`  // Old is no ancestor of New
	Diverged  string   `json:"diverged,omitempty"`   // reference that the commits went to, as the branch could not take them
	Why       string   `json:"why,omitempty"`        // of Diverged, in a clause
	IndexKept string   `json:"index_kept,omitempty"` // why the outer index could not be brought along
	Pinned    []string `json:"pinned,omitempty"`     // what else was made inside, under these names
	Unkept    string   `json:"unkept,omitempty"`     // why a commit that only a log inside knows could not be kept
}

// Import brings what was committed inside to the repository. The box is only
// asked where its references, looked at as data, have changed. Commits that the
// branch cannot take are kept under refs/caisson/diverged; that is no error,
// and the result says so. Errors: CodeWorkspaceBindingLost, before anything is
// done; CodeImportHeld, with the reason, where something inside is not taken;
// then the branch is as it was.
func (w *Workspaces) Import(ctx context.Context, ws caisson.Workspace, box Box, opts ImportOptions) (Imported, error) {
	if err := w.Check(ctx, ws); err != nil {
		return Imported{}, err
	}
	release, err := w.lock(ctx, ws)
	if err != nil {
		return Imported{}, err
	}
	defer release()
	seen, err := w.readState(ws)
	if err != nil {
		return Imported{}, failed("read what was seen last", err)
	}
	result := Imported{Old: seen.Tip, New: seen.Tip}
	changed, held := w.importShadow(ctx, ws, box, &seen, &result, opts)
	if held != nil && caisson.CodeOf(held) != caisson.CodeImportHeld {
		return result, held
	}
	others, err := w.importModules(ctx, ws, box, &seen, &result)
	if err == nil && (changed || others) {
		err = w.writeState(ws, seen)
	}
	if err != nil {
		return result, errors.Join(held, err)
	}
	return result, held
}

// importShadow brings what is new in the shadow, and tells whether something
// was. Where the branch is held back all else is kept nevertheless.
func (w *Workspaces) importShadow(ctx context.Context, ws caisson.Workspace, box Box, seen *state, result *Imported, opts ImportOptions) (changed bool, err error) {
	now, err := readShadow(ws)
	if err != nil {
		return false, err
	}
	root, err := boundShadow(ws)
	if err != nil {
		return false, err
	}
	defer root.Close()
	list, logs := listRefs(now.refs), findLogged(root)
	news := !bytes.Equal(list, seen.Refs)
	if !news && logs.mark == seen.Past.Mark && seen.Diverged == "" {
		return false, nil
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return false, err
	}
	branch, before := "refs/heads/"+ws.Branch, parseRefs(seen.Refs)
	from := source{
		dir: ws.Shadow, repo: repo, prefix: inside(ws.ID), haves: []string{seen.Tip, ws.Base},
		pinned: []string{pin(ws.ID, ""), branch},
	}
	if err := w.fetchFrom(ctx, from, ws, box, wanted(before, now.refs)); err != nil {
		return false, err
	}
	var held error
	if id := now.refs[branch]; id != "" && (id != before[branch] || seen.Diverged != "" && w.stillDiverged(ctx, repo, seen)) {
		*result, held = w.importBranch(ctx, repo, ws, seen, id, opts)
		if held != nil && caisson.CodeOf(held) != caisson.CodeImportHeld {
			return false, held
		}
	}
	moved := branch // is kept by itself
	if held != nil || result.Diverged != "" {
		moved = ""
	}
	if result.Pinned, err = w.pinOthers(ctx, from, moved, before, now.refs); err != nil {
		return false, err
	}
	known := map[string]bool{seen.Tip: true, ws.Base: true}
	for _, refs := range []map[string]string{before, now.refs} {
		for id := range maps.Values(refs) {
			known[id] = true
		}
	}
	if err := w.importPast(ctx, ws, box, from, root, logs, known, &seen.Past, result); err != nil {
		return false, err
	}
	if held != nil {
		return true, held
	}
	seen.Refs = list
	return true, nil
}

// wanted are the ids of references that have changed.
func wanted(before, now map[string]string) []string {
	var wants []string
	for name, id := range now {
		if before[name] != id && !slices.Contains(wants, id) {
			wants = append(wants, id)
		}
	}
	return wants
}

// importPast keeps what only the logs of a git directory inside know.
func (w *Workspaces) importPast(ctx context.Context, ws caisson.Workspace, box Box, from source, root *os.Root, logs logged, known map[string]bool, seen *past, result *Imported) error {
	if logs.mark == seen.Mark {
		return nil
	}
	length := len(ws.Base)
	ids, upTo := logs.ids(root, length, seen.Logs)
	ids = slices.DeleteFunc(ids, func(id string) bool { return known[id] })
	kept, unkept, more, err := w.keepLogged(ctx, ws, box, from, ids)
	if err != nil {
		return err
	}
	result.Pinned = append(result.Pinned, kept...)
	if logs.over && unkept == "" {
		unkept = "there are more logs inside than are looked at"
	}
	result.Unkept = cmp.Or(result.Unkept, unkept)
	if !more {
		*seen = past{logs.mark, upTo}
	}
	return nil
}

// stillDiverged tells whether commits are still kept beside the branch. Where a
// person has deleted their reference, they are done with.
func (w *Workspaces) stillDiverged(ctx context.Context, repo *repository, seen *state) bool {
	_, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", seen.Diverged))
	if statusOf(err) == 1 {
		seen.Diverged = ""
		return false
	}
	return true
}

// inside is the prefix of references that keep what was made inside.
func inside(id caisson.WorkspaceID) string {
	return insideRefs + string(id) + "/"
}

// importBranch moves the branch outside to what it is inside.
func (w *Workspaces) importBranch(ctx context.Context, repo *repository, ws caisson.Workspace, seen *state, commit string, opts ImportOptions) (Imported, error) {
	if path, err := w.gitlinkOverRepository(ctx, repo, ws, commit); err != nil {
		return Imported{}, err
	} else if path != "" {
		kept := inside(ws.ID) + "held/" + commit
		if err := w.updateRefs(ctx, repo, "", refUpdate{kept, commit, ""}); err != nil {
			return Imported{}, failed("keep the commits that are held back", err)
		}
		return Imported{}, caisson.Errorf(caisson.CodeImportHeld,
			"a commit of %s records %s as a submodule, and a git directory is at that path in the tree; git outside would run what it configures", ws.Name, printable(path)).
			WithHint("Remove it from the commit (`git rm --cached`), or add its files instead. Until then the commits are kept at %s.", kept).With("path", printable(path))
	}
	for range 5 {
		old, forward, err := w.tipBelow(ctx, repo, ws.Branch, commit)
		if err != nil {
			return Imported{}, failed("look at branch "+ws.Branch, err)
		}
		result, err := w.moveBranch(ctx, repo, ws, seen, refUpdate{to: commit, old: old}, forward, opts)
		if statusOf(err) > 0 { // moved between the look and the write: look again
			if again, lookErr := w.branchTip(ctx, repo, ws.Branch); lookErr == nil && again != old {
				continue
			}
		}
		if err != nil {
			return result, failed("move branch "+ws.Branch, err)
		}
		return result, nil
	}
	return Imported{}, caisson.Errorf(caisson.CodeImportHeld, "branch %s is being moved all the time", ws.Branch)
}

// tipBelow returns the branch's tip ("" where there is no branch), and whether
// commit descends from it; where it does, git is asked once.
func (w *Workspaces) tipBelow(ctx context.Context, repo *repository, branch, commit string) (tip string, forward bool, err error) {
	tip, err = w.git.line(ctx, repo.in("for-each-ref", "--merged="+commit, "--format=%(objectname)", "refs/heads/"+branch))
	if err != nil || isObjectID(tip) {
		return tip, err == nil, err
	}
	tip, err = w.branchTip(ctx, repo, branch)
	if err != nil || tip == "" {
		return "", false, err
	}
	forward, err = w.descends(ctx, repo, commit, tip)
	return tip, forward, err
}

// moveBranch does one move of the branch from old to what it is inside, or
// keeps the commits beside it; the error of the compare-and-set is returned as
// it is.
func (w *Workspaces) moveBranch(ctx context.Context, repo *repository, ws caisson.Workspace, seen *state, move refUpdate, forward bool, opts ImportOptions) (Imported, error) {
	old, commit := move.old, move.to
	result := Imported{Old: old, New: commit}
	if old == commit {
		if seen.Tip != commit { // the last import was killed before it came to the index
			result.IndexKept = w.bringIndexOn(ctx, repo, ws, seen, seen.Tip, commit)
		}
		seen.Tip = commit
		return result, nil
	}
	if old == "" {
		return w.diverge(ctx, repo, ws, seen, old, commit, "the branch was deleted outside")
	}
	if old != seen.Tip && !forward {
		if has, err := w.descends(ctx, repo, old, commit); err == nil && has {
			seen.Diverged = "" // the branch outside has all of it, and more
			return Imported{Old: old, New: old}, nil
		}
	}
	if at := repo.checkedOutBeside(ws.Branch, ws.Binding.AdminDir); at != nil {
		return w.diverge(ctx, repo, ws, seen, old, commit, "the branch is checked out in "+at.describe()+" too, which would not come along")
	}
	updates := []refUpdate{{"refs/heads/" + ws.Branch, commit, old}, {pin(ws.ID, "tip"), commit, ""}}
	switch {
	case forward:
	case old != seen.Tip:
		return w.diverge(ctx, repo, ws, seen, old, commit, "the branch was moved outside meanwhile")
	case !opts.AllowRewrite:
		return w.diverge(ctx, repo, ws, seen, old, commit, "commits that were imported before were rewritten inside")
	default:
		result.Rewritten = true
		updates = append(updates, refUpdate{inside(ws.ID) + keptWas + old, old, ""})
	}
	if err := w.updateRefs(ctx, repo, "caisson: import", updates...); err != nil {
		return result, err
	}
	result.Moved, seen.Tip, seen.Diverged = true, commit, ""
	result.IndexKept = w.bringIndexOn(ctx, repo, ws, seen, old, commit)
	return result, nil
}

// bringIndexOn brings the outer index from where it is, which is old but where
// it was kept before. Where it is kept, the next import brings it all the way.
func (w *Workspaces) bringIndexOn(ctx context.Context, repo *repository, ws caisson.Workspace, seen *state, old, commit string) (kept string) {
	of := cmp.Or(seen.Index, old)
	if kept = w.bringIndex(ctx, repo, ws, of, commit); kept == "" {
		of = ""
	}
	seen.Index = of
	return kept
}

// bringIndex brings the outer index from old to new. What the person staged is
// kept; where it is in the way, the index stays. The tree is not touched: it is
// the agent's, and has the files already.
func (w *Workspaces) bringIndex(ctx context.Context, repo *repository, ws caisson.Workspace, old, commit string) string {
	if isClone(ws) {
		return "" // there is none
	}
	err := changeIndex(ctx, ws.Binding.AdminDir, func(index string) error {
		inv := repo.in("read-tree", "-i", "-m", old, commit)
		inv.index = index
		_, err := w.git.run(ctx, inv)
		return err
	})
	var exit *exitError
	var known *caisson.Error
	switch {
	case errors.As(err, &exit):
		return exit.complaint
	case errors.As(err, &known):
		return known.Message + ". " + known.Hint
	case err != nil:
		return err.Error()
	}
	return ""
}

// diverge keeps commits beside a branch that cannot take them. Commits that
// follow go to the same reference.
func (w *Workspaces) diverge(ctx context.Context, repo *repository, ws caisson.Workspace, seen *state, old, commit, why string) (Imported, error) {
	result := Imported{Old: old, New: old, Why: why}
	if seen.Diverged != "" {
		if last, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", seen.Diverged)); err == nil {
			if follows, err := w.descends(ctx, repo, commit, last); err == nil && follows {
				result.Diverged = seen.Diverged
				return result, unkeptBeside(ws, w.updateRefs(ctx, repo, "caisson: import", refUpdate{seen.Diverged, commit, last}))
			}
		}
	}
	prefix := divergedRefs + ws.Branch + "/"
	for n := 1; n < 10_000; n++ {
		name := fmt.Sprint(prefix, n)
		if _, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", name)); err == nil {
			continue
		}
		if err := w.updateRefs(ctx, repo, "caisson: import", refUpdate{name, commit, absent}); err != nil {
			if _, lookErr := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", name)); lookErr == nil {
				continue // another took the name meanwhile
			}
			return result, unkeptBeside(ws, err)
		}
		result.Diverged, seen.Diverged = name, name
		return result, nil
	}
	return result, caisson.Errorf(caisson.CodeImportHeld, "branch %s has diverged too often", ws.Branch)
}

// unkeptBeside is the error of commits that git would not keep beside a branch.
// They are pinned with all else then.
func unkeptBeside(ws caisson.Workspace, err error) error {
	if statusOf(err) <= 0 {
		return err
	}
	return caisson.Errorf(caisson.CodeImportHeld, "commits that branch %s cannot take could not be kept beside it: %w", ws.Branch, err).
		WithHint("Until it can they are kept at %sheads/%s.", inside(ws.ID), ws.Branch)
}

// pinOthers keeps what else was made inside: other branches, tags, the stash, a
// detached head. A value that is replaced by one that does not contain it stays
// pinned by its id; that of a reference that went away stays as it is.
func (w *Workspaces) pinOthers(ctx context.Context, from source, moved string, before, now map[string]string) ([]string, error) {
	fresh := map[string]string{}
	for name, id := range now {
		if name != moved && before[name] != id {
			fresh[name] = id
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	pins, err := w.pins(ctx, from.repo, from.prefix)
	if err != nil {
		return nil, err
	}
	var named, byID []refUpdate
	asked := 0
	for name, id := range fresh {
		at := from.prefix + strings.TrimPrefix(name, "refs/")
		old := pins[at]
		if old == id {
			continue
		}
		named = append(named, refUpdate{at, id, ""})
		byID = append(byID, refUpdate{from.prefix + "id/" + id, id, ""})
		if old == "" {
			continue
		}
		kept := false
		if asked++; asked <= maxAncestry {
			kept, _ = w.descends(ctx, from.repo, id, old) // not known: pinned
		}
		if !kept {
			named = append(named, refUpdate{from.prefix + keptWas + old, old, ""})
		}
	}
	if len(named) == 0 {
		return nil, nil
	}
	updates := unique(named)
	if err := w.updateRefs(ctx, from.repo, "", updates...); err != nil {
		// A name may be in the way of another (a and a/b at different times).
		// Then nothing is replaced.
		updates = unique(byID)
		if err := w.updateRefs(ctx, from.repo, "", updates...); err != nil {
			return nil, failed("pin what was made inside", err)
		}
	}
	var pinned []string
	for _, u := range updates {
		pinned = append(pinned, u.name)
	}
	slices.Sort(pinned)
	return pinned, nil
}

// unique drops updates of a reference that has one already.
func unique(updates []refUpdate) []refUpdate {
	slices.SortFunc(updates, func(a, b refUpdate) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(updates, func(a, b refUpdate) bool { return a.name == b.name })
}

// gitlinkOverRepository returns a path at which commit has a submodule and the
// tree has a git directory, or "". Only names are looked at, below the tree.
func (w *Workspaces) gitlinkOverRepository(ctx context.Context, repo *repository, ws caisson.Workspace, commit string) (string, error) {
	changed, err := w.differences(ctx, repo, ws.Base, commit)
	if err != nil {
		return "", err
	}
	var root *os.Root
	for _, d := range changed {
		if d.mode != gitlink {
			continue
		}
		if root == nil {
			if root, err = boundTree(ws); err != nil {
				return "", err
			}
			defer root.Close() //nolint:gocritic // opened once
		}
		if _, err := root.Lstat(d.path + "/.git"); err == nil || !errors.Is(err, os.ErrNotExist) {
			return d.path, nil
		}
	}
	return "", nil
}
