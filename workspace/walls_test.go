package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// viewed is a repository of a person's and the view of it.
func viewed(t *testing.T) (w *Workspaces, repo *repository, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "repo")
	w = New(Options{StateDir: filepath.Join(t.TempDir(), "state"), Env: []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}})
	for _, line := range []string{
		"git init -q -b main $D", "cd $D; git -c user.name=a -c user.email=b@c commit -q --allow-empty -m first",
		"cd $D; git update-ref refs/remotes/origin/main main; git config remote.origin.url $D; git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'",
		"cd $D; git config branch.main.remote origin; git config branch.main.merge refs/heads/main; git switch -qc other; git switch -q main",
		"cd $D; git rev-parse HEAD >.git/ORIG_HEAD; git rev-parse HEAD >.git/FETCH_HEAD; git worktree add -q --detach $D-tree; echo x >a; git add a",
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", line)
		cmd.Env = []string{"D=" + dir, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	repo, err := w.repository(t.Context(), filepath.Join(dir, ".git"), true)
	if err != nil {
		t.Fatal(err)
	}
	return w, repo, dir
}

// A repository that allows every protocol allows none: neither through the view,
// nor where its own configuration is read. Each wall holds without the other.
// Origin: audits of what a repository's configuration makes git run.
func TestCase_W05_protocols(t *testing.T) {
	w, repo, dir := viewed(t)
	mark := filepath.Join(t.TempDir(), "mark")
	config := "[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always\n[protocol \"file\"]\n\tallow = always\n[url \"ext::sh -c touch% " + mark + " \"]\n\tinsteadOf = innocent\n"
	f, err := os.OpenFile(filepath.Join(dir, ".git", "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(config)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if repo, err = w.repository(t.Context(), repo.common, true); err != nil {
		t.Fatal(err)
	}
	settings, err := w.git.run(t.Context(), repo.in("config", "--local", "--list", "--name-only"))
	if err != nil || strings.Contains(string(settings), "protocol.") || strings.Contains(string(settings), "url.") {
		t.Errorf("the view has settings of the repository: %s, %v", settings, err)
	}
	none, some := []string{}, []string{"GIT_ALLOW_PROTOCOL=", "GIT_PROTOCOL_FROM_USER="}
	for name, c := range map[string]struct {
		own       bool // with the repository's own configuration
		arguments bool // without what is said in arguments
		variables []string
		runs      bool
	}{
		"view":                  {false, false, none, false},
		"view, no arguments":    {false, true, none, false},
		"view, no variables":    {false, false, some, false},
		"view alone":            {false, true, some, false},
		"own":                   {true, false, none, false},
		"own, by the variables": {true, true, none, false},
		"own, by the arguments": {true, false, some, false},
		"own, without a wall":   {true, true, some, true},
	} {
		for _, url := range []string{"ext::sh -c touch% " + mark, "innocent"} {
			inv := repo.in("ls-remote", url)
			if c.own {
				inv.gitDir = repo.common
			}
			cmd := w.git.command(inv)
			if c.arguments {
				cmd.Args = without(cmd.Args, func(arg string) bool { return strings.HasPrefix(arg, "protocol.") })
			}
			cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool {
				return slices.ContainsFunc(c.variables, func(name string) bool { return strings.HasPrefix(kv, name) })
			})
			if status, err := cmd.Run(t.Context()); err != nil || status.Code == 0 {
				t.Errorf("%s: %s: %+v, %v", name, url, status, err)
			}
			ran := os.Remove(mark) == nil
			if ran != (c.runs && (url != "innocent" || c.own)) {
				t.Errorf("%s: %s: ran: %v", name, url, ran)
			}
		}
	}
}

// without drops arguments, each with the -c before it.
func without(args []string, drop func(string) bool) []string {
	var kept []string
	for _, arg := range args {
		if drop(arg) {
			kept = kept[:len(kept)-1]
			continue
		}
		kept = append(kept, arg)
	}
	return kept
}

// A revision means under the view what it means in the repository, and nothing of
// any checkout: neither what is checked out, staged or being merged there, nor what
// the repository's configuration says of a branch. None is taken for an option.
// Origin: audits of sandboxes that asked git in a checkout.
func TestCase_W05_revisions(t *testing.T) {
	w, repo, dir := viewed(t)
	tip, err := w.branchTip(t.Context(), repo, "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []string{"main", "refs/heads/main", "other", "main@{0}", tip, tip[:10], "origin/main"} {
		if got, err := w.resolve(t.Context(), repo, rev); err != nil || got != tip {
			t.Errorf("%s: %q, %v", rev, got, err)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, rev := range []string{
		"HEAD", "@", "HEAD@{0}", "@{-1}", "@{-1}~0", "@{0}", "@{u}", "main@{upstream}", "main@{push}", "ORIG_HEAD", "FETCH_HEAD", "main-worktree/HEAD",
		"worktrees/" + filepath.Base(dir) + "-tree/HEAD", ":a", ":0:a", "--all", "--output=" + out, "--git-dir=/", "-", "", "main..other", "^main", "main --all",
	} {
		if got, err := w.resolve(t.Context(), repo, rev); caisson.CodeOf(err) != caisson.CodeNotFound {
			t.Errorf("%q means %q, %v", rev, got, err)
		}
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("a revision was taken for an option")
	}
	for _, rev := range []string{"HEAD", "ORIG_HEAD", "@{u}", "main-worktree/HEAD"} { // which mean something there
		inv := invocation{gitDir: repo.common, args: []string{"rev-parse", "--verify", "--end-of-options", rev + "^{commit}"}}
		if got, err := w.git.line(t.Context(), inv); err != nil || got != tip {
			t.Errorf("%s means nothing to a person either: %q, %v", rev, got, err)
		}
	}
}

// Logs are looked at up to bounds; that there is more is told, and keeps a
// workspace from being taken for one that has nothing to lose.
func TestBoundsOfLogs(t *testing.T) {
	const entry = "1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 a <b> 1 +0000\tx\n"
	for name, c := range map[string]struct {
		fill func(dir string) error
		over bool // for an import too
	}{
		"names": {func(dir string) error {
			for n := range maxLogFiles + 1 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("n", n)), []byte(entry), 0o600); err != nil {
					return err
				}
			}
			return nil
		}, true},
		"depth": {func(dir string) error {
			dir = filepath.Join(dir, strings.Repeat("d/", maxRefDepth+1))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "x"), []byte(entry), 0o600)
		}, true},
		"bytes": {func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "x"), []byte(entry), 0o600); err != nil {
				return err
			}
			return os.Truncate(filepath.Join(dir, "x"), maxLogs+1)
		}, false},
		"commits": {func(dir string) error {
			var b strings.Builder
			for n := range maxLogged + 1 {
				fmt.Fprintf(&b, "%040x %040x a\n", n+1, n+1)
			}
			return os.WriteFile(filepath.Join(dir, "x"), []byte(b.String()), 0o600)
		}, false},
		"within": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), []byte(entry), 0o600) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			heads := filepath.Join(dir, "logs", "refs", "heads")
			if err := errors.Join(os.MkdirAll(heads, 0o700), c.fill(heads)); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			l := findLogged(root)
			ids, _ := l.ids(root, 40, nil)
			if l.over != c.over || len(l.files) > maxLogFiles || name != "depth" && len(ids) == 0 && name != "bytes" {
				t.Errorf("over: %v, %d files, %d ids", l.over, len(l.files), len(ids))
			}
			s, err := readGitState(root)
			if name == "within" {
				if err != nil || len(s.logged) != 2 {
					t.Errorf("%+v, %v", s, err)
				}
			} else if caisson.CodeOf(err) != caisson.CodeImportHeld {
				t.Errorf("%d are taken for all: %v", len(s.logged), err)
			}
		})
	}
}

// A patch that is larger than what is collected of a command is refused, and none
// is read in part.
func TestBoundOfPatches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0001-x.patch")
	for size, code := range map[int64]caisson.Code{maxOutput + 1: caisson.CodeGitFailed, 1000: ""} {
		if err := errors.Join(os.WriteFile(path, []byte("From x\n"), 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		patch, err := readPatch(path)
		if err == nil && int64(len(patch)) != size || err != nil && (caisson.CodeOf(err) != code || code == "") || err == nil && code != "" {
			t.Errorf("%d: %d bytes, %v", size, len(patch), err)
		}
	}
}
