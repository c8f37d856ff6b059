package workspace

import (
	"context"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// Names of workspaces and branches become names of files. Two that differ only in
// case would be one file on some disks, so the second is refused on all: a
// repository and its state directory may be moved from one to another.

// maxBranch bounds the name of a branch in bytes: with what git and an import
// put around it, each part of it still is the name of a file.
const maxBranch = 200

// maxBranchParts bounds how many parts it has: each is a directory of references
// and of logs, which are looked at inside down to a depth.
const maxBranchParts = maxRefDepth - 2

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// checkName refuses what cannot be the name of a workspace of a repository, or
// is one's.
func (w *Workspaces) checkName(ctx context.Context, repo *repository, name string) error {
	if !nameForm.MatchString(name) || strings.Contains(name, "..") || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".") {
		return caisson.Errorf(caisson.CodeUsage, "%q is no name for a workspace: letters, digits, dots, dashes, up to 64", printable(name))
	}
	all, err := w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{CommonDir: repo.common})
	if err != nil {
		return err
	}
	for _, ws := range all {
		if ws.Name == name {
			return nameTaken(name)
		}
		if strings.EqualFold(ws.Name, name) {
			return caisson.Errorf(caisson.CodeAlreadyExists, "a workspace %s exists, and %s differs from it only in case, which some disks do not tell apart", ws.Name, name).
				WithHint("Use another name.")
		}
	}
	return nil
}

func nameTaken(name string) error {
	return caisson.Errorf(caisson.CodeAlreadyExists, "a workspace %s exists", name).WithHint("Use another name, or look at it with `caisson workspace ls`.")
}

// checkBranchName refuses what git, or a person's shell, would not take for the
// name of a branch.
func (c *creation) checkBranchName() error {
	branch := c.ws.Branch
	refuse := func(why string) error {
		return caisson.Errorf(caisson.CodeUsage, "%q is no name for a branch: %s", printable(branch), why)
	}
	switch {
	case !utf8.ValidString(branch):
		return refuse("it is not UTF-8, and a record of it would not be exact")
	case len(branch) > maxBranch:
		return refuse("it is longer than 200 bytes")
	case strings.Count(branch, "/") >= maxBranchParts:
		return refuse("it has more than 30 parts")
	case strings.HasPrefix(branch, "-"):
		return refuse("git would take it for an option")
	case strings.HasPrefix(branch, "refs/"):
		return refuse("leave out what git puts before it (refs/heads/)")
	case branch == "HEAD", branch == "@", isObjectID(strings.ToLower(branch)):
		return refuse("git would take it for something else")
	}
	if !isRefName("refs/heads/" + branch) {
		return refuse("git allows none of that form (spaces, control characters, `..`, `~^:?*[\\`, `@{`, parts that begin with a dot or end in .lock)")
	}
	return nil
}

// listBranches lists the branches of the repository.
func (c *creation) listBranches(ctx context.Context) error {
	out, err := c.git.run(ctx, c.repo.in("for-each-ref", "--format=%(objectname) %(refname)%00", "refs/heads/"))
	if err != nil {
		return failed("list the branches", err)
	}
	c.branches = map[string]string{}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		id, name, _ := strings.Cut(strings.TrimPrefix(entry, "\n"), " ")
		if name, is := strings.CutPrefix(name, "refs/heads/"); is {
			c.branches[name] = id
		}
	}
	return nil
}

// checkBranchFree refuses a branch that is there, in any case of its letters.
func (c *creation) checkBranchFree() error {
	branch := c.ws.Branch
	if _, is := c.branches[branch]; is {
		return caisson.Errorf(caisson.CodeBranchExists, "branch %s exists", branch)
	}
	for name := range c.branches {
		if strings.EqualFold(name, branch) {
			return caisson.Errorf(caisson.CodeBranchExists, "branch %s exists, and %s differs from it only in case, which some disks do not tell apart", printable(name), branch)
		}
	}
	return nil
}
