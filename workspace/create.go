package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// CreateSpec says what workspace is wanted.
type CreateSpec struct {
	Dir    string                // a directory in the repository
	Name   string                // default: the run's id, else the workspace's
	Mode   caisson.WorkspaceMode // default: caisson.WorkspaceWorktree
	Branch string                // default: caisson/<name>
	Base   string                // a revision; default: HEAD of Dir's checkout, which must then be clean and on a branch
	// Settings is a revision that the repository's settings are read at, where Base
	// was not chosen by a person; empty: at Base.
	Settings string
	Run      caisson.RunID
	By       string
	// Made is called once the workspace is recorded, nil for nothing. Where it
	// fails, or the process ends before it has returned, the workspace is
	// taken back: one of a run that is not recorded is nobody's.
	Made func(ctx context.Context, ws caisson.Workspace) error
}

// creation is a workspace being made; undo takes back what was done, last first.
type creation struct {
	w    *Workspaces
	git  *program
	repo *repository
	at   place
	ws   caisson.Workspace
	undo []func()

	branches   map[string]string // of the repository, with what they lead to
	modules    []*module         // of the base
	index      []byte            // that the base was checked out with
	checkedOut freshIndex        // what it tells
	written    []string          // that are not durable yet
}

// Create makes a workspace: a worktree on a branch of its own, and the shadow
// that a box is given in place of the repository's git directory; or a clone
// whose git directory is its own, and the branch in the repository. When it
// returns an error, nothing was made. Errors: CodeNoRepository,
// CodeRepositoryUnsupported, CodeBaseUnusable, CodeBranchExists,
// CodeBranchCheckedOut, CodeAlreadyExists, CodeDiskFull, CodeGitFailed, and what
// spec.Made returns.
func (w *Workspaces) Create(ctx context.Context, spec CreateSpec) (caisson.Workspace, error) {
	at, err := w.discover(ctx, spec.Dir)
	if err != nil {
		return caisson.Workspace{}, err
	}
	for _, path := range []string{at.common, at.gitDir, at.tree, w.opts.StateDir} {
		if !utf8.ValidString(path) { // a record of it would not be exact
			return caisson.Workspace{}, caisson.Errorf(caisson.CodeRepositoryUnsupported, "the path %s is not UTF-8", printable(path)).
				WithHint("Move it to a path that is.")
		}
	}
	repo, err := w.repository(ctx, at.common, true)
	if err != nil {
		return caisson.Workspace{}, err
	}
	id := caisson.NewWorkspaceID()
	name := cmp.Or(spec.Name, string(spec.Run), string(id))
	if err := w.checkName(ctx, repo, name); err != nil {
		return caisson.Workspace{}, err
	}
	c := &creation{w: w, git: w.git, repo: repo, at: at, ws: caisson.Workspace{
		ID: id, Name: name, Branch: cmp.Or(spec.Branch, "caisson/"+name), Run: spec.Run, By: spec.By, Created: time.Now().UTC(),
	}}
	if c.ws.Mode, err = modeOf(spec.Mode); err != nil {
		return caisson.Workspace{}, err
	}
	note, err := c.note()
	if err != nil {
		return caisson.Workspace{}, err
	}
	if err := c.make(ctx, spec); err != nil {
		for i := len(c.undo) - 1; i >= 0; i-- {
			c.undo[i]()
		}
		return caisson.Workspace{}, errors.Join(err, forget(note))
	}
	return c.ws, forget(note)
}

func (c *creation) make(ctx context.Context, spec CreateSpec) error {
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return c.chooseBase(ctx, spec.Base) },
		func(ctx context.Context) error { return c.chooseSettings(ctx, spec.Settings) },
		c.checkBranch, c.makeTree, c.fill, c.findModules, c.makeShadow,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := c.settle(); err != nil {
		return failed("make the workspace durable", err)
	}
	if err := c.w.opts.Ledger.PutWorkspace(ctx, c.ws); err != nil || spec.Made == nil {
		return err
	}
	if err := spec.Made(ctx, c.ws); err != nil {
		removed := c.ws
		removed.Removed = true
		return errors.Join(err, c.w.opts.Ledger.PutWorkspace(context.WithoutCancel(ctx), removed))
	}
	return nil
}

