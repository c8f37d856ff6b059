//go:build linux

package workspace_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// badInput is a place or a wish of which no workspace can be made.
type badInput struct {
	prepare func(t *testing.T, wd *world, spec *workspace.CreateSpec)
	spec    workspace.CreateSpec
	code    caisson.Code
	says    string // in the message
	hint    string // in the hint
}

// needs of a test that not every user can meet.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount and to give files away")
	}
}

func needsUser(t *testing.T) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("needs an unprivileged user: to root everything is permitted")
	}
}

// mode changes the mode of a file of the repository until the test's end.
func (wd *world) chmod(t *testing.T, mode os.FileMode, path ...string) {
	t.Helper()
	at := filepath.Join(append([]string{wd.repo}, path...)...)
	info, err := os.Lstat(at)
	wd.must(err)
	wd.must(os.Chmod(at, mode))
	wd.after = append(wd.after, func() { _ = os.Chmod(at, info.Mode().Perm()) })
}

func (wd *world) mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	wd.after = append(wd.after, func() { wd.must(unix.Unmount(target, 0)) })
}

func (wd *world) readOnly(t *testing.T, dir string) {
	t.Helper()
	needsRoot(t)
	wd.mount(t, dir, dir, "", unix.MS_BIND)
	wd.must(unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

func badInputs() map[string]badInput {
	type spec = workspace.CreateSpec
	return map[string]badInput{
		// Where there is no repository.
		"no repository":   {func(_ *testing.T, wd *world, s *spec) { s.Dir = wd.home }, spec{}, caisson.CodeNoRepository, "is not in a git repository", "in a git repository"},
		"no directory":    {func(_ *testing.T, wd *world, s *spec) { s.Dir = wd.repo + "/gone" }, spec{}, caisson.CodeNoRepository, "cannot be entered", ""},
		"a file":          {func(_ *testing.T, wd *world, s *spec) { s.Dir = wd.repo + "/a.txt" }, spec{}, caisson.CodeNoRepository, "", ""},
		"a loop of links": {func(_ *testing.T, wd *world, s *spec) { s.Dir = wd.repo + "-loop"; wd.must(os.Symlink(s.Dir, s.Dir)) }, spec{}, caisson.CodeNoRepository, "cannot be entered", ""},
		"pointer to nowhere": {func(_ *testing.T, wd *world, s *spec) {
			s.Dir = wd.home + "/x"
			wd.write(s.Dir+"/.git", "gitdir: /nowhere\n")
		}, spec{}, caisson.CodeNoRepository, "", ""},
		"pointer to itself": {func(_ *testing.T, wd *world, s *spec) {
			s.Dir = wd.home + "/x"
			wd.write(s.Dir+"/.git", "gitdir: .git\n")
		}, spec{}, caisson.CodeNoRepository, "", ""},
		"an empty .git": {func(_ *testing.T, wd *world, s *spec) {
			s.Dir = wd.home + "/x"
			wd.must(os.MkdirAll(s.Dir+"/.git", 0o755))
		}, spec{}, caisson.CodeNoRepository, "", ""},
		"no HEAD":               {func(_ *testing.T, wd *world, _ *spec) { wd.must(os.Remove(wd.repo + "/.git/HEAD")) }, spec{}, caisson.CodeNoRepository, "", ""},
		"config that is broken": {func(_ *testing.T, wd *world, _ *spec) { wd.write(wd.repo+"/.git/config", "[core\n") }, spec{}, caisson.CodeNoRepository, "bad config", ""},
		"another's": {func(t *testing.T, wd *world, _ *spec) {
			needsRoot(t)
			wd.must(os.Lchown(wd.repo, 12345, 12345))
			wd.must(os.Lchown(wd.repo+"/.git", 12345, 12345))
		}, spec{}, caisson.CodeNoRepository, "another user", "safe.directory"},
		// Where there is nothing to start from.
		"no commits": {func(_ *testing.T, wd *world, s *spec) {
			s.Dir = wd.home + "/new"
			wd.gitIn(wd.home, "init", "-q", "new")
		}, spec{}, caisson.CodeBaseUnusable, "no commit yet", "first commit"},
		"bare without commits": {func(_ *testing.T, wd *world, s *spec) {
			s.Dir = wd.home + "/new"
			wd.gitIn(wd.home, "init", "-q", "--bare", "new")
		}, spec{}, caisson.CodeBaseUnusable, "no commit yet", "first commit"},
		"unborn branch":             {func(_ *testing.T, wd *world, _ *spec) { wd.git("switch", "-q", "--orphan", "fresh") }, spec{}, caisson.CodeBaseUnusable, "no commit yet", "name a base"},
		"detached":                  {func(_ *testing.T, wd *world, _ *spec) { wd.git("switch", "-q", "--detach") }, spec{}, caisson.CodeBaseUnusable, "detached", "name HEAD as the base"},
		"changed":                   {func(_ *testing.T, wd *world, _ *spec) { wd.write(wd.repo+"/a.txt", "changed") }, spec{}, caisson.CodeBaseUnusable, "not committed", "name HEAD as the base"},
		"removed":                   {func(_ *testing.T, wd *world, _ *spec) { wd.must(os.Remove(wd.repo + "/a.txt")) }, spec{}, caisson.CodeBaseUnusable, "not committed", "name HEAD as the base"},
		"another mode":              {func(_ *testing.T, wd *world, _ *spec) { wd.must(os.Chmod(wd.repo+"/a.txt", 0o755)) }, spec{}, caisson.CodeBaseUnusable, "not committed", ""},
		"meant to be added":         {func(_ *testing.T, wd *world, _ *spec) { wd.write(wd.repo+"/n", ""); wd.git("add", "-N", "n") }, spec{}, caisson.CodeBaseUnusable, "not committed", ""},
		"in conflict":               {conflict, spec{}, caisson.CodeBaseUnusable, "not committed", ""},
		"a pipe in place of a file": {inPlace(func(at string) error { return unix.Mkfifo(at, 0o644) }), spec{}, caisson.CodeBaseUnusable, "not committed", ""},
		"a link in place of a file": {inPlace(func(at string) error { return os.Symlink(at, at) }), spec{}, caisson.CodeBaseUnusable, "not committed", ""},
		"a mount over a directory":  {func(t *testing.T, wd *world, _ *spec) { needsRoot(t); wd.mount(t, "none", wd.repo+"/sub", "tmpfs", 0) }, spec{}, caisson.CodeBaseUnusable, "not committed", "name HEAD as the base"},
		"no such base":              {nil, spec{Base: "nowhere"}, caisson.CodeBaseUnusable, "names no commit", "exists"},
		"base that is an option":    {nil, spec{Base: "--all"}, caisson.CodeBaseUnusable, "names no commit", ""},
		"base that is a range":      {nil, spec{Base: "HEAD..HEAD"}, caisson.CodeBaseUnusable, "names no commit", ""},
		"base that is two":          {nil, spec{Base: "HEAD\nmain"}, caisson.CodeBaseUnusable, "names no commit", ""},
		"base that is a tree":       {nil, spec{Base: "HEAD^{tree}"}, caisson.CodeBaseUnusable, "names no commit", ""},
		"base that is not there":    {nil, spec{Base: strings.Repeat("1", 40)}, caisson.CodeBaseUnusable, "names no commit", ""},
		"its commit is missing":     {func(_ *testing.T, wd *world, _ *spec) { wd.loseObject("HEAD") }, spec{}, caisson.CodeBaseUnusable, "is missing", "git fsck"},
		"its tree is missing":       {func(_ *testing.T, wd *world, _ *spec) { wd.loseObject("HEAD^{tree}") }, spec{Base: "main"}, caisson.CodeGitFailed, "tree", ""},
		"a file of it is missing":   {func(_ *testing.T, wd *world, _ *spec) { wd.loseObject("HEAD:a.txt") }, spec{}, caisson.CodeGitFailed, "check out the base", ""},
		"paths that lead to .git":   {func(_ *testing.T, wd *world, s *spec) { s.Base = wd.evilTree("100644", ".GIT") }, spec{}, caisson.CodeGitFailed, "invalid path", ""},
		// Where nothing can be written.
		"read-only repository": {func(t *testing.T, wd *world, _ *spec) { wd.readOnly(t, wd.repo) }, spec{}, caisson.CodeWriteFailed, "read-only", "written"},
		"read-only references": {func(t *testing.T, wd *world, _ *spec) { wd.readOnly(t, wd.repo+"/.git/refs") }, spec{}, caisson.CodeWriteFailed, "read-only", "written"},
		"read-only state directory": {func(t *testing.T, wd *world, _ *spec) {
			wd.must(os.MkdirAll(wd.state+"/workspaces", 0o755))
			wd.readOnly(t, wd.state+"/workspaces")
		}, spec{}, caisson.CodeWriteFailed, "read-only", "written"},
		"workspaces is a file": {func(_ *testing.T, wd *world, _ *spec) {
			wd.write(wd.state+"/workspaces", "x")
			wd.after = append(wd.after, func() { _ = os.Remove(wd.state + "/workspaces") })
		}, spec{}, caisson.CodeWriteFailed, "not a directory", "in the way"},
		"objects cannot be read": {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0, ".git", "objects") }, spec{}, caisson.CodePathInvalid, "objects", "right to read"},
		"a commit cannot be read": {func(t *testing.T, wd *world, _ *spec) {
			needsUser(t)
			wd.chmod(t, 0, ".git", "objects", wd.git("rev-parse", "HEAD")[:2])
		}, spec{}, caisson.CodeBaseUnusable, "", ""},
		"references cannot be read":   {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0, ".git", "refs") }, spec{}, caisson.CodePathInvalid, "refs", "right to read"},
		"HEAD cannot be read":         {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0, ".git", "HEAD") }, spec{}, caisson.CodePathInvalid, "HEAD", "right to read"},
		"config cannot be read":       {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0, ".git", "config") }, spec{}, caisson.CodePathInvalid, "config", "right to read"},
		"git cannot be entered":       {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0, ".git") }, spec{}, caisson.CodePathInvalid, ".git", "right to read"},
		"the directory is not ours":   {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0) }, spec{}, caisson.CodePathInvalid, "", "right to read"},
		"references are not writable": {func(t *testing.T, wd *world, _ *spec) { needsUser(t); wd.chmod(t, 0o555, ".git", "refs", "heads") }, spec{Branch: "b"}, caisson.CodeWriteFailed, "denied", "written"},
		"git is not writable": {func(t *testing.T, wd *world, _ *spec) {
			needsUser(t)
			wd.chmod(t, 0o555, ".git", "refs", "heads")
			wd.chmod(t, 0o555, ".git", "refs")
			wd.chmod(t, 0o555, ".git")
		}, spec{}, caisson.CodeWriteFailed, "denied", "written"},
		"state is not writable": {func(t *testing.T, wd *world, _ *spec) {
			needsUser(t)
			wd.must(os.MkdirAll(wd.state+"/workspaces", 0o755))
			wd.chmod(t, 0o555, "..", "state", "workspaces")
		}, spec{}, caisson.CodeWriteFailed, "denied", "written"},
		"a lock of git": {func(_ *testing.T, wd *world, _ *spec) { wd.write(wd.repo+"/.git/refs/heads/b.lock", "") }, spec{Branch: "b"}, caisson.CodeRepositoryBusy, "b.lock", "remove"},
		// Where something is in the way.
		"its directory is there":       {taken(func(at string) error { return os.MkdirAll(at, 0o755) }), spec{Name: "r1"}, caisson.CodeAlreadyExists, "r1", "another name"},
		"a file is there":              {taken(func(at string) error { return os.WriteFile(at, []byte("mine"), 0o644) }), spec{Name: "r1"}, caisson.CodeAlreadyExists, "r1", "another name"},
		"a link to nowhere is there":   {taken(func(at string) error { return os.Symlink("/nowhere", at) }), spec{Name: "r1"}, caisson.CodeAlreadyExists, "r1", "another name"},
		"somebody stands where it was": {stoodIn, spec{Name: "r1"}, caisson.CodeAlreadyExists, "r1", "another name"},
		"path with a newline":          {elsewhere("new\nline"), spec{}, caisson.CodeRepositoryUnsupported, "newline", ""},
		"path with a quote":            {elsewhere(`quo"te`), spec{}, caisson.CodeRepositoryUnsupported, "quote", ""},
		"path that is not UTF-8":       {elsewhere("b\xff"), spec{}, caisson.CodeRepositoryUnsupported, "UTF-8", ""},
		"borrows from no objects": {func(_ *testing.T, wd *world, _ *spec) {
			wd.write(wd.repo+"/.git/objects/info/alternates", wd.home+"\n")
		}, spec{}, caisson.CodeRepositoryUnsupported, "borrows", "repack"},
		"borrows from a pipe": {func(_ *testing.T, wd *world, _ *spec) {
			wd.must(unix.Mkfifo(wd.home+"/objects", 0o644))
			wd.write(wd.repo+"/.git/objects/info/alternates", wd.home+"/objects\n")
		}, spec{Base: "main"}, caisson.CodeRepositoryUnsupported, "borrows", "repack"},
	}
}

