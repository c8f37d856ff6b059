package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

const (
	// maxModules bounds the submodules of one workspace: each has a tree, and
	// each that is not in another one is a mount.
	maxModules = 128
	// maxModuleDepth bounds submodules in submodules.
	maxModuleDepth = 4
)

// moduleLink is a submodule as a tree records it.
type moduleLink struct{ path, commit string }

// gitlinks lists the submodules that the tree of a commit records.
func (w *Workspaces) gitlinks(ctx context.Context, repo *repository, commit string) ([]moduleLink, error) {
	out, err := w.git.run(ctx, repo.in("ls-tree", "-r", "-z", "--full-tree", commit))
	if err != nil {
		return nil, failed("read the tree of the base", err)
	}
	var links []moduleLink
	for _, entry := range splitZ(out) {
		meta, at, _ := strings.Cut(entry, "\t")
		if fields := strings.Fields(meta); len(fields) == 3 && fields[0] == gitlink {
			links = append(links, moduleLink{at, fields[2]})
		}
	}
	return links, nil
}

// moduleNames reads what names a commit's submodules have, by path. A list that
// git takes for an attack is an error: no commit with it would be imported.
func (w *Workspaces) moduleNames(ctx context.Context, repo *repository, commit string) (map[string]string, error) {
	names := map[string]string{}
	out, err := w.git.run(ctx, repo.in("config", "--no-includes", "--blob", commit+":.gitmodules", "--list", "-z"))
	if err != nil {
		return names, nil //nolint:nilerr // there is none, or it is not to be read
	}
	for _, entry := range splitZ(out) {
		key, value, _ := strings.Cut(entry, "\n")
		rest, is := strings.CutPrefix(key, "submodule.")
		dot := strings.LastIndexByte(rest, '.')
		if !is || dot < 0 {
			continue
		}
		name, what := rest[:dot], rest[dot+1:]
		climbs := slices.Contains(strings.FieldsFunc(name, func(c rune) bool { return c == '/' || c == '\\' }), "..")
		if climbs || (what == "url" || what == "path") && strings.HasPrefix(value, "-") {
			return nil, caisson.Errorf(caisson.CodeRepositoryUnsupported, ".gitmodules has a submodule %s, which git takes for an attack: its name, path or address is one that makes git write or run something elsewhere", printable(name)).
				WithHint("Remove it from .gitmodules, or start from a base without it.")
		}
		if what == "path" {
			names[value] = name
		}
	}
	return names, nil
}

// isModuleName tells whether git takes a name for that of a submodule, whose
// git directory is called so.
func isModuleName(name string) bool {
	return name != "" && len(name) < 512 && utf8.ValidString(name) && !strings.ContainsAny(name, "\n\"\x00\\") && !path.IsAbs(name) &&
		path.Clean(name) == name && name != "." && !slices.Contains(strings.Split(name, "/"), "..")
}

// module is a submodule being made.
type module struct {
	caisson.Submodule
	repo *repository // nil where it stays empty
	at   string      // of its tree, inside
}

// findModules looks for what of the base's submodules the repository has.
func (c *creation) findModules(ctx context.Context) error {
	links := c.checkedOut.links
	if len(links) == 0 {
		return nil
	}
	homes := []string{filepath.Join(c.at.gitDir, "modules"), filepath.Join(c.repo.common, "modules")}
	return c.findModulesOf(ctx, c.repo, c.ws.Base, links, homes, nil, 0)
}

