package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
)

// MergeMode is how commits come into a branch.
type MergeMode string

// Merge modes.
const (
	MergeCommit MergeMode = "merge"  // fast-forward where that is possible and no message is given, else a merge commit
	MergeSquash MergeMode = "squash" // one commit with all of it
	MergeRebase MergeMode = "rebase" // each commit again, on top
)

// MergeOptions say what goes where.
type MergeOptions struct {
	Into    string // a branch; default: the one the workspace started from
	Mode    MergeMode
	Message string
}

// Merged is what a merge did.
type Merged struct {
	Into     string `json:"into"`
	Old      string `json:"old"` // of Into; equal to New when there was nothing to merge
	New      string `json:"new"`
	Checkout string `json:"checkout,omitempty"` // checkout that was brought along, if Into is checked out
}

// Merge brings what was imported to the workspace's branch into another
// branch. Where that is checked out, the checkout must be clean and is brought
// along. Merges are made of objects alone, so whatever stops one leaves
// everything as it was: CodeMergeConflict with the files in detail "files",
// CodeWorkspaceDirty, CodeBranchCheckedOut where an agent's tree has Into.
func (w *Workspaces) Merge(ctx context.Context, ws caisson.Workspace, opts MergeOptions) (Merged, error) {
	repo, err := w.repository(ctx, ws.Binding.CommonDir, true)
	if err != nil {
		return Merged{}, err
	}
	into := orElse(opts.Into, ws.BaseRef)
	if into == "" {
		return Merged{}, caisson.Errorf(caisson.CodeUsage, "workspace %s started from no branch; name the one to merge into", ws.Name)
	}
	theirs, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil || theirs == "" {
		return Merged{}, caisson.Errorf(caisson.CodeNotFound, "branch %s is gone", ws.Branch)
	}
	ours, err := w.branchTip(ctx, repo, into)
	if err != nil || ours == "" {
		return Merged{}, caisson.Errorf(caisson.CodeNotFound, "there is no branch %s", printable(into))
	}
	result := Merged{Into: into, Old: ours, New: ours}
	if done, err := w.descends(ctx, repo, ours, theirs); err != nil || done {
		return result, err
	}
	at, err := w.mergeable(ctx, repo, into, ours)
	if err != nil {
		return result, err
	}
	m := &merge{w: w, repo: repo, ws: ws, into: into, ours: ours, theirs: theirs, message: opts.Message}
	var commit string
	switch opts.Mode {
	case MergeCommit, "":
		commit, err = m.merge(ctx)
	case MergeSquash:
		commit, err = m.squash(ctx)
	case MergeRebase:
		commit, err = m.rebase(ctx)
	default:
		err = caisson.Errorf(caisson.CodeUsage, "%q is no way to merge: merge, squash, rebase", printable(string(opts.Mode)))
	}
	if err != nil {
		return result, err
	}
	if err := w.advance(ctx, repo, at, into, ours, commit, "caisson: merge "+ws.Branch); err != nil {
		return result, err
	}
	result.New = commit
	if at != nil {
		result.Checkout = at.tree
	}
	return result, nil
}