// checkBranch refuses a branch that is there or in use.
func (c *creation) checkBranch(ctx context.Context) error {
	branch := c.ws.Branch
	if err := c.checkBranchName(); err != nil {
		return err
	}
	all, err := c.w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: c.repo.common})
	if err != nil {
		return err
	}
	where := c.repo.checkedOut(branch)
	for _, ws := range all { // that of a clone may be deleted outside
		if ws.Branch == branch && (isClone(ws) || where != nil && where.tree == ws.Path) {
			return caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is that of workspace %s", branch, ws.Name).With("workspace", ws.ID)
		}
	}
	if where != nil {
		return caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is checked out in %s", branch, where.describe())
	}
	return c.checkBranchFree()
}

// makeTree makes the workspace's directory. A worktree's record in the repository
// is locked from the first moment, so that nobody's prune removes it.
func (c *creation) makeTree(context.Context) error {
	err := c.makeDir()
	if errors.Is(err, fs.ErrExist) {
		return nameTaken(c.ws.Name)
	}
	if err != nil {
		return unmade("make the workspace's directory", err)
	}
	c.undo = append(c.undo, func() {
		_ = os.RemoveAll(c.ws.Path)
		_ = os.Remove(filepath.Dir(c.ws.Path)) // only where it is empty
	})
	b := &c.ws.Binding
	b.CommonDir, b.Branch = c.repo.common, c.ws.Branch
	if b.Device, b.Inode, err = directoryID(b.CommonDir); err != nil {
		return failed("look at the repository", err)
	}
	if b.TreeDevice, b.TreeInode, err = directoryID(c.ws.Path); err != nil {
		return failed("look at the workspace's directory", err)
	}
	if isClone(c.ws) {
		return c.makeClone()
	}
	return c.makeRecord()
}

// makeDir makes the directory of the tree, and those above it, which go with the
// last other workspace.
func (c *creation) makeDir() (err error) {
	for range 10 {
		parent := filepath.Join(c.w.opts.StateDir, "workspaces", c.repo.name())
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return err
		}
		if parent, err = filepath.EvalSymlinks(parent); err == nil {
			c.ws.Path = filepath.Join(parent, c.ws.Name)
			err = os.Mkdir(c.ws.Path, 0o755)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// makeRecord makes the record of a worktree and the pointer to it. It is made
// aside, and comes among the others when it is whole: a prune by anybody else
// would remove one that does not say yet that it is locked.
func (c *creation) makeRecord() error {
	aside := recordAside(c.repo.common, c.ws.ID)
	c.undo = append(c.undo, func() { _ = os.RemoveAll(aside) })
	if err := os.Mkdir(aside, 0o755); err != nil {
		return unmade("make the worktree's record", err)
	}
	for _, file := range []struct{ name, text string }{
		{"locked", fmt.Sprintf("caisson: workspace %s (%s) is in use; remove it with caisson", c.ws.Name, c.ws.ID)},
		{"commondir", "../..\n"},
		{"gitdir", filepath.Join(c.ws.Path, ".git") + "\n"},
		{"HEAD", "ref: refs/heads/" + c.ws.Branch + "\n"},
	} {
		if err := c.write(filepath.Join(aside, file.name), []byte(file.text), 0o644); err != nil {
			return failed("make the worktree's record", err)
		}
	}
	admin, err := placeRecord(aside, c.repo.common, c.ws.Name)
	if err != nil {
		return unmade("make the worktree's record", err)
	}
	for i, path := range c.written {
		if filepath.Dir(path) == aside {
			c.written[i] = filepath.Join(admin, filepath.Base(path))
		}
	}
	c.undo = append(c.undo, func() {
		_ = os.RemoveAll(admin)
		_ = os.Remove(filepath.Dir(admin)) // only where it is empty
	})
	if err := c.write(filepath.Join(c.ws.Path, ".git"), []byte("gitdir: "+admin+"\n"), 0o644); err != nil {
		return failed("make the worktree's record", err)
	}
	c.ws.Binding.AdminDir = admin
	return nil
}

// recordAside is where a worktree's record is made.
func recordAside(common string, id caisson.WorkspaceID) string {
	return filepath.Join(common, "caisson-"+string(id))
}

// placeRecord gives a record a free name below worktrees.
func placeRecord(aside, common, name string) (string, error) {
	dir := filepath.Join(common, "worktrees")
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		return "", caisson.Errorf(caisson.CodeRepositoryUnsupported, "worktrees of this repository is a link, or no directory")
	}
	for n, tries := 0, 0; ; n, tries = n+1, tries+1 {
		admin := filepath.Join(dir, name)
		if n > 0 {
			admin += fmt.Sprint("-", n)
		}
		err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, admin, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) { // a file system that does not know how
			err = os.Rename(aside, admin) // looks before
		}
		if errors.Is(err, fs.ErrNotExist) { // none was there yet, or the last other one went
			if err = os.Mkdir(dir, 0o755); (err == nil || errors.Is(err, fs.ErrExist)) && tries <= 1000 {
				n--
				continue
			}
		}
		if !errors.Is(err, fs.ErrExist) || tries > 1000 {
			return admin, err
		}
	}
}

