package workspace

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// chooseSettings resolves the commit that settings are read at.
func (c *creation) chooseSettings(ctx context.Context, at string) error {
	if at == "" {
		return nil
	}
	commit, err := c.git.line(ctx, c.repo.at(c.at.gitDir, "rev-parse", "--verify", "--quiet", "--end-of-options", at+"^{commit}"))
	if err != nil || !isObjectID(commit) {
		return unusable("%q names no commit here, and the repository's settings are read at it", printable(at)).WithHint("Make a first commit, or check one out.")
	}
	c.ws.Settings = commit
	return nil
}

func unusable(format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeBaseUnusable, format, args...)
}

// chooseBase resolves the base. Only an implicit base must be clean and on a
// branch: who names one has said what is meant.
func (c *creation) chooseBase(ctx context.Context, base string) error {
	head, _ := pointer(filepath.Join(c.at.gitDir, "HEAD"), "ref: refs/heads/")
	var listErr error
	var beside sync.WaitGroup
	beside.Go(func() { listErr = c.listBranches(ctx) }) // ends with the command
	commit, err := c.git.line(ctx, c.repo.at(c.at.gitDir, "rev-parse", "--verify", "--quiet", "--end-of-options", cmp.Or(base, "HEAD")+"^{commit}"))
	beside.Wait()
	if err != nil || !isObjectID(commit) {
		if base != "" {
			return unusable("%q names no commit here", printable(base)).WithHint("Name a branch, tag or commit that exists.")
		}
		if err := unreadableIn(c.repo.common); err != nil {
			return err
		}
		if id, err := c.git.line(ctx, invocation{gitDir: c.at.gitDir, args: []string{"rev-parse", "--verify", "--quiet", "HEAD"}}); err == nil && isObjectID(id) {
			return unusable("the commit of HEAD, %s, is missing, damaged or not to be read", id).WithHint("`git fsck` tells what else is; or name another base.")
		}
		return unusable("the repository has no commit yet to start from").WithHint("Make a first commit, or name a base.")
	}
	c.ws.Base = commit
	if err := cmp.Or(listErr, c.checkWhole(ctx)); err != nil {
		return err
	}
	if base != "" {
		if _, is := c.branches[base]; is && utf8.ValidString(base) {
			c.ws.BaseRef = base
		}
		return nil
	}
	if head == "" {
		return unusable("the checkout is on no branch (detached HEAD)").WithHint("Check out a branch, or name HEAD as the base.")
	}
	if utf8.ValidString(head) { // else it has to be named to be merged into
		c.ws.BaseRef = head
	}
	if c.at.tree == "" || c.at.ours != "" {
		return nil // a bare repository, or an agent's tree, which is not walked
	}
	clean, err := c.w.clean(ctx, c.repo, checkout{c.at.gitDir, c.at.tree}, commit)
	if err != nil {
		return err
	}
	if !clean {
		return unusable("the checkout has changes that are not committed").WithHint("Commit or stash them, or name HEAD as the base to start from the last commit.")
	}
	return nil
}

// clean tells whether a person's checkout of commit has no changes to tracked
// files. Never called for a tree that an agent can write.
func (w *Workspaces) clean(ctx context.Context, repo *repository, at checkout, commit string) (bool, error) {
	for _, how := range [][]string{{"diff", "--cached"}, {"diff"}} {
		inv := repo.in(append(how, "--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", commit, "--")...)
		inv.index, inv.tree, inv.dir = filepath.Join(at.gitDir, "index"), at.tree, at.tree
		switch _, err := w.git.run(ctx, inv); statusOf(err) {
		case 0:
		case 1:
			return false, nil
		default:
			return false, failed("look for changes in the checkout", err)
		}
	}
	return true, nil
}

// checkWhole refuses a base of which objects are missing.
func (c *creation) checkWhole(ctx context.Context) error {
	if !c.repo.partial {
		return nil
	}
	missing, err := c.w.missing(ctx, c.repo, c.ws.Base)
	if err != nil || missing == 0 {
		return err
	}
	return caisson.Errorf(caisson.CodeRepositoryUnsupported, "this repository is a partial clone, and %d objects of the base have not been fetched", missing).
		WithHint("`git archive --output=/dev/null %s` fetches them.", c.ws.Base).With("missing", missing)
}

// missing counts the objects of a commit and its tree that the repository does
// not have. Nothing is fetched.
func (w *Workspaces) missing(ctx context.Context, repo *repository, commit string) (int, error) {
	out, err := w.git.run(ctx, repo.in("rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=print", commit))
	if err != nil {
		return 0, failed("look for what is missing of "+commit, err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "?") {
			n++
		}
	}
	return n, nil
}
