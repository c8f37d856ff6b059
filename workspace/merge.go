package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
// along. CodeWorkspaceBindingLost, before anything is done. Merges are made of
// objects alone, so whatever stops one leaves everything as it was:
// CodeMergeConflict with the files in detail "files", CodeWorkspaceDirty,
// CodeBranchCheckedOut where an agent's tree has Into.
func (w *Workspaces) Merge(ctx context.Context, ws caisson.Workspace, opts MergeOptions) (Merged, error) {
	if err := w.Check(ctx, ws); err != nil {
		return Merged{}, err
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, true)
	if err != nil {
		return Merged{}, err
	}
	if err := w.finishAll(ctx, repo.common); err != nil {
		return Merged{}, err
	}
	m := &merge{w: w, repo: repo, ws: ws, into: cmp.Or(opts.Into, ws.BaseRef), message: opts.Message, mode: opts.Mode}
	if err := m.tips(ctx); err != nil {
		return Merged{}, err
	}
	result := Merged{Into: m.into, Old: m.ours, New: m.ours}
	if done, err := w.descends(ctx, repo, m.ours, m.theirs); err != nil || done {
		return result, err
	}
	if err := w.nobodys(ctx, ws, m.into); err != nil {
		return result, err
	}
	if m.at, err = w.mergeable(ctx, repo, m.into, m.ours); err != nil {
		return result, err
	}
	if err := m.related(ctx); err != nil {
		return result, err
	}
	commit, err := m.made(ctx)
	if err != nil {
		return result, err
	}
	if err := w.advance(ctx, repo, m.at, m.into, m.ours, commit, "caisson: merge "+ws.Branch); err != nil {
		return result, err
	}
	result.New = commit
	if m.at != nil {
		result.Checkout = m.at.tree
	}
	return result, nil
}

// tips finds the commits that are merged.
func (m *merge) tips(ctx context.Context) (err error) {
	if m.into == "" {
		return caisson.Errorf(caisson.CodeUsage, "workspace %s started from no branch; name the one to merge into", m.ws.Name)
	}
	if m.into == m.ws.Branch {
		return caisson.Errorf(caisson.CodeUsage, "%s is the workspace's own branch", printable(m.into)).WithHint("Name the branch to merge into.")
	}
	if m.theirs, err = m.w.branchTip(ctx, m.repo, m.ws.Branch); err != nil || m.theirs == "" {
		return caisson.Errorf(caisson.CodeNotFound, "branch %s is gone", m.ws.Branch)
	}
	if m.ours, err = m.w.branchTip(ctx, m.repo, m.into); err != nil || m.ours == "" {
		return caisson.Errorf(caisson.CodeNotFound, "there is no branch %s", printable(m.into))
	}
	return nil
}

// made returns the commit to which the branch is to go.
func (m *merge) made(ctx context.Context) (string, error) {
	switch m.mode {
	case MergeCommit, "":
		return m.merge(ctx)
	case MergeSquash:
		return m.squash(ctx)
	case MergeRebase:
		return m.rebase(ctx)
	}
	return "", caisson.Errorf(caisson.CodeUsage, "%q is no way to merge: merge, squash, rebase", printable(string(m.mode)))
}

// merge is one merge being made of objects.
type merge struct {
	w                  *Workspaces
	repo               *repository
	ws                 caisson.Workspace
	at                 *checkout // of into; nil: none
	into, ours, theirs string
	message            string
	mode               MergeMode
}

// forward tells whether ours only has to move on to theirs.
func (m *merge) forward(ctx context.Context) (bool, error) {
	forward, err := m.w.descends(ctx, m.repo, m.theirs, m.ours)
	if err != nil {
		return false, failed("compare the branches", err)
	}
	return forward, nil
}

// related refuses histories without a common commit: git would join them as if
// every file had been added twice.
func (m *merge) related(ctx context.Context) error {
	_, err := m.w.git.run(ctx, m.repo.in("merge-base", m.ours, m.theirs))
	switch statusOf(err) {
	case 0:
		return nil
	case 1:
		return caisson.Errorf(caisson.CodeMergeConflict, "%s and %s have no commit in common", m.ws.Branch, printable(m.into)).
			WithHint("Everything is as it was. Name the branch that the workspace came from with `--into`, or join them by hand: `git merge --allow-unrelated-histories %s`.", quoted(m.ws.Branch))
	}
	return failed("compare the branches", err)
}

// byHand are the commands by which a person does the same in a checkout.
func (m *merge) byHand() []string {
	branch, into := quoted(m.ws.Branch), quoted(m.into)
	git := "git"
	var commands []string
	if m.at != nil {
		git = "git -C " + quoted(m.at.tree)
	} else if m.mode != MergeRebase {
		commands = append(commands, "git switch "+into)
	}
	switch m.mode {
	case MergeSquash:
		return append(commands, git+" merge --squash "+branch, git+" commit")
	case MergeRebase:
		// The branch itself stays where the agent has it.
		copied := quoted(m.ws.Branch + "-rebased")
		return append(commands, git+" switch -c "+copied+" "+branch, git+" rebase "+into, git+" switch "+into, git+" merge --ff-only "+copied)
	default:
		return append(commands, git+" merge "+branch)
	}
}