// mergeable returns the checkout of a branch that is to be brought along; nil
// where it is checked out nowhere.
func (w *Workspaces) mergeable(ctx context.Context, repo *repository, branch, tip string) (*checkout, error) {
	at := repo.checkedOut(branch)
	if at == nil {
		clone, err := w.cloneOn(ctx, repo, branch)
		if clone == nil {
			return nil, err
		}
		return nil, caisson.Errorf(caisson.CodeBranchCheckedOut, "branch %s is that of a workspace that an agent can write, %s", branch, clone.Path).
			WithHint("Merge into another branch.")
	}
	refuse := func(code caisson.Code, why, hint string) (*checkout, error) {
		return nil, caisson.Errorf(code, "branch %s is checked out in %s, %s", branch, at.describe(), why).WithHint("%s", hint)
	}
	tree, err := filepath.EvalSymlinks(at.tree)
	if at.tree == "" || err != nil {
		return refuse(caisson.CodeBranchCheckedOut, "which cannot be told apart from an agent's", "Merge by hand, or into another branch.")
	}
	at.tree = tree
	if w.treeOf(tree) != "" {
		return refuse(caisson.CodeBranchCheckedOut, "a workspace that an agent can write", "Merge into another branch.")
	}
	for _, busy := range []string{"rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"} {
		if _, err := os.Lstat(filepath.Join(at.gitDir, busy)); err == nil {
			return refuse(caisson.CodeWorkspaceDirty, "where a merge, rebase or bisect is under way", "Finish it first.")
		}
	}
	if truth(last(repo.settings, "core.sparsecheckout")) {
		return refuse(caisson.CodeRepositoryUnsupported, "a sparse checkout, which cannot be brought along", "Merge by hand, or into a branch that is not checked out.")
	}
	clean, err := w.clean(ctx, repo, *at, tip)
	if err != nil {
		return nil, err
	}
	if !clean {
		return refuse(caisson.CodeWorkspaceDirty, "with changes that are not committed", "Commit or stash them first.")
	}
	return at, nil
}

// advance moves a branch and the clean checkout of it.
func (w *Workspaces) advance(ctx context.Context, repo *repository, at *checkout, branch, old, commit, message string) error {
	move := func(extra ...string) error {
		inv := repo.in(append(append([]string{"read-tree", "-m", "-u"}, extra...), old, commit)...)
		inv.index, inv.tree, inv.dir = filepath.Join(at.gitDir, "index"), at.tree, at.tree
		_, err := w.git.run(ctx, inv)
		return err
	}
	if at != nil {
		if err := move("-n"); err != nil {
			return caisson.Errorf(caisson.CodeWorkspaceDirty, "%s cannot be brought along: %w", at.tree, err).WithHint("Move the files that are in the way, then merge again.")
		}
	}
	if err := w.updateRefs(ctx, repo, message, refUpdate{"refs/heads/" + branch, commit, old}); err != nil {
		return failed("move branch "+branch+", which may have been moved meanwhile", err)
	}
	if at == nil {
		return nil
	}
	if err := move(); err != nil {
		back := w.updateRefs(context.WithoutCancel(ctx), repo, message+": taken back", refUpdate{"refs/heads/" + branch, old, commit})
		return failed("bring "+at.tree+" along", errors.Join(err, back))
	}
	return nil
}

// merge is one merge being made of objects.
type merge struct {
	w                  *Workspaces
	repo               *repository
	ws                 caisson.Workspace
	into, ours, theirs string
	message            string
}

func (m *merge) merge(ctx context.Context) (string, error) {
	if forward, err := m.w.descends(ctx, m.repo, m.theirs, m.ours); err != nil {
		return "", failed("compare the branches", err)
	} else if forward && m.message == "" {
		return m.theirs, nil
	}
	tree, err := m.tree(ctx, m.ours, m.theirs)
	if err != nil {
		return "", err
	}
	return m.commit(ctx, tree, orElse(m.message, "Merge branch '"+m.ws.Branch+"' into "+m.into), nil, m.ours, m.theirs)
}

func (m *merge) squash(ctx context.Context) (string, error) {
	tree, err := m.tree(ctx, m.ours, m.theirs)
	if err != nil {
		return "", err
	}
	message := m.message
	if message == "" {
		out, err := m.w.git.run(ctx, m.repo.in("log", "-z", "--reverse", "--format=%B", m.theirs, "^"+m.ours, "--"))
		if err != nil {
			return "", failed("read the messages", err)
		}
		messages := splitZ(out)
		if len(messages) == 1 {
			message = messages[0]
		} else {
			var b strings.Builder
			fmt.Fprintf(&b, "%s: %d commits\n", m.ws.Branch, len(messages))
			for _, each := range messages {
				b.WriteString("\n" + strings.TrimSpace(each) + "\n")
			}
			message = b.String()
		}
	}
	return m.commit(ctx, tree, message, nil, m.ours)
}