// modes is how a test of that name is run: somewhere the process itself stands.
func modes(name string) func(*testing.T, func(*testing.T)) {
	if strings.Contains(name, "stood") || strings.Contains(name, "stands") {
		return inModes
	}
	return forModes
}

// Each gives a clear error, and nothing is made by halves.
func TestBadInput(t *testing.T) {
	for name, c := range badInputs() {
		t.Run(name, func(t *testing.T) {
			modes(name)(t, func(t *testing.T) {
				wd := newWorld(t)
				spec := c.spec
				spec.Dir, spec.Mode = wd.repo, wd.mode
				t.Cleanup(wd.takeBack)
				if c.prepare != nil {
					c.prepare(t, wd, &spec)
				}
				kept := wd.disk()
				_, err := wd.w.Create(t.Context(), spec)
				wantCode(t, err, c.code)
				said := caisson.AsError(err)
				if !strings.Contains(strings.ToLower(said.Message), strings.ToLower(c.says)) || strings.ContainsAny(said.Message, "\x1b") {
					t.Errorf("%q does not say %q", said.Message, c.says)
				}
				hint := said.Hint
				if hint == "" {
					hint = said.Code.Info().Hint
				}
				if !strings.Contains(strings.ToLower(hint), strings.ToLower(c.hint)) {
					t.Errorf("hint %q does not say %q", hint, c.hint)
				}
				if d := cmp.Diff(kept, wd.disk()); d != "" {
					t.Errorf("something was left: %s", d)
				}
				wd.takeBack()
				if all, err := wd.store.Workspaces(t.Context(), caisson.WorkspaceFilter{}); err != nil || len(all) > 0 {
					t.Errorf("recorded: %v, %v", all, err)
				}
			})
		})
	}
}

