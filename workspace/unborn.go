package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// A workspace is noted on disk before anything of it is made, under a lock that
// its maker holds until it is recorded. A note without a holder is of one whose
// maker was killed: nothing has worked in it yet, so that all of it may go.

// young is what may still be in the making, where no lock tells.
const young = time.Minute

func (w *Workspaces) notes() string { return filepath.Join(w.opts.StateDir, "making") }

// note notes what is about to be made.
func (c *creation) note() (*lockfile.Lock, error) {
	if err := os.MkdirAll(c.w.notes(), 0o700); err != nil {
		return nil, unmade("note the workspace", err)
	}
	c.ws.Path = filepath.Join(c.w.opts.StateDir, "workspaces", c.repo.name(), c.ws.Name)
	c.ws.Binding.CommonDir = c.repo.common
	raw, err := json.Marshal(c.ws)
	if err != nil {
		return nil, err
	}
	lock, held, err := lockfile.Try(filepath.Join(c.w.notes(), string(c.ws.ID)), raw)
	if err == nil && held {
		err = errors.New("its id is taken")
	}
	if err != nil {
		_ = os.Remove(filepath.Join(c.w.notes(), string(c.ws.ID))) // a full disk takes the file, and not the note
		return nil, failed("note the workspace", err)
	}
	return lock, nil
}

// pathCloser is a lock on a file that is removed with it.
type pathCloser interface {
	Path() string
	Close() error
}

// forget ends a note. Its lock is held until it is gone, and its name is never
// used again.
func forget(lock pathCloser) error {
	return errors.Join(os.Remove(lock.Path()), lock.Close())
}

// remain is a remnant and how it is removed where nobody holds it.
type remain struct {
	caisson.Remnant
	remove func(context.Context) error
}

// Remnants lists what killed processes left of workspaces, or living ones are at
// work on: makings, merges, writes of references, removals and restores, and
// files that were not written to their end.
func (w *Workspaces) Remnants(context.Context) ([]caisson.Remnant, error) {
	remains, err := w.remains()
	var found []caisson.Remnant
	for _, r := range remains {
		found = append(found, r.Remnant)
	}
	return found, err
}

// Tidy removes those of Remnants that nobody holds, and what they are of: trees,
// branches and shadows that were not recorded, and those that were recorded for
// a run that was not. What cannot be removed now stays noted.
func (w *Workspaces) Tidy(ctx context.Context) error {
	remains, err := w.remains()
	errs := []error{err}
	for _, r := range remains {
		if !r.Live {
			errs = append(errs, r.remove(ctx))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return failed("remove what killed processes left", err)
	}
	return nil
}

func (w *Workspaces) remains() ([]remain, error) {
	var found []remain
	entries, err := os.ReadDir(w.notes())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, entry := range entries {
		path := filepath.Join(w.notes(), entry.Name())
		r, there := noteRemain(path, noteWords{
			young: "it may be in the making", held: "the process that makes this workspace holds it",
			left: "the process that made this workspace was ended before it was recorded",
		})
		if there {
			r.remove = func(ctx context.Context) error { return w.tidyNote(ctx, path) }
			found = append(found, r)
		}
	}
	found = append(found, w.bringRemains()...)
	found = append(found, w.updateRemains()...)
	for _, dir := range []string{"views/*", "views/*/info", "shadows/*"} {
		dirs, _ := filepath.Glob(filepath.Join(globLiteral(w.opts.StateDir), dir)) // the pattern is right
		for _, dir := range dirs {
			found = append(found, temporaries(dir)...)
		}
	}
	trashed, trashErr := w.trashRemains()
	return append(found, trashed...), errors.Join(err, trashErr)
}

// noteWords say what a note is where it may still be being written, where
// somebody holds it, and where nobody does.
type noteWords struct{ young, held, left string }

// noteRemain tells whether who wrote a note lives; false where there is none any
// more.
func noteRemain(path string, says noteWords) (remain, bool) {
	r := remain{Remnant: caisson.Remnant{Kind: "lock", Name: path, Live: true}}
	info, err := os.Lstat(path)
	if err != nil {
		return r, false // another has done it
	}
	if info.Size() == 0 && time.Since(info.ModTime()) < young {
		r.Why = says.young // to look at its lock could keep its maker from it
		return r, true
	}
	held, err := lockfile.Held(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, false
	case err != nil:
		r.Why = "whether it is held cannot be told: " + err.Error()
	case held:
		r.Why = says.held
	default:
		r.Live, r.Why = false, says.left
	}
	return r, true
}

var globMeta = regexp.MustCompile(`[\\*?[]`)

func globLiteral(path string) string { return globMeta.ReplaceAllString(path, `\$0`) }

// temporaries lists files that were not written to their end. Only where
// nothing but this program writes.
func temporaries(dir string) []remain {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []remain
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !atomicfile.IsTemporary(entry.Name()) {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue // it is in place now
		}
		path := filepath.Join(dir, entry.Name())
		r := remain{Remnant: caisson.Remnant{Kind: "file", Name: path, Live: true, Why: "it may be being written"}}
		if time.Since(info.ModTime()) > young {
			r.Live, r.Why = false, "nobody writes a file for so long"
		}
		r.remove = func(context.Context) error { return atomicfile.RemoveIfThere(path) }
		found = append(found, r)
	}
	return found
}