// rebase makes each commit again on top of ours. A commit is applied as the
// merge of two made-up commits whose common parent holds the tree before it.
func (m *merge) rebase(ctx context.Context) (string, error) {
	out, err := m.w.git.run(ctx, m.repo.in("log", "-z", "--reverse", "--topo-order", "--date=raw", "--format=%H %P%n%an%n%ae%n%ad%n%B", m.theirs, "^"+m.ours, "--"))
	if err != nil {
		return "", failed("read the commits", err)
	}
	tip := m.ours
	for _, item := range splitZ(out) {
		fields := strings.SplitN(item, "\n", 5)
		ids := strings.Fields(fields[0])
		if len(fields) < 5 || len(ids) != 2 {
			return "", caisson.Errorf(caisson.CodeUnsupported, "there are merges among the commits of %s", m.ws.Branch).WithHint("Use merge or squash.")
		}
		tree, err := m.replay(ctx, ids[0], ids[1], tip)
		if err != nil {
			return "", err
		}
		if same, err := m.w.git.line(ctx, m.repo.in("rev-parse", "--verify", "--end-of-options", tip+"^{tree}")); err != nil {
			return "", failed("compare the trees", err)
		} else if same == tree {
			continue
		}
		author := []string{"GIT_AUTHOR_NAME=" + fields[1], "GIT_AUTHOR_EMAIL=" + fields[2], "GIT_AUTHOR_DATE=" + fields[3]}
		if tip, err = m.commit(ctx, tree, fields[4], author, tip); err != nil {
			return "", err
		}
	}
	return tip, nil
}

// replay returns the tree of onto with the change from parent to commit.
func (m *merge) replay(ctx context.Context, commit, parent, onto string) (string, error) {
	before, err := m.commit(ctx, parent+"^{tree}", "before", nil)
	if err != nil {
		return "", err
	}
	one, err := m.commit(ctx, onto+"^{tree}", "onto", nil, before)
	if err != nil {
		return "", err
	}
	other, err := m.commit(ctx, commit+"^{tree}", "change", nil, before)
	if err != nil {
		return "", err
	}
	return m.tree(ctx, one, other)
}

// tree merges two commits into a tree, without an index or a work tree.
func (m *merge) tree(ctx context.Context, one, other string) (string, error) {
	out, err := m.w.git.run(ctx, m.repo.in("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", one, other))
	items := strings.Split(string(out), "\x00")
	switch statusOf(err) {
	case 0:
		if !isObjectID(items[0]) {
			return "", caisson.Errorf(caisson.CodeGitFailed, "git gave no tree")
		}
		return items[0], nil
	case 1:
		var files []string
		for _, name := range items[1:] {
			if name == "" {
				break
			}
			files = append(files, printable(name))
		}
		return "", caisson.Errorf(caisson.CodeMergeConflict, "%s does not merge into %s: %s", m.ws.Branch, m.into, strings.Join(files, ", ")).
			With("files", files).WithHint("Everything is as it was. Merge by hand: `git merge %s`, or let the agent bring its branch up to date first.", m.ws.Branch)
	}
	return "", failed("merge the trees", err)
}

// commit writes a commit. It is signed where the person's own configuration
// signs commits, and it is one that stays (has a real parent).
func (m *merge) commit(ctx context.Context, tree, message string, author []string, parents ...string) (string, error) {
	args := []string{"commit-tree"}
	for _, s := range m.repo.settings {
		if s.own && s.key == "commit.gpgsign" && truth(s.value) && len(parents) > 0 && (parents[0] == m.ours || author != nil) {
			args = append(args, "-S")
			break
		}
	}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	inv := m.repo.in(append(args, "-F", "-", "--", tree)...)
	inv.stdin, inv.env = strings.NewReader(message), author
	id, err := m.w.git.line(ctx, inv)
	if err != nil {
		if strings.Contains(err.Error(), "tell me who you are") {
			return "", caisson.Errorf(caisson.CodeGitFailed, "git does not know who commits").WithHint("Set user.name and user.email with `git config --global`.")
		}
		return "", failed("write the commit", err)
	}
	return id, nil
}
