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
	"github.com/caisson-run/caisson/internal/lockfile"
)

// A workspace is noted on disk before anything of it is made, under a lock that
// its maker holds until it is recorded. A note without a holder is of one whose
// maker was killed: nothing has worked in it yet, so that all of it may go.

// young is what may still be in the making, where no lock tells.
const young = time.Minute

// temporary are the names of files that were being written.
var temporary = regexp.MustCompile(`^\..+\.[0-9]+\.tmp$`)

// counted is what makeAdmin adds to a name.
var counted = regexp.MustCompile(`^(-[0-9]+)?$`)

func (w *Workspaces) notes() string { return filepath.Join(w.opts.StateDir, "making") }

// note notes what is about to be made.
func (c *creation) note() (*lockfile.Lock, error) {
	if err := os.MkdirAll(c.w.notes(), 0o700); err != nil {
		return nil, failed("note the workspace", err)
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
		return nil, failed("note the workspace", err)
	}
	return lock, nil
}

// forget ends a note. Its lock is held until it is gone, and its name is never
// used again.
func forget(lock *lockfile.Lock) error {
	return errors.Join(os.Remove(lock.Path()), lock.Close())
}

// Tidy removes what makers of workspaces that were killed have left: trees,
// branches and shadows that were not recorded, and those that were recorded for
// a run that was not. What cannot be removed now stays noted.
func (w *Workspaces) Tidy(ctx context.Context) error {
	var errs []error
	entries, err := os.ReadDir(w.notes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, entry := range entries {
		errs = append(errs, w.tidyNote(ctx, filepath.Join(w.notes(), entry.Name())))
	}
	for _, dir := range []string{"views/*", "views/*/info", "shadows/*"} {
		found, _ := filepath.Glob(filepath.Join(globLiteral(w.opts.StateDir), dir)) // the pattern is right
		for _, dir := range found {
			tidyTemporary(dir)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return failed("remove what killed processes left", err)
	}
	return nil
}

var globMeta = regexp.MustCompile(`[\\*?[]`)

func globLiteral(path string) string { return globMeta.ReplaceAllString(path, `\$0`) }

// tidyTemporary removes files that were not written to their end. Only where
// nothing but this program writes.
func tidyTemporary(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !temporary.MatchString(entry.Name()) {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > young {
			_ = os.Remove(filepath.Join(dir, entry.Name())) // the next one tries again
		}
	}
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
	lock, held, err := lockfile.Try(path, raw)
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
		return nil
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
	admin, err := adminOf(ws)
	if err != nil {
		return err
	}
	if admin == "" {
		_ = os.Remove(ws.Path) // made, and not filled yet; else another's
	} else {
		if err := os.RemoveAll(ws.Path); err != nil {
			return err
		}
		if err := os.RemoveAll(admin); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(admin)) // only where it is empty
	}
	_ = os.Remove(filepath.Dir(ws.Path)) // only where it is empty
	if err := w.unmakeBranch(ctx, ws); err != nil {
		return err
	}
	return os.RemoveAll(w.private(ws.ID))
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
		if rest, is := strings.CutPrefix(entry.Name(), ws.Name); is && counted.MatchString(rest) && beingMade(admin) {
			return admin, nil
		}
	}
	return "", nil
}

// beingMade tells whether nothing is in a record but a file that was not
// written to its end.
func beingMade(admin string) bool {
	entries, err := os.ReadDir(admin)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if !temporary.MatchString(entry.Name()) {
			return false
		}
	}
	return true
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

// shadowLocks are what git inside holds while it writes.
var shadowLocks = [...]string{"index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "caisson-index.lock"}

// Unlock removes the locks of git that was killed inside: it would stop the next
// one. To be called where every box of the workspace's run has ended.
func (w *Workspaces) Unlock(ws caisson.Workspace) error {
	root, err := os.OpenRoot(ws.Shadow)
	if err != nil {
		return failed("unlock the shadow", err)
	}
	defer root.Close()
	for _, name := range shadowLocks {
		_ = root.Remove(name) // not there; else git inside says so
	}
	return nil
}
