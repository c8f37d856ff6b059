package workspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

const (
	// maxHook bounds one hook that is copied; hooks are scripts.
	maxHook = 8 << 20
	// maxAlternates bounds the object directories that are borrowed.
	maxAlternates = 16
)

// private is the directory that holds what a workspace has beside its tree:
// git/, home/ and modules/, which a box may write, and cover and state, which it
// may not, and of a clone outer/ and tree.
func (w *Workspaces) private(id caisson.WorkspaceID) string {
	return filepath.Join(w.opts.StateDir, "shadows", string(id))
}

// makeShadow makes the git directory that is shown inside.
func (c *creation) makeShadow(ctx context.Context) error {
	private := c.w.private(c.ws.ID)
	c.undo = append(c.undo, func() { _ = os.RemoveAll(private) })
	dir, err := private, os.MkdirAll(private, 0o700)
	if err == nil {
		dir, err = filepath.EvalSymlinks(private) // nothing that goes through a link is lent to a box
	}
	if err != nil {
		return unmade("make the shadow", err)
	}
	c.ws.Shadow, c.ws.Cover, c.ws.Home = filepath.Join(dir, "git"), filepath.Join(dir, "cover"), filepath.Join(dir, "home")
	if isClone(c.ws) {
		c.ws.Shadow, c.ws.Cover = filepath.Join(c.ws.Path, ".git"), ""
	}
	at := func(name string) string {
		if rest, is := strings.CutPrefix(name, "git/"); is {
			return filepath.Join(c.ws.Shadow, rest)
		}
		return filepath.Join(dir, name)
	}
	for _, sub := range []string{"git/objects/info", "git/objects/pack", "git/refs/heads", "git/refs/tags", "git/info", "git/hooks", "git/logs", "home"} {
		if err := os.MkdirAll(at(sub), 0o700); err != nil {
			return failed("make the shadow", err)
		}
	}
	objects, err := objectDirs(c.repo.common)
	if err != nil {
		return err
	}
	c.ws.Objects = append(slices.Clone(objects), lfsObjects(c.repo.common)...)
	b := &c.ws.Binding
	if b.ObjectsDevice, b.ObjectsInode, err = directoryID(objects[0]); err != nil {
		return failed("look at the repository's objects", err)
	}
	if b.ShadowDevice, b.ShadowInode, err = directoryID(c.ws.Shadow); err != nil {
		return failed("look at the shadow", err)
	}
	refs := map[string]string{"refs/heads/" + c.ws.Branch: c.ws.Base, baseRef: c.ws.Base}
	if c.ws.BaseRef != "" {
		if refs["refs/heads/"+c.ws.BaseRef], err = c.baseTip(ctx); err != nil {
			return failed("look at branch "+c.ws.BaseRef, err)
		}
	}
	var packed bytes.Buffer
	packed.WriteString("# pack-refs with: sorted\n")
	packed.Write(listRefs(refs))
	for _, file := range []struct {
		name string
		data []byte
	}{
		{"git/HEAD", []byte("ref: refs/heads/" + c.ws.Branch + "\n")},
		{"git/packed-refs", packed.Bytes()},
		{"git/objects/info/alternates", []byte(strings.Join(objects, "\n") + "\n")},
		{"git/index", c.index},
		{"git/config", c.shadowConfig()},
		{"git/shallow", c.repo.shallow()},
		{"git/" + lfsName, []byte(lfsScript)},
		{"git/info/exclude", c.excludesOf(c.repo)},
		{"git/info/attributes", attributesOf(c.repo)},
		{"cover", []byte("gitdir: " + c.ws.Shadow + "\n")},
	} {
		if file.data == nil || file.name == "cover" && c.ws.Cover == "" {
			continue
		}
		if err := c.write(at(file.name), file.data, 0o644); err != nil {
			return failed("make the shadow", err)
		}
	}
	if err := copyHooks(c.repo.common, c.ws.Shadow); err != nil {
		return failed("copy the hooks", err)
	}
	if err := c.makeModules(ctx); err != nil {
		return err
	}
	seen, err := json.Marshal(state{Refs: listRefs(refs), Tip: c.ws.Base, Snapshot: taken{c.ws.Base, c.checkedOut.tree, c.ws.Base}})
	if err != nil {
		return err
	}
	if err := c.write(at("state"), seen, 0o600); err != nil {
		return failed("note what was seen", err)
	}
	return nil
}