// pin is the name of a reference that keeps objects which a shadow borrows.
func pin(id caisson.WorkspaceID, what string) string {
	return workspaceRefs + string(id) + "/" + what
}

// fill makes the branch and checks the base out, beside each other: neither needs
// the other, and the branch waits for the disk. Where the branch cannot be made,
// that is why, and the checkout is ended.
func (c *creation) fill(ctx context.Context) error {
	checkout, end := context.WithCancel(ctx)
	defer end()
	var branchErr error
	var beside sync.WaitGroup
	beside.Go(func() { // ends with the command
		if branchErr = c.makeBranch(ctx); branchErr != nil {
			end()
		}
	})
	err := c.checkOut(checkout)
	beside.Wait()
	return cmp.Or(branchErr, err)
}

// makeBranch makes the branch, only if it is not there, and pins the base. The pin
// comes first, as git writes one after the other: where it is ended between the
// two, or after both, the pin tells whose the branch is.
func (c *creation) makeBranch(ctx context.Context) error {
	c.undo = append(c.undo, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = c.w.unmakeBranch(ctx, c.ws)
	})
	err := c.w.updateRefs(ctx, c.repo, "caisson: workspace "+c.ws.Name,
		refUpdate{pin(c.ws.ID, "base"), c.ws.Base, absent}, refUpdate{"refs/heads/" + c.ws.Branch, c.ws.Base, absent})
	if err != nil {
		var exit *exitError
		if errors.As(err, &exit) && (strings.Contains(exit.complaint, "exists; cannot create") || strings.Contains(exit.complaint, "already exists")) {
			e := caisson.Errorf(caisson.CodeBranchExists, "branch %s cannot be made beside the branches that exist", c.ws.Branch)
			e.Err = err
			return e
		}
		if err := c.repo.unwritable(c.ws.Branch); err != nil {
			return err
		}
		if full(c.repo.common) { // git does not always say why it could not write
			return caisson.Errorf(caisson.CodeDiskFull, "there is no room for the branch of %s: %w", c.ws.Name, err)
		}
		return failed("make the branch", err)
	}
	return nil
}

// checkOut fills the tree. No filter but the person's own is defined for it.
func (c *creation) checkOut(ctx context.Context) error {
	inv := c.repo.in("read-tree", "-m", "-u", c.ws.Base)
	inv.index, inv.tree, inv.dir = c.indexPath(), c.ws.Path, c.ws.Path
	inv.env = lfsEnv()
	_, err := c.git.run(ctx, inv)
	if err != nil {
		if full(c.ws.Path) { // git does not say why it could not write
			return caisson.Errorf(caisson.CodeDiskFull, "there is no room for the tree of %s: %w", c.ws.Name, err)
		}
		return failed("check out the base", err)
	}
	if c.index, err = readInside(filepath.Dir(c.indexPath()), "index", 1<<30); err != nil {
		return failed("read the index of the base", err)
	}
	if c.checkedOut, err = c.readFresh(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// readFresh reads what the index tells of the base; where it is of a form that
// is not read here, git is asked.
func (c *creation) readFresh(ctx context.Context) (fresh freshIndex, err error) {
	fresh, err = parseFreshIndex(c.index, len(c.ws.Base)/2)
	if err == nil {
		if os.Geteuid() == 0 && !isClone(c.ws) {
			c.index, err = ownedInside(c.index, len(c.ws.Base)/2)
		}
		return fresh, err
	}
	if fresh.tree, err = c.git.line(ctx, c.repo.in("rev-parse", "--verify", "--end-of-options", c.ws.Base+"^{tree}")); err != nil {
		return fresh, failed("look at the base", err)
	}
	if !isObjectID(fresh.tree) {
		return fresh, caisson.Errorf(caisson.CodeGitFailed, "git named %q as the tree of the base %s", printable(fresh.tree), c.ws.Base)
	}
	fresh.links, err = c.w.gitlinks(ctx, c.repo, c.ws.Base)
	return fresh, err
}

// full tells whether the file system that holds dir has less than 1 MiB left:
// a write that did not succeed then needs no other reason.
func full(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && stat.Bavail*uint64(stat.Bsize) < 1<<20 //nolint:gosec // a block size is positive
}
