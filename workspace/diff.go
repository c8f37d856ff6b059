package workspace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// DiffOptions say what is compared.
type DiffOptions struct {
	From string // a revision; default: the base
	To   string // a revision; default: the tree as it is, untracked files too
	Stat bool   // a summary in place of the text
	Out  io.Writer
}

const showDiff = gather + keepIndex + `exec git --no-pager diff --cached --no-color --no-ext-diff --no-textconv ${CAISSON_STAT:+--stat} "$CAISSON_FROM" --
`

// Diff writes what differs. The tree is compared inside a box, commits outside;
// either way no program that a repository names runs on the host. What is
// written may hold any bytes, but no more than maxOutput; then it is cut, with an
// error.
func (w *Workspaces) Diff(ctx context.Context, ws caisson.Workspace, given Box, opts DiffOptions) error {
	check := w.checkRepository
	if opts.To == "" {
		check = w.Check
	}
	if err := check(ctx, ws); err != nil {
		return err
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return err
	}
	from, err := w.resolve(ctx, repo, cmp.Or(opts.From, ws.Base))
	if err != nil {
		return err
	}
	stat := ""
	if opts.Stat {
		stat = "--stat"
	}
	if opts.To != "" {
		to, err := w.resolve(ctx, repo, opts.To)
		if err != nil {
			return err
		}
		args := []string{"diff", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}
		if stat != "" {
			args = append(args, stat)
		}
		inv := repo.in(append(args, from, to, "--")...)
		out := &boundedWriter{w: opts.Out, left: maxOutput}
		inv.stdout = out
		if _, err := w.git.run(ctx, inv); err != nil || out.over {
			return failed("compare the commits", out.or(err))
		}
		return nil
	}
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return err
	}
	defer closeBox() //nolint:errcheck // the text has been written
	release, err := w.lock(ctx, ws)
	if err != nil {
		return err
	}
	defer release()
	out := &boundedWriter{w: opts.Out, left: maxOutput}
	_, err = w.inside(ctx, ws, box, showDiff, out, "CAISSON_FROM="+from, "CAISSON_STAT="+stat)
	return out.or(err)
}

// boundedWriter hands on so many bytes and fails beyond them.
type boundedWriter struct {
	w    io.Writer
	left int
	over bool
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.over = true
		return 0, b.or(nil)
	}
	b.left -= len(p)
	return b.w.Write(p)
}

// or returns err, or why the command had to end.
func (b *boundedWriter) or(err error) error {
	if b.over {
		return caisson.Errorf(caisson.CodeGitFailed, "what differs is larger than %d bytes", maxOutput)
	}
	return err
}

// resolve returns the commit that a person's revision names in the repository,
// whatever is checked out where.
func (w *Workspaces) resolve(ctx context.Context, repo *repository, rev string) (string, error) {
	was := strings.HasPrefix(rev, "@{") // checked out, which git finds in the log of the main checkout
	commit, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}"))
	if err != nil || was || !isObjectID(commit) {
		return "", caisson.Errorf(caisson.CodeNotFound, "%q names no commit here", printable(rev)).WithHint("Name a branch, a commit, base, now, or a snapshot: `caisson workspace log` lists them.")
	}
	return commit, nil
}

// Commit is one commit of a workspace.
type Commit struct {
	ID      string    `json:"id"`
	Author  string    `json:"author"`
	Email   string    `json:"email"`
	Time    time.Time `json:"time"`
	Subject string    `json:"subject"`
	Body    string    `json:"body,omitempty"`
}

// Log returns the commits that were imported to the workspace's branch since
// its base, newest first, at most limit (0: all).
func (w *Workspaces) Log(ctx context.Context, ws caisson.Workspace, limit int) ([]Commit, error) {
	if err := w.checkRepository(ctx, ws); err != nil {
		return nil, err
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return nil, err
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil {
		return nil, failed("look at branch "+ws.Branch, err)
	}
	if tip == "" {
		return nil, caisson.Errorf(caisson.CodeNotFound, "branch %s is gone", ws.Branch)
	}
	args := []string{"log", "-z", "--no-color", "--encoding=UTF-8", "--format=%H%n%an%n%ae%n%ct%n%s%n%b"}
	if limit > 0 {
		args = append(args, fmt.Sprint("--max-count=", limit))
	}
	out, err := w.git.run(ctx, repo.in(append(args, tip, "^"+ws.Base, "--")...))
	if err != nil {
		return nil, failed("read the log of "+ws.Branch, err)
	}
	var commits []Commit
	for _, item := range splitZ(out) {
		fields := strings.SplitN(item, "\n", 6)
		if len(fields) < 6 {
			continue
		}
		seconds, _ := strconv.ParseInt(fields[3], 10, 64)
		commits = append(commits, Commit{fields[0], fields[1], fields[2], time.Unix(seconds, 0).UTC(), fields[4], strings.TrimSpace(fields[5])})
	}
	return commits, nil
}