// baseTip returns where the branch is that the base was named by; the base itself
// stands for one that has gone, or leads to no commit.
func (c *creation) baseTip(ctx context.Context) (string, error) {
	if c.branches[c.ws.BaseRef] == c.ws.Base {
		return c.ws.Base, nil
	}
	tip, err := c.w.branchTip(ctx, c.repo, c.ws.BaseRef)
	return cmp.Or(tip, c.ws.Base), err
}

// shadowConfig is the configuration inside.
func (c *creation) shadowConfig() []byte {
	b := bytes.NewBuffer(c.shadowConfigOf(c.repo, c.ws.Shadow))
	writeSettings(b, c.moduleSettings())
	return b.Bytes()
}

// shadowConfigOf is the configuration of a repository's git directory inside: the
// person's name and address, and of the rest what has a meaning there and holds
// no secret.
func (c *creation) shadowConfigOf(repo *repository, shadow string) []byte {
	var b bytes.Buffer
	version := "0"
	if repo.format != "sha1" || repo.partial {
		version = "1"
	}
	writeSettings(&b, []setting{
		{key: "core.repositoryformatversion", value: version},
		{key: "core.bare", value: "false"},
		{key: "core.logallrefupdates", value: "true"},
		{key: "gc.auto", value: "0"},
	})
	if repo.format != "sha1" {
		writeSettings(&b, []setting{{key: "extensions.objectformat", value: repo.format}})
	}
	if repo.partial { // git inside takes objects that were never fetched for that; there is nobody to ask for them
		writeSettings(&b, []setting{{key: "extensions.partialclone", value: "borrowed"}, {key: "remote.borrowed.promisor", value: "true"}})
	}
	writeSettings(&b, lfsInside(slices.DeleteFunc(slices.Clone(repo.settings), func(s setting) bool { return !forBox(s) }), shadow))
	return b.Bytes()
}

// excludesOf joins the repository's own ignore file and the person's. Where the
// person's is, is asked of the person's configuration only: a repository could
// name any file of the host.
func (c *creation) excludesOf(repo *repository) []byte {
	own, _ := readInside(repo.common, "info/exclude", 1<<20)
	where := ""
	for _, s := range repo.settings {
		if s.own && s.key == "core.excludesfile" {
			where = s.value
		}
	}
	home := c.w.env("HOME")
	switch {
	case strings.HasPrefix(where, "~/") && home != "":
		where = filepath.Join(home, where[2:])
	case where == "" && c.w.env("XDG_CONFIG_HOME") != "":
		where = filepath.Join(c.w.env("XDG_CONFIG_HOME"), "git", "ignore")
	case where == "" && home != "":
		where = filepath.Join(home, ".config", "git", "ignore")
	}
	if info, err := os.Stat(where); err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return own
	}
	theirs, err := os.ReadFile(where)
	if err != nil {
		return own
	}
	return slices.Concat(own, []byte("\n"), theirs)
}

// attributesOf are the repository's own, beside those in its tree.
func attributesOf(repo *repository) []byte {
	own, _ := readInside(repo.common, "info/attributes", 1<<20)
	return own
}

// env returns a variable of the person's environment.
func (w *Workspaces) env(key string) string {
	for _, kv := range slices.Backward(w.opts.Env) {
		if value, is := strings.CutPrefix(kv, key+"="); is {
			return value
		}
	}
	return ""
}

// copyHooks copies the repository's hooks, which run inside only. A hooks
// directory, or a hook, that is a link out of the git directory or cannot be
// read is left out: it could lead to any file of the host.
func copyHooks(common, shadow string) error {
	root, err := os.OpenRoot(common)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), "hooks")
	if err != nil {
		return nil //nolint:nilerr // none, or not to be followed
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasSuffix(name, ".sample") {
			continue
		}
		info, err := root.Stat("hooks/" + name)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		data, err := readRegular(root, "hooks/"+name, maxHook)
		if err != nil {
			continue
		}
		if err := writeFile(filepath.Join(shadow, "hooks", name), data, 0o755); err != nil {
			return err
		}
	}
	return nil
}

var objectDirEntry = regexp.MustCompile(`^([0-9a-f]{2}|pack|info|tmp_obj_.*|incoming-.*|tmp_objdir-.*)$`)

