package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson"
)

const (
	// maxRefs bounds what is looked at in a shadow: more than any agent has
	// use for, and little enough to be looked at after every command.
	maxRefs       = 2_000
	maxRefDepth   = 32
	maxPackedRefs = 8 << 20
	// absent stands for a reference that is not there, in updates.
	absent = "absent"
)

// refUpdate moves one reference by compare-and-set: old is an object id,
// absent, or "" where any value may be replaced.
type refUpdate struct{ name, to, old string }

// keptWas begins, below a prefix of ours, the names of what a reference led to
// before it was moved.
const keptWas = "was/"

// keepFirst brings updates into the order in which git, which may be killed,
// writes them one after the other: what is left behind is kept before it is left.
func keepFirst(updates []refUpdate) []refUpdate {
	first := func(u refUpdate) int {
		if strings.HasPrefix(u.name, ownRefs) && strings.Contains(u.name, "/"+keptWas) {
			return 0
		}
		return 1
	}
	updates = slices.Clone(updates)
	slices.SortStableFunc(updates, func(a, b refUpdate) int { return cmp.Compare(first(a), first(b)) })
	return updates
}

// updateRefs moves references in one transaction: all or none, unless git is
// killed while it writes them.
func (w *Workspaces) updateRefs(ctx context.Context, repo *repository, message string, updates ...refUpdate) error {
	if len(updates) == 0 {
		return nil
	}
	zero := strings.Repeat("0", 40)
	if repo.format == "sha256" {
		zero = strings.Repeat("0", 64)
	}
	var b bytes.Buffer
	for _, u := range keepFirst(updates) {
		old := u.old
		if old == absent {
			old = zero
		}
		if u.to == absent {
			b.WriteString("delete " + u.name + "\x00" + old + "\x00")
		} else {
			b.WriteString("update " + u.name + "\x00" + u.to + "\x00" + old + "\x00")
		}
	}
	if err := repo.staysInside(updates); err != nil {
		return err
	}
	args := []string{"update-ref", "--stdin", "-z"}
	if message != "" {
		args = append(args, "-m", message)
	}
	inv := repo.in(args...)
	inv.stdin = &b
	return w.writeRefs(ctx, repo, inv, updates)
}

// staysInside refuses to write where a repository has put a link out of it in the
// place of a reference, of its log, or of a directory of them: git would write
// through it, into any file of the person.
func (r *repository) staysInside(updates []refUpdate) error {
	looked := map[string]bool{}
	for _, name := range append([]string{"packed-refs"}, loosePaths(updates)...) {
		path := r.common
		for part := range strings.SplitSeq(name, "/") {
			if path = filepath.Join(path, part); looked[path] {
				continue
			}
			looked[path] = true
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				break // the rest is made there, or git says what is in the way
			}
			if err == nil && info.Mode()&fs.ModeSymlink == 0 {
				continue
			}
			if to, err := filepath.EvalSymlinks(path); err != nil || !strings.HasPrefix(to, r.common+"/") {
				return caisson.Errorf(caisson.CodeRepositoryUnsupported, "%s of this repository is a link that leads out of it", printable(strings.TrimPrefix(path, r.common+"/"))).
					WithHint("Put what it leads to in its place.")
			}
		}
	}
	return nil
}

// loosePaths are where git writes for updates, below the repository.
func loosePaths(updates []refUpdate) []string {
	var paths []string
	for _, u := range updates {
		paths = append(paths, u.name, "logs/"+u.name)
	}
	return paths
}

// branchTip returns the commit of a branch; "" where there is none.
func (w *Workspaces) branchTip(ctx context.Context, repo *repository, branch string) (string, error) {
	tip, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", "refs/heads/"+branch+"^{commit}"))
	if statusOf(err) == 1 {
		return "", nil
	}
	return tip, err
}