func (c *creation) findModulesOf(ctx context.Context, repo *repository, commit string, links []moduleLink, homes []string, in *module, depth int) error {
	if len(c.modules)+len(links) > maxModules {
		return caisson.Errorf(caisson.CodeRepositoryUnsupported, "the base has more than %d submodules", maxModules).
			WithHint("Start from a base with fewer of them.")
	}
	names, err := c.w.moduleNames(ctx, repo, commit)
	if err != nil {
		return err
	}
	for _, link := range links {
		if !utf8.ValidString(link.path) || strings.ContainsAny(link.path, "\n\"") {
			return caisson.Errorf(caisson.CodeRepositoryUnsupported, "the path of the submodule %s is not one that can be recorded", printable(link.path))
		}
		m := &module{Submodule: caisson.Submodule{Name: names[link.path], Path: link.path, Commit: link.commit, Nested: in != nil}}
		if in != nil {
			m.Path = in.Path + "/" + link.path
		}
		c.modules = append(c.modules, m)
		dir := ""
		m.repo, dir, m.Empty = c.w.moduleRepository(ctx, c.repo.format, m.Submodule, homes)
		if m.repo == nil {
			continue
		}
		m.Repository = dir
		m.GitDir = "modules/" + m.Name
		if in != nil {
			m.GitDir = in.GitDir + "/" + m.GitDir
		}
		inner, err := c.w.gitlinks(ctx, m.repo, m.Commit)
		if err != nil || len(inner) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		if depth >= maxModuleDepth {
			return caisson.Errorf(caisson.CodeRepositoryUnsupported, "the submodule %s has submodules in more than %d levels", printable(m.Path), maxModuleDepth)
		}
		if err := c.findModulesOf(ctx, m.repo, m.Commit, inner, []string{filepath.Join(dir, "modules")}, m, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// moduleRepository finds the repository of a submodule below homes and checks
// that it has the commit whole; else it tells why not. No network is used.
func (w *Workspaces) moduleRepository(ctx context.Context, format string, m caisson.Submodule, homes []string) (repo *repository, dir, why string) {
	if m.Name == "" {
		return nil, "", ".gitmodules does not name it"
	}
	if !isModuleName(m.Name) {
		return nil, "", ".gitmodules gives it a name that cannot be used"
	}
	for _, home := range homes {
		found, err := filepath.EvalSymlinks(filepath.Join(home, m.Name))
		if err == nil && (found == home || !strings.HasPrefix(found, home+"/")) {
			return nil, "", "its git directory is a link to elsewhere"
		}
		if err == nil && isGitDir(found) {
			dir = found
			break
		}
	}
	if dir == "" {
		return nil, "", "the repository has not fetched it (`git submodule update --init` does)"
	}
	repo, err := w.repository(ctx, dir, true)
	if err == nil && repo.format != format {
		err = errors.New("it names objects in another way")
	}
	if err == nil {
		_, err = objectDirs(dir)
	}
	if err != nil {
		return nil, "", "its repository cannot be used: " + err.Error()
	}
	missing, err := w.missing(ctx, repo, m.Commit)
	if err != nil || missing > 0 {
		return nil, "", "the repository has not fetched its commit " + m.Commit[:12] + " (`git submodule update` does)"
	}
	return repo, dir, ""
}

// isGitDir tells whether dir looks like a repository's git directory.
func isGitDir(dir string) bool {
	for name, isDir := range map[string]bool{"HEAD": false, "objects": true, "refs": true} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.IsDir() != isDir {
			return false
		}
	}
	_, err := os.Lstat(filepath.Join(dir, "commondir"))
	return errors.Is(err, fs.ErrNotExist)
}

// makeModules makes trees and git directories of submodules. The trees are not
// below the workspace's: inside they are shown in it, and outside no git walks
// into them.
func (c *creation) makeModules(ctx context.Context) error {
	trees := filepath.Join(c.w.private(c.ws.ID), "modules")
	byPath := map[string]*module{}
	for i, m := range c.modules {
		byPath[m.Path], m.at = m, filepath.Join(c.ws.Path, m.Path)
		m.Tree = filepath.Join(trees, fmt.Sprint(i))
		if m.Nested {
			for outer := path.Dir(m.Path); ; outer = path.Dir(outer) {
				if in := byPath[outer]; in != nil {
					if err := c.placeNested(m, in, strings.TrimPrefix(m.Path, outer+"/")); err != nil {
						return err
					}
					break
				}
			}
		}
		if !m.Nested {
			if err := os.MkdirAll(m.Tree, 0o755); err != nil {
				return failed("make the tree of submodule "+printable(m.Path), err)
			}
		}
		if m.repo != nil {
			m.GitDir = filepath.Join(c.ws.Shadow, m.GitDir)
			if err := c.makeModule(ctx, m); err != nil {
				return err
			}
		}
		c.ws.Submodules = append(c.ws.Submodules, m.Submodule)
	}
	return nil
}

// placeNested places the tree of a submodule in that of the one that it is in,
// whose checkout has made a directory for it.
func (c *creation) placeNested(m, in *module, at string) error {
	root, err := os.OpenRoot(in.Tree)
	if err != nil {
		return failed("look into the submodule "+printable(in.Path), err)
	}
	defer root.Close()
	m.Tree = filepath.Join(in.Tree, at)
	if !isRealDir(root, at) {
		return caisson.Errorf(caisson.CodeRepositoryUnsupported, "the submodule %s has something else in its place", printable(m.Path))
	}
	return nil
}

// makeModule makes one submodule that the repository has.
func (c *creation) makeModule(ctx context.Context, m *module) error {
	objects, err := objectDirs(m.Repository)
	if err != nil {
		return err
	}
	if err := c.keepBase(ctx, m); err != nil {
		return err
	}
	for _, sub := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks", "logs"} {
		if err := os.MkdirAll(filepath.Join(m.GitDir, sub), 0o700); err != nil {
			return failed("make the submodule "+printable(m.Path), err)
		}
	}
	if err := c.checkOutModule(ctx, m); err != nil {
		return err
	}
	if err := c.fillModule(m, objects); err != nil {
		return failed("make the submodule "+printable(m.Path), err)
	}
	for _, dir := range append(objects, lfsObjects(m.Repository)...) {
		if !slices.Contains(c.ws.Objects, dir) {
			c.ws.Objects = append(c.ws.Objects, dir)
		}
	}
	return nil
}

// keepBase keeps the commit that the base records of a submodule.
func (c *creation) keepBase(ctx context.Context, m *module) error {
	kept := pin(c.ws.ID, "base")
	if err := c.w.updateRefs(ctx, m.repo, "", refUpdate{kept, m.Commit, ""}); err != nil { // of another path there may be one
		return failed("keep the commit of submodule "+printable(m.Path), err)
	}
	c.undo = append(c.undo, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = c.w.updateRefs(ctx, m.repo, "", refUpdate{kept, absent, m.Commit})
	})
	return nil
}