// disk lists what is on disk of workspaces, and in the repository of what making
// one writes there. Empty directories of references are git's own business.
func (wd *world) disk() []string {
	wd.t.Helper()
	var found []string
	git := filepath.Join(wd.repo, ".git")
	for _, dir := range []string{"making", "workspaces", "shadows"} {
		_ = filepath.WalkDir(filepath.Join(wd.state, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && filepath.Base(path) != dir {
				found = append(found, fmt.Sprint(d.Type(), " ", path))
			}
			return nil // not there, or not to be read, before and after
		})
	}
	for _, dir := range []string{".", "worktrees", "refs", "logs"} {
		_ = filepath.WalkDir(filepath.Join(git, dir), func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil || d.IsDir() && dir != "." && dir != "worktrees":
				return nil //nolint:nilerr // the same
			case dir == "." && path != git && d.IsDir():
				return filepath.SkipDir
			}
			text := ""
			if raw, err := os.ReadFile(path); err == nil && dir == "refs" {
				text = string(raw)
			}
			found = append(found, fmt.Sprint(d.Type(), " ", path, " ", text))
			return nil
		})
	}
	return found
}

// takeBack takes back what would keep the test from looking and cleaning up.
func (wd *world) takeBack() {
	for i := len(wd.after) - 1; i >= 0; i-- {
		wd.after[i]()
	}
	wd.after = nil
}

