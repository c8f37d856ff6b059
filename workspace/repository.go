package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// place is where in which repository a directory is.
type place struct {
	common string // common directory, links resolved
	gitDir string // of this checkout: common, or an admin directory
	tree   string // top of the checkout; "" in a bare repository
	ours   string // path of the workspace of ours that it is in
}

// repository is a repository as the host's git is shown it.
type repository struct {
	common   string
	view     string // git directory of ours: the repository's objects and references, our configuration
	format   string // sha1, sha256
	partial  bool   // objects were left out when it was cloned, and may be missing
	settings []setting
}

// name is what directories of the repository's workspaces are called.
func (r *repository) name() string {
	base := filepath.Base(r.common)
	if base == ".git" {
		base = filepath.Base(filepath.Dir(r.common))
	}
	base = strings.TrimSuffix(base, ".git")
	base = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '-'
	}, base)
	if len(base) > 40 {
		base = base[:40]
	}
	return base + "-" + hashOf(r.common)
}

func hashOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4])
}

// discover finds the repository that dir is in. A directory in a workspace of
// ours is placed by its record on disk, never by what an agent may have put
// into the tree.
func (w *Workspaces) discover(ctx context.Context, dir string) (place, error) {
	git, err := w.program(ctx)
	if err != nil {
		return place{}, err
	}
	if dir, err = entered(dir); err != nil {
		return place{}, err
	}
	tree := w.treeOf(dir)
	if state, err := filepath.EvalSymlinks(w.opts.StateDir); tree == "" && err == nil && strings.HasPrefix(dir+"/", state+"/") {
		return place{}, caisson.Errorf(caisson.CodeNoRepository, "%s is Caisson's own, where agents write", dir)
	}
	if tree != "" {
		return w.placeOfOurs(ctx, tree)
	}
	ask := whereabouts(ctx, git, dir)
	common, err := ask("--git-common-dir")
	if err != nil {
		return place{}, noRepository(dir, err)
	}
	p := place{}
	if p.common, err = filepath.EvalSymlinks(common); err != nil {
		return place{}, caisson.Errorf(caisson.CodeNoRepository, "the git directory of %s cannot be entered: %w", dir, err)
	}
	if p.gitDir, err = ask("--absolute-git-dir"); err != nil {
		return place{}, failed("find the git directory", err)
	}
	if p.gitDir, err = filepath.EvalSymlinks(p.gitDir); err != nil {
		return place{}, failed("find the git directory", err)
	}
	if p.gitDir != p.common && filepath.Dir(p.gitDir) != filepath.Join(p.common, "worktrees") {
		return place{}, caisson.Errorf(caisson.CodeRepositoryUnsupported, "%s says that its repository is %s, which has no such worktree", p.gitDir, p.common)
	}
	if tree, err := ask("--show-toplevel"); err == nil {
		p.tree = tree
	}
	return p, nil
}

// whereabouts asks git for paths, each on its own only where they cannot be told
// apart in one answer, because of newlines in them.
func whereabouts(ctx context.Context, git *program, dir string) func(what string) (string, error) {
	ask := func(what ...string) (string, error) {
		return git.line(ctx, invocation{dir: dir, person: true, args: append([]string{"rev-parse", "--path-format=absolute"}, what...), bound: 20 * time.Second})
	}
	all, err := ask("--git-common-dir", "--absolute-git-dir", "--show-toplevel") // the last has an answer in a tree only
	lines := strings.Split(all, "\n")
	known := err == nil && len(lines) == 3 || err != nil && len(lines) == 2
	return func(what string) (string, error) {
		switch {
		case !known:
			return ask(what)
		case what == "--git-common-dir":
			return lines[0], nil
		case what == "--absolute-git-dir":
			return lines[1], nil
		case what == "--show-toplevel" && err == nil:
			return lines[2], nil
		case what == "--show-toplevel":
			return "", err
		}
		return ask(what)
	}
}