// objectDirs returns the object directories of a repository: its own and those
// it borrows from. They are lent to a box, so one that holds anything but
// objects is refused: a repository could name any directory of the host.
func objectDirs(common string) ([]string, error) {
	first, err := filepath.EvalSymlinks(filepath.Join(common, "objects"))
	if err != nil {
		return nil, failed("find the repository's objects", err)
	}
	if first != filepath.Join(common, "objects") && !holdsObjects(first) {
		return nil, caisson.Errorf(caisson.CodeRepositoryUnsupported, "this repository keeps its objects in %s, which is no directory of objects", printable(first))
	}
	dirs := []string{first}
	for i := 0; i < len(dirs); i++ {
		raw, err := readInside(dirs[i], "info/alternates", 1<<16)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, caisson.Errorf(caisson.CodeRepositoryUnsupported, "the list of directories that the repository borrows objects from cannot be read: %w", err)
		}
		for line := range strings.SplitSeq(string(raw), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(dirs[i], line)
			}
			dir, err := filepath.EvalSymlinks(line)
			if err != nil {
				continue // git itself goes on without one that is gone
			}
			if !holdsObjects(dir) || len(dirs) > maxAlternates {
				return nil, caisson.Errorf(caisson.CodeRepositoryUnsupported, "this repository borrows objects from %s, which is no directory of objects", printable(line)).WithHint("`git repack -a -d` and removing objects/info/alternates makes it stand alone.")
			}
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, dir := range dirs {
		if strings.ContainsAny(dir, "\n\"") {
			return nil, caisson.Errorf(caisson.CodeRepositoryUnsupported, "the path of the repository's objects holds a newline or a quote")
		}
	}
	return dirs, nil
}

func holdsObjects(dir string) bool {
	if filepath.Base(dir) != "objects" {
		return false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !objectDirEntry.MatchString(e.Name()) })
}

// state is what was last seen in a shadow. It is the host's own note; losing it
// costs a look at everything, nothing else.
type state struct {
	Refs     []byte `json:"refs"`               // as of listRefs
	Tip      string `json:"tip"`                // where the branch was last put
	Diverged string `json:"diverged,omitempty"` // reference that commits go to since the branch was moved outside
	Snapshot taken  `json:"snapshot"`           // the last one
	// Index is the commit that the outer index is of, where it could not be
	// brought along to Tip.
	Index string `json:"index,omitempty"`
	Past  past   `json:"past"` // of the shadow's logs
	// Modules are the git directories of submodules inside, by name.
	Modules map[string]moduleState `json:"modules,omitempty"`
}

// past is how far the logs of a git directory inside were read.
type past struct {
	Mark string             `json:"mark,omitempty"`
	Logs map[string]logSeen `json:"logs,omitempty"`
}

// taken is a snapshot: the commit that was checked out inside, the tree as it
// was, and the commit that holds it.
type taken struct {
	Head   string `json:"head"`
	Tree   string `json:"tree"`
	Commit string `json:"commit"`
}

func (w *Workspaces) readState(ws caisson.Workspace) (state, error) {
	raw, err := os.ReadFile(filepath.Join(w.private(ws.ID), "state"))
	if errors.Is(err, fs.ErrNotExist) {
		return state{Tip: ws.Base}, nil
	}
	var s state
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

func (w *Workspaces) writeState(ws caisson.Workspace, s state) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(w.private(ws.ID), "state"), raw, 0o600); err != nil {
		return failed("note what was seen", err)
	}
	return nil
}

// lock keeps two processes from importing one workspace at once.
func (w *Workspaces) lock(ctx context.Context, ws caisson.Workspace) (func(), error) {
	held, err := lockfile.Acquire(ctx, filepath.Join(w.private(ws.ID), "lock"), nil)
	if err != nil {
		return nil, failed("wait for another import of "+ws.Name, err)
	}
	return func() { _ = held.Close() }, nil
}

// listRefs writes references in the order and form of packed-refs.
func listRefs(refs map[string]string) []byte {
	names := make([]string, 0, len(refs))
	for name := range refs {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	for _, name := range names {
		b.WriteString(refs[name] + " " + name + "\n")
	}
	return b.Bytes()
}

// parseRefs reads what listRefs wrote.
func parseRefs(raw []byte) map[string]string {
	refs := map[string]string{}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if id, name, ok := strings.Cut(line, " "); ok {
			refs[name] = id
		}
	}
	return refs
}