func (wd *world) loseObject(rev string) {
	wd.t.Helper()
	id := wd.git("rev-parse", rev)
	wd.must(os.Remove(filepath.Join(wd.repo, ".git", "objects", id[:2], id[2:])))
}

// evilTree returns a commit whose tree has one odd entry.
func (wd *world) evilTree(mode, name string) string {
	wd.t.Helper()
	blob := wd.git("rev-parse", "HEAD:a.txt")
	list := filepath.Join(wd.home, "list")
	wd.write(list, mode+" blob "+blob+"\t"+name+"\x00")
	out, err := wd.tryGit(wd.repo, "-c", "alias.x=!git mktree -z <'"+list+"'", "x")
	wd.must(err)
	return wd.git("commit-tree", "-m", "odd", strings.TrimSpace(out))
}

func conflict(_ *testing.T, wd *world, _ *workspace.CreateSpec) {
	wd.git("switch", "-qc", "side")
	wd.write(wd.repo+"/a.txt", "side")
	wd.git("commit", "-qam", "side")
	wd.git("switch", "-q", "main")
	wd.write(wd.repo+"/a.txt", "main")
	wd.git("commit", "-qam", "main")
	_, _ = wd.tryGit(wd.repo, "merge", "-q", "side")
}

func inPlace(put func(at string) error) func(*testing.T, *world, *workspace.CreateSpec) {
	return func(_ *testing.T, wd *world, _ *workspace.CreateSpec) {
		at := wd.repo + "/a.txt"
		wd.must(os.Remove(at))
		wd.must(put(at))
	}
}