// treeOf returns the workspace tree of ours that path is in, or "".
func (w *Workspaces) treeOf(path string) string {
	root, err := filepath.EvalSymlinks(filepath.Join(w.opts.StateDir, "workspaces"))
	if err != nil {
		return ""
	}
	rest, in := strings.CutPrefix(path, root+"/")
	if !in {
		return ""
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 2 {
		return ""
	}
	return filepath.Join(root, parts[0], parts[1])
}

// placeOfOurs places a workspace's tree by its record. Nothing in the tree, nor
// what that leads to, is asked: an agent may have written it.
func (w *Workspaces) placeOfOurs(ctx context.Context, tree string) (place, error) {
	all, err := w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{})
	if err != nil {
		return place{}, err
	}
	i := slices.IndexFunc(all, func(ws caisson.Workspace) bool { return ws.Path == tree })
	if i < 0 {
		return place{}, caisson.Errorf(caisson.CodeWorkspaceBindingLost, "%s is a workspace that is not on record", tree)
	}
	b := all[i].Binding
	if device, inode, err := directoryID(b.CommonDir); err != nil || device != b.Device || inode != b.Inode {
		return place{}, caisson.Errorf(caisson.CodeWorkspaceBindingLost, "the repository of %s is not where it was, or is another", tree)
	}
	gitDir := b.AdminDir
	if isClone(all[i]) {
		gitDir = w.outer(all[i].ID)
	}
	return place{common: b.CommonDir, gitDir: gitDir, tree: tree, ours: tree}, nil
}

// repository returns the repository with an up-to-date view. fresh reads the
// configuration anew, so that a later change by the person is followed.
func (w *Workspaces) repository(ctx context.Context, common string, fresh bool) (*repository, error) {
	git, err := w.program(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	repo := w.repos[common]
	w.mu.Unlock()
	if repo != nil && !fresh {
		return repo, nil
	}
	// Only listed, as data: no program that it names is run by this.
	out, err := git.run(ctx, invocation{gitDir: common, person: true, args: []string{"config", "--list", "-z", "--show-scope"}, bound: 20 * time.Second})
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeRepositoryUnsupported, "the repository's configuration cannot be read: %w", err)
	}
	repo = &repository{common: common, settings: parseSettings(out), format: "sha1"}
	if f := last(repo.settings, "extensions.objectformat"); f != "" {
		repo.format = f
	}
	if err := repo.supported(); err != nil {
		return nil, err
	}
	repo.view = filepath.Join(w.opts.StateDir, "views", hashOf(common)+"-"+hashOf(w.opts.StateDir+common))
	if err := repo.writeView(); err != nil {
		return nil, failed("make the view of the repository", err)
	}
	w.mu.Lock()
	w.repos[common] = repo
	w.mu.Unlock()
	return repo, nil
}

// supported refuses repositories of a form that would not work, with the reason.
func (r *repository) supported() error {
	refuse := func(why, hint string) error {
		return caisson.Errorf(caisson.CodeRepositoryUnsupported, "this repository %s", why).WithHint("%s", hint)
	}
	if r.format != "sha1" && r.format != "sha256" {
		return refuse("names objects by "+r.format+", which is not known here", "Use sha1 or sha256.")
	}
	for _, s := range r.settings {
		if s.own {
			continue
		}
		ext, isExt := strings.CutPrefix(s.key, "extensions.")
		switch {
		case isExt && ext == "partialclone", strings.HasPrefix(s.key, "remote.") && strings.HasSuffix(s.key, ".promisor") && truth(s.value):
			r.partial = true
		case isExt && ext == "refstorage" && s.value != "files":
			return refuse("keeps its references as "+printable(s.value), "`git refs migrate --ref-format=files` changes that.")
		case isExt && !slices.Contains([]string{"objectformat", "refstorage", "worktreeconfig", "noop", "preciousobjects", "relativeworktrees"}, ext):
			return refuse("has the extension "+printable(ext)+", which is not known here", "")
		}
	}
	return nil
}