// checkOutModule fills the tree of a submodule.
func (c *creation) checkOutModule(ctx context.Context, m *module) error {
	inv := m.repo.in("read-tree", "-m", "-u", m.Commit)
	inv.index, inv.tree, inv.dir = filepath.Join(m.GitDir, "index"), m.Tree, m.Tree
	inv.env = lfsEnv()
	if _, err := c.git.run(ctx, inv); err != nil {
		if full(m.Tree) {
			return caisson.Errorf(caisson.CodeDiskFull, "there is no room for the submodule %s: %w", printable(m.Path), err)
		}
		return failed("check out the submodule "+printable(m.Path), err)
	}
	return nil
}

// fillModule writes what is in the git directory of a submodule.
func (c *creation) fillModule(m *module, objects []string) error {
	config := c.shadowConfigOf(m.repo, m.GitDir)
	var b bytes.Buffer
	writeSettings(&b, []setting{{key: "core.worktree", value: m.at}})
	for _, file := range []struct {
		path string
		data []byte
	}{
		{"HEAD", []byte(m.Commit + "\n")},
		{"shallow", m.repo.shallow()},
		{lfsName, []byte(lfsScript)},
		{"objects/info/alternates", []byte(strings.Join(objects, "\n") + "\n")},
		{"config", append(config, b.Bytes()...)},
		{"info/exclude", c.excludesOf(m.repo)},
		{"info/attributes", attributesOf(m.repo)},
	} {
		if file.data == nil {
			continue
		}
		if err := writeFile(filepath.Join(m.GitDir, file.path), file.data, 0o644); err != nil {
			return err
		}
	}
	if err := copyHooks(m.Repository, m.GitDir); err != nil {
		return err
	}
	return writeFile(filepath.Join(m.Tree, ".git"), []byte("gitdir: "+m.GitDir+"\n"), 0o644)
}

// moduleSettings tell git inside that the submodules which are there are wanted.
func (c *creation) moduleSettings() []setting {
	var all []setting
	for _, m := range c.modules {
		if m.repo != nil && !m.Nested {
			all = append(all, setting{key: "submodule." + m.Name + ".active", value: "true"}, setting{key: "submodule." + m.Name + ".url", value: m.GitDir})
		}
	}
	return all
}

// unmakeModules deletes what keeps the submodules' commits of a workspace that
// was not made to its end.
func (w *Workspaces) unmakeModules(ctx context.Context, ws caisson.Workspace) error {
	common := ws.Binding.CommonDir
	homes, _ := filepath.Glob(filepath.Join(globLiteral(common), "worktrees", "*", "modules")) // the pattern is right
	var errs []error
	for _, home := range append(homes, filepath.Join(common, "modules")) {
		err := filepath.WalkDir(home, func(at string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || !entry.IsDir():
				return nil //nolint:nilerr // what cannot be looked at was not written to
			case entry.Name() == "objects" || entry.Name() == "refs":
				return fs.SkipDir
			case !isGitDir(at):
				return nil
			}
			repo, err := w.repository(ctx, at, false)
			if err != nil {
				return nil //nolint:nilerr // then it was not used
			}
			return w.dropRefs(ctx, repo, every, ofWorkspace(ws.ID, workspaceRefs, insideRefs)...)
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