// taken puts something where the tree of a workspace r1 would be.
func taken(put func(at string) error) func(*testing.T, *world, *workspace.CreateSpec) {
	return func(_ *testing.T, wd *world, _ *workspace.CreateSpec) {
		ws := wd.create(workspace.CreateSpec{Name: "r1"})
		wd.forget(ws)
		wd.must(put(ws.Path))
	}
}

func stoodIn(t *testing.T, wd *world, s *workspace.CreateSpec) {
	taken(func(at string) error { return os.MkdirAll(at, 0o755) })(t, wd, s)
	places, err := filepath.Glob(wd.state + "/workspaces/*/r1")
	wd.must(err)
	t.Chdir(places[0])
}

// forget removes a workspace and its record wholly.
func (wd *world) forget(ws caisson.Workspace) {
	wd.t.Helper()
	ws.Removed = true
	wd.must(wd.store.PutWorkspace(wd.t.Context(), ws))
	wd.must(os.RemoveAll(ws.Path))
	wd.must(os.RemoveAll(filepath.Dir(ws.Home)))
	wd.must(os.RemoveAll(wd.repo + "/.git/worktrees"))
	for _, ref := range strings.Fields(wd.git("for-each-ref", "--format=%(refname)", "refs/heads/caisson", "refs/caisson")) {
		wd.git("update-ref", "-d", ref)
	}
}

// elsewhere moves the repository to a name.
func elsewhere(name string) func(*testing.T, *world, *workspace.CreateSpec) {
	return func(_ *testing.T, wd *world, s *workspace.CreateSpec) {
		s.Dir = filepath.Join(filepath.Dir(wd.repo), name)
		wd.must(os.Rename(wd.repo, s.Dir))
		wd.repo = s.Dir
	}
}