// descends tells whether old is an ancestor of commit, or the same.
func (w *Workspaces) descends(ctx context.Context, repo *repository, commit, old string) (bool, error) {
	if commit == old {
		return true, nil
	}
	_, err := w.git.run(ctx, repo.in("merge-base", "--is-ancestor", old, commit))
	if statusOf(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

// isObjectID tells whether s is a full object name.
func isObjectID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
}

// isRefName tells whether git takes s for a reference's name. Any bytes may
// come from a shadow; one bad name would fail a whole transaction.
func isRefName(s string) bool {
	if !strings.HasPrefix(s, "refs/") || len(s) > 512 || strings.HasSuffix(s, "/") || strings.HasSuffix(s, ".") ||
		strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.Contains(s, "//") || strings.ContainsAny(s, " ~^:?*[\\\x7f") {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 {
			return false
		}
	}
	for part := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// shadowRefs are the references of a shadow, read as data.
type shadowRefs struct {
	head string            // branch that is checked out inside, short; "" when detached
	refs map[string]string // full name, or HEAD when detached → object id
}

// readShadow reads the references of a shadow. Everything there may have been
// written to deceive: nothing is followed out of it, sizes and counts are
// bounded, what is no reference is left out.
func readShadow(ws caisson.Workspace) (shadowRefs, error) {
	root, err := boundShadow(ws)
	if err != nil {
		return shadowRefs{}, caisson.Errorf(caisson.CodeImportHeld, "the git directory inside cannot be read: %w", err)
	}
	defer root.Close()
	return readRefs(root)
}

// readRefs is readShadow of any git directory.
func readRefs(root *os.Root) (shadowRefs, error) {
	found := shadowRefs{refs: map[string]string{}}
	packed, err := readRegular(root, "packed-refs", maxPackedRefs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return found, caisson.Errorf(caisson.CodeImportHeld, "the packed references inside cannot be read: %w", err)
	}
	for line := range bytes.SplitSeq(packed, []byte{'\n'}) {
		id, name, ok := strings.Cut(string(line), " ")
		if ok && isObjectID(id) && isRefName(name) {
			found.refs[name] = id
		}
	}
	seen := 0
	if err := readLoose(root, "refs", 0, &seen, found.refs); err != nil {
		return found, err
	}
	if len(found.refs) > maxRefs {
		return found, tooMany()
	}
	head, err := readRegular(root, "HEAD", 4096)
	if err != nil {
		return found, nil //nolint:nilerr // without a head there are still branches
	}
	text := strings.TrimSuffix(string(head), "\n")
	if branch, is := strings.CutPrefix(text, "ref: refs/heads/"); is {
		found.head = branch
	} else if isObjectID(text) {
		found.refs["HEAD"] = text
	}
	return found, nil
}

func tooMany() error {
	return caisson.Errorf(caisson.CodeImportHeld, "there are more than %d references inside", maxRefs)
}

// readLoose reads the loose references below dir into refs.
func readLoose(root *os.Root, dir string, depth int, seen *int, refs map[string]string) error {
	if depth > maxRefDepth {
		return nil
	}
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil //nolint:nilerr // went away, or never a directory
	}
	entries, err := f.ReadDir(maxRefs + 1)
	_ = f.Close()
	if *seen += len(entries); *seen > 2*maxRefs {
		return tooMany()
	}
	if err != nil {
		return nil //nolint:nilerr // empty
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		switch {
		case entry.IsDir():
			if err := readLoose(root, name, depth+1, seen, refs); err != nil {
				return err
			}
		case entry.Type().IsRegular() && isRefName(name):
			raw, err := readRegular(root, name, 1024)
			if id := strings.TrimSuffix(string(raw), "\n"); err == nil && isObjectID(id) {
				refs[name] = id
			}
		}
	}
	return nil
}

// checkout is a place where a branch is checked out.
type checkout struct {
	gitDir string // the common directory, or an admin directory
	tree   string // "" where it cannot be told
}

func (c *checkout) describe() string {
	if c.tree != "" {
		return c.tree
	}
	return c.gitDir
}

// checkedOut returns where a branch is checked out, or being rebased; nil where
// it is not. The repository's own records are read; no tree is looked at.
func (r *repository) checkedOut(branch string) *checkout {
	return r.checkedOutBeside(branch, "")
}

// checkedOutBeside is checkedOut without the checkout whose git directory is
// given.
func (r *repository) checkedOutBeside(branch, but string) *checkout {
	common := r.common
	uses := func(dir string) bool {
		if head, err := pointer(filepath.Join(dir, "HEAD"), "ref: refs/heads/"); err == nil && head == branch {
			return true
		}
		for _, rebase := range []string{"rebase-merge", "rebase-apply"} {
			if head, err := pointer(filepath.Join(dir, rebase, "head-name"), "refs/heads/"); err == nil && head == branch {
				return true
			}
		}
		return false
	}
	admins, _ := os.ReadDir(filepath.Join(common, "worktrees"))
	for _, entry := range admins {
		admin := filepath.Join(common, "worktrees", entry.Name())
		if admin == but || !uses(admin) {
			continue
		}
		tree := ""
		if back, err := pointer(filepath.Join(admin, "gitdir"), ""); err == nil {
			if !filepath.IsAbs(back) {
				back = filepath.Join(admin, back)
			}
			tree = filepath.Dir(back)
		}
		return &checkout{admin, tree}
	}
	if truth(last(r.settings, "core.bare")) || !uses(common) {
		return nil
	}
	if filepath.Base(common) == ".git" && last(r.settings, "core.worktree") == "" {
		return &checkout{common, filepath.Dir(common)}
	}
	return &checkout{gitDir: common}
}

// splitZ splits output that ends each item with NUL.
func splitZ(out []byte) []string {
	text := strings.TrimSuffix(string(out), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}