func (w *Workspaces) tidyNote(ctx context.Context, path string) error {
	raw, err := lockfile.Note(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another has done it
	}
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && len(raw) == 0 && time.Since(info.ModTime()) < young {
		return nil // it is being written
	}
	lock, held, err := lockfile.TryExisting(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another has done it
	}
	if err != nil || held {
		return err
	}
	var ws caisson.Workspace
	if json.Unmarshal(raw, &ws) == nil && string(ws.ID) == filepath.Base(path) {
		if err := w.tidyUnborn(ctx, ws); err != nil {
			return errors.Join(err, lock.Close())
		}
	}
	return forget(lock)
}

// tidyUnborn removes a workspace whose maker was killed, unless it was done.
func (w *Workspaces) tidyUnborn(ctx context.Context, noted caisson.Workspace) error {
	ws, err := w.opts.Ledger.Workspace(ctx, noted.ID)
	recorded := err == nil
	switch {
	case recorded && ws.Removed:
		if _, err := os.Lstat(w.trash(ws.ID)); !errors.Is(err, fs.ErrNotExist) {
			return err // it was done, and went to the trash since, with all that keeps its commits
		}
		return w.unmake(ctx, ws) // its maker was ended while it took it back
	case recorded && ws.Run == "":
		return nil
	case recorded:
		if _, err := w.opts.Ledger.Run(ctx, ws.Run); caisson.CodeOf(err) != caisson.CodeNotFound {
			return err
		}
	case caisson.CodeOf(err) == caisson.CodeNotFound:
		ws = noted
	default:
		return err
	}
	if err := w.unmake(ctx, ws); err != nil || !recorded {
		return err
	}
	ws.Removed = true
	return w.opts.Ledger.PutWorkspace(ctx, ws)
}

// unmake removes what there is of a workspace that nothing has worked in. Each
// part is removed only where it says that it is this workspace's.
func (w *Workspaces) unmake(ctx context.Context, ws caisson.Workspace) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(ws.Path))
	if err == nil {
		ws.Path = filepath.Join(parent, filepath.Base(ws.Path))
	}
	unmakeTree := unmakeWorktree
	if isClone(ws) {
		unmakeTree = func(ws caisson.Workspace) error { return w.unmakeClone(ctx, ws) }
	}
	if err := unmakeTree(ws); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(ws.Path)) // only where it is empty
	if err := w.unmakeModules(ctx, ws); err != nil {
		return err
	}
	if err := w.unmakeBranch(ctx, ws); err != nil {
		return err
	}
	return os.RemoveAll(w.private(ws.ID))
}

// unmakeWorktree removes the tree and the record of a worktree.
func unmakeWorktree(ws caisson.Workspace) error {
	if err := os.RemoveAll(recordAside(ws.Binding.CommonDir, ws.ID)); err != nil {
		return err
	}
	admin, err := adminOf(ws)
	if err != nil {
		return err
	}
	if admin == "" {
		_ = os.Remove(ws.Path) // made, and not filled yet; else another's
		return nil
	}
	if err := os.RemoveAll(ws.Path); err != nil {
		return err
	}
	if err := os.RemoveAll(admin); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(admin)) // only where it is empty
	return nil
}

// adminOf finds the worktree's record that was made for ws; "" if there is none.
func adminOf(ws caisson.Workspace) (string, error) {
	dir := filepath.Join(ws.Binding.CommonDir, "worktrees")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, entry := range entries {
		admin := filepath.Join(dir, entry.Name())
		if why, err := readInside(admin, "locked", 4096); err == nil && strings.Contains(string(why), "("+string(ws.ID)+")") {
			return admin, nil
		}
	}
	return "", nil
}

// unmakeBranch deletes a branch that was made for ws, which its pin tells, if
// it was not moved since.
func (w *Workspaces) unmakeBranch(ctx context.Context, ws caisson.Workspace) error {
	if info, err := os.Stat(ws.Binding.CommonDir); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // the repository is gone, and the branch with it
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return err
	}
	base, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", pin(ws.ID, "base")))
	if statusOf(err) == 1 {
		return nil
	}
	if err != nil {
		return err
	}
	updates := []refUpdate{{pin(ws.ID, "base"), absent, base}}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil {
		return err
	}
	if tip == base {
		updates = append(updates, refUpdate{"refs/heads/" + ws.Branch, absent, base})
	}
	if err := w.updateRefs(ctx, repo, "", updates...); err != nil {
		return fmt.Errorf("delete branch %s: %w", ws.Branch, err)
	}
	return nil
}