// Odd things in the person's tree, and in a commit, that are no hindrance.
func TestOddTrees(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, wd *world){
		"sockets, pipes and devices": func(t *testing.T, wd *world) {
			l, err := net.Listen("unix", filepath.Join(wd.home, "s"))
			wd.must(err)
			t.Cleanup(func() { _ = l.Close() })
			wd.must(os.Rename(filepath.Join(wd.home, "s"), wd.repo+"/socket"))
			wd.must(unix.Mkfifo(wd.repo+"/pipe", 0o644))
			if os.Getuid() == 0 {
				wd.must(unix.Mknod(wd.repo+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
			}
		},
		"untracked repository": func(_ *testing.T, wd *world) {
			wd.git("init", "-q", "nested")
			wd.gitIn(wd.repo+"/nested", "commit", "-q", "--allow-empty", "-m", "nested")
		},
		"links in a loop": func(_ *testing.T, wd *world) {
			for link, to := range map[string]string{"self": "self", "up": "..", "one": "two", "two": "one", "out": "/etc/shadow", "sub/dot": "."} {
				wd.must(os.Symlink(to, filepath.Join(wd.repo, link)))
			}
			wd.git("add", "-A")
			wd.git("commit", "-qm", "links")
		},
		"names of any bytes": func(_ *testing.T, wd *world) {
			for _, name := range []string{"b\xff\xfe", "new\nline", "-rf", "--", "tab\t", "\x1b[31m", `q"u'o\te`, " ", "*", ":(top)x", "CON", "aux.txt"} {
				wd.write(filepath.Join(wd.repo, name), "x\n")
			}
			wd.git("add", "-A")
			wd.git("commit", "-qm", "names")
		},
		"names that differ in case": func(_ *testing.T, wd *world) {
			wd.write(wd.repo+"/A.TXT", "x\n")
			wd.git("add", "-A")
			wd.git("commit", "-qm", "case")
		},
		"a deep path": func(_ *testing.T, wd *world) {
			wd.write(filepath.Join(wd.repo, strings.Repeat("directory-of-a-name/", 100), "f"), "x\n")
			wd.git("add", "-A")
			wd.git("commit", "-qm", "deep")
		},
		"a mount in the tree": func(t *testing.T, wd *world) {
			needsRoot(t)
			wd.must(os.Mkdir(wd.repo+"/mnt", 0o755))
			wd.mount(t, "none", wd.repo+"/mnt", "tmpfs", 0)
			wd.write(wd.repo+"/mnt/f", "x\n")
		},
		"read-only objects": func(t *testing.T, wd *world) { wd.readOnly(t, wd.repo+"/.git/objects") },
		"stood in":          func(t *testing.T, wd *world) { t.Chdir(wd.repo + "/sub") },
		"a link to the state": func(_ *testing.T, wd *world) {
			wd.must(os.Rename(wd.state, wd.state+"-real"))
			wd.must(os.Symlink(wd.state+"-real", wd.state))
		},
		"pruned worktrees": func(_ *testing.T, wd *world) {
			wd.git("worktree", "add", "-q", "-b", "mine", wd.repo+"-mine")
			wd.must(os.RemoveAll(wd.repo + "-mine"))
		},
		"locks of git": func(_ *testing.T, wd *world) {
			wd.write(wd.repo+"/.git/index.lock", "")
			wd.write(wd.repo+"/.git/config.lock", "")
			wd.write(wd.repo+"/.git/HEAD.lock", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			modes(name)(t, func(t *testing.T) {
				wd := newWorld(t)
				t.Cleanup(wd.takeBack)
				prepare(t, wd)
				ws := wd.create(workspace.CreateSpec{Dir: wd.repo})
				box := newBox(t, ws)
				if s := wd.status(ws, box); s != "" {
					t.Fatalf("it is not clean: %q", s)
				}
				wd.takeBack()
				inside(t, box, "echo more >>a.txt; git commit -qam inside")
				if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
					t.Fatalf("%+v", got)
				}
			})
		})
	}
}