// quoted writes a word for a shell, as it is where that does.
func quoted(word string) string {
	word = printable(word)
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@:,=") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (m *merge) merge(ctx context.Context) (string, error) {
	if forward, err := m.forward(ctx); err != nil || forward && m.message == "" {
		return m.theirs, err
	}
	tree, err := m.tree(ctx, m.ours, m.theirs)
	if err != nil {
		return "", err
	}
	return m.commit(ctx, tree, cmp.Or(m.message, "Merge branch '"+m.ws.Branch+"' into "+m.into), nil, m.ours, m.theirs)
}

func (m *merge) squash(ctx context.Context) (string, error) {
	tree, err := m.tree(ctx, m.ours, m.theirs)
	if err != nil {
		return "", err
	}
	message := m.message
	if message == "" {
		out, err := m.w.git.run(ctx, m.repo.in("log", "-z", "--reverse", "--format=%H%n%B", m.theirs, "^"+m.ours, "--"))
		if err != nil {
			return "", failed("read the messages", err)
		}
		message = squashed(m.ws.Branch, splitZ(out))
	}
	return m.commit(ctx, tree, message, nil, m.ours)
}

// squashed is the message of a commit that holds others, each an id, a newline
// and its message.
func squashed(branch string, commits []string) string {
	var messages []string
	for _, each := range commits {
		_, message, _ := strings.Cut(each, "\n")
		messages = append(messages, strings.TrimSpace(message))
	}
	if len(messages) == 1 && messages[0] != "" {
		return messages[0] + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d commit", branch, len(messages))
	if len(messages) != 1 {
		b.WriteString("s")
	}
	b.WriteString("\n")
	for _, each := range messages {
		if each != "" {
			b.WriteString("\n" + each + "\n")
		}
	}
	return b.String()
}

// rebase makes each commit again on top of ours. A commit is applied as the
// merge of two made-up commits whose common parent holds the tree before it.
func (m *merge) rebase(ctx context.Context) (string, error) {
	if forward, err := m.forward(ctx); err != nil || forward {
		return m.theirs, err
	}
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
		} else if same == tree && !m.wasEmpty(ctx, ids[0], ids[1]) {
			continue // it is there already
		}
		author := []string{"GIT_AUTHOR_NAME=" + fields[1], "GIT_AUTHOR_EMAIL=" + fields[2], "GIT_AUTHOR_DATE=" + fields[3]}
		if tip, err = m.commit(ctx, tree, fields[4], author, tip); err != nil {
			return "", err
		}
	}
	return tip, nil
}

// wasEmpty tells whether a commit changed nothing to begin with.
func (m *merge) wasEmpty(ctx context.Context, commit, parent string) bool {
	_, err := m.w.git.run(ctx, m.repo.in("diff-tree", "--quiet", "--ignore-submodules=none", parent, commit, "--"))
	return err == nil
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
			if at := strings.LastIndexByte(name, '~'); at > 0 && isObjectID(name[at+1:]) {
				name = name[:at] // moved aside by git, for a directory of the same name
			}
			if name = printable(name); !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
		return "", caisson.Errorf(caisson.CodeMergeConflict, "%s does not merge into %s: %s", m.ws.Branch, m.into, strings.Join(files, ", ")).
			With("files", files).With("by_hand", m.byHand()).
			WithHint("Everything is as it was. By hand: `%s`. Or let the agent bring its branch up to date first.", strings.Join(m.byHand(), " && "))
	}
	return "", failed("merge the trees", err)
}

// signs tells whether the person's own configuration signs commits.
func (m *merge) signs() bool {
	signs := false
	for _, s := range m.repo.settings {
		if s.own && s.key == "commit.gpgsign" {
			signs = truth(s.value)
		}
	}
	return signs
}

// commit writes a commit. It is signed where the person's own configuration
// signs commits, and it is one that stays (has a real parent).
func (m *merge) commit(ctx context.Context, tree, message string, author []string, parents ...string) (string, error) {
	args := []string{"commit-tree"}
	if len(parents) > 0 && (parents[0] == m.ours || author != nil) && m.signs() {
		args = append(args, "-S")
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
		if slices.Contains(args, "-S") {
			return "", caisson.Errorf(caisson.CodeGitFailed, "write and sign the commit: %w", err).
				WithHint("Your own configuration signs commits (commit.gpgSign). See that the key can be used without a question here, or merge by hand: `%s`.", strings.Join(m.byHand(), " && "))
		}
		return "", failed("write the commit", err)
	}
	return id, nil
}