// writeView makes the git directory that the host's git is shown. Objects,
// references and their logs are the repository's own through links; the
// configuration is ours, so nothing that the repository configures is ever in
// force.
func (r *repository) writeView() error {
	if err := os.MkdirAll(r.view, 0o700); err != nil {
		return err
	}
	names := []string{"objects", "refs", "logs", "packed-refs", "shallow"}
	if info, err := os.Stat(filepath.Join(r.common, "lfs")); err == nil && info.IsDir() {
		names = append(names, "lfs") // for the person's own filter
	}
	for _, name := range names {
		link, to := filepath.Join(r.view, name), filepath.Join(r.common, name)
		err := os.Symlink(to, link)
		if errors.Is(err, fs.ErrExist) {
			var now string
			if now, err = os.Readlink(link); err == nil && now != to {
				err = fmt.Errorf("%s leads to %s", link, now)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(r.view, "info"), 0o700); err != nil {
		return err
	}
	var b bytes.Buffer
	version, objectFormat := "0", []setting(nil)
	if r.format != "sha1" {
		version, objectFormat = "1", []setting{{key: "extensions.objectformat", value: r.format}}
	}
	writeSettings(&b, []setting{{key: "core.repositoryformatversion", value: version}, {key: "core.bare", value: "false"}})
	writeSettings(&b, objectFormat)
	writeSettings(&b, slices.DeleteFunc(slices.Clone(r.settings), func(s setting) bool { return !forHost(s) }))
	// A log is kept where the repository keeps logs; its directory is not made.
	if info, err := os.Stat(filepath.Join(r.common, "logs")); err != nil || !info.IsDir() {
		writeSettings(&b, []setting{{key: "core.logallrefupdates", value: "false"}})
	} else if last(r.settings, "core.logallrefupdates") == "" {
		writeSettings(&b, []setting{{key: "core.logallrefupdates", value: "true"}})
	}
	if err := writeFile(filepath.Join(r.view, "config"), b.Bytes(), 0o600); err != nil {
		return err
	}
	attributes, err := readInside(r.common, "info/attributes", 1<<20)
	if err != nil {
		attributes = nil
	}
	if err := writeFile(filepath.Join(r.view, "info", "attributes"), attributes, 0o600); err != nil {
		return err
	}
	// It names no branch, so that no reference moves what a person checked out.
	return writeFile(filepath.Join(r.view, "HEAD"), []byte("ref: "+noRef+"\n"), 0o600)
}

// shallow returns the commits at which the history ends, as git notes them; nil
// where all of it is there.
func (r *repository) shallow() []byte {
	raw, err := readInside(r.common, "shallow", 16<<20)
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		if id := strings.TrimSpace(line); isObjectID(id) {
			b.WriteString(id + "\n")
		}
	}
	return b.Bytes()
}

// in returns an invocation on the repository's view.
func (r *repository) in(args ...string) invocation {
	return invocation{gitDir: r.view, args: args}
}

// at returns an invocation in a checkout: HEAD and what else belongs to one is
// the checkout's, all the rest the view's.
func (r *repository) at(gitDir string, args ...string) invocation {
	return invocation{gitDir: gitDir, common: r.view, args: args}
}

// writeFile replaces a file atomically, unless it is as it should be.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if now, err := readInside(filepath.Dir(path), filepath.Base(path), int64(len(data))); err == nil && bytes.Equal(now, data) {
		return nil
	}
	return atomicfile.Write(path, data, mode)
}

// readInside reads a regular file of at most limit bytes below dir. A link
// that leads out of dir, a pipe or a device is an error.
func readInside(dir, name string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readRegular(root, name, limit)
}

func readRegular(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, errors.New("not a regular file of a usable size")
	}
	data := make([]byte, info.Size())
	n, err := f.ReadAt(data, 0)
	if n < len(data) && err != nil {
		return nil, err
	}
	return data, nil
}

// pointer reads a one-line file that names a path, not following a link.
func pointer(path, prefix string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 8192 {
		return "", errors.New("not a small regular file")
	}
	fd, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer fd.Close()
	raw := make([]byte, info.Size())
	if _, err := fd.ReadAt(raw, 0); err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(string(raw), prefix)
	if !ok {
		return "", errors.New("not a pointer")
	}
	return strings.TrimSuffix(text, "\n"), nil
}
