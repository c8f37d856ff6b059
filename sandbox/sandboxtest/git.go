package sandboxtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
)

// repository makes a repository with a linked worktree and a git directory for
// the inside, and asks for a sandbox around them.
func repository(t *testing.T) func(*caisson.SandboxSpec) {
	needHost(t, "git")
	top := tempDir(t)
	repo, ws, shadow, cover := filepath.Join(top, "repo"), filepath.Join(top, "ws"), filepath.Join(top, "shadow"), filepath.Join(top, "cover")
	host(t, top, "git", "init", "-q", "-b", "main", repo)
	host(t, repo, "git", "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "first")
	host(t, repo, "git", "worktree", "add", "-q", "-b", "work", ws)
	host(t, top, "git", "init", "-q", "--bare", "-b", "work", shadow)
	write(t, filepath.Join(shadow, "objects/info/alternates"), filepath.Join(repo, ".git/objects")+"\n", 0o644)
	host(t, repo, "git", "push", "-q", shadow, "work")
	host(t, shadow, "git", "config", "core.bare", "false")
	write(t, cover, "gitdir: "+shadow+"\n", 0o644)
	return func(s *caisson.SandboxSpec) {
		s.Workspace, s.GitDir, s.GitCover = ws, shadow, cover
		s.GitObjects = []string{filepath.Join(repo, ".git/objects")}
	}
}

const identity = `export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org; `

// A linked worktree; commit, rebase, stash and branch inside.
// Origin: codex 23661, cc 17374.
func gitWorksInside(t *testing.T, h Harness) {
	o := open(t, h, repository(t))
	o.need("git")
	pointer, err := os.ReadFile(filepath.Join(o.ws, ".git"))
	if err != nil {
		t.Fatal(err)
	}
	o.sh(identity + `set -e
echo one > one; git add one; git commit -qm one
git branch side; echo two > two; git add two; git commit -qm two
git checkout -q side; echo three > three; git add three; git commit -qm three
git rebase -q work; echo dirty > one; git stash -q; git stash pop -q
git log --oneline | wc -l; git status --porcelain`)
	if !o.enforced(caisson.ControlFiles) {
		return // nothing can be shown in the place of .git
	}
	o.fails("echo gitdir: /tmp > .git")
	o.fails("rm .git")
	o.fails("mv .git git")
	if after, err := os.ReadFile(filepath.Join(o.ws, ".git")); err != nil || string(after) != string(pointer) {
		t.Errorf("the worktree's own .git is %q now, was %q (%v)", after, pointer, err)
	}
}

// The tree of a submodule is shown in an empty directory of the workspace, which
// stays empty outside; where nothing can be shown so, it is empty inside too.
func submodulesAreShown(t *testing.T, h Harness) {
	tree := filepath.Join(tempDir(t), "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tree, "file"), "of the submodule\n", 0o644)
	o := open(t, h, repository(t), func(s *caisson.SandboxSpec) {
		at := filepath.Join(s.Workspace, "libs", "dep")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		s.GitTrees = []caisson.Mount{{Source: tree, Target: at}}
	})
	if !o.enforced(caisson.ControlFiles) {
		if got := o.sh("ls -A libs/dep"); got != "" {
			t.Errorf("inside: %q", got)
		}
		return
	}
	if got := o.sh("cat libs/dep/file; echo new >libs/dep/new"); got != "of the submodule" {
		t.Errorf("inside: %q", got)
	}
	if _, err := os.Stat(filepath.Join(tree, "new")); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(o.ws, "libs", "dep")); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// A git directory whose hooks are a link, and a workspace with links where tools
// look for their settings. Origin: srt 221, cc 44567.
func gitMayHoldLinks(t *testing.T, h Harness) {
	for _, target := range []string{"/etc", "/root/unreadable", "/nowhere"} {
		o := open(t, h, repository(t), func(s *caisson.SandboxSpec) {
			hooks := filepath.Join(s.GitDir, "hooks")
			if err := os.RemoveAll(hooks); err != nil {
				t.Fatal(err)
			}
			for _, link := range []string{hooks, filepath.Join(s.Workspace, ".vscode"), filepath.Join(s.Workspace, ".agents")} {
				if err := os.Symlink(target, link); err != nil {
					t.Fatal(err)
				}
			}
		})
		o.need("git")
		o.sh(identity + "echo x > x && git add x && git commit -qm x")
	}
}

// Configuration of each worktree. Origin: cc 80278.
func worktreeConfigWorks(t *testing.T, h Harness) {
	o := open(t, h, repository(t), func(s *caisson.SandboxSpec) {
		host(t, s.Workspace, "git", "config", "extensions.worktreeConfig", "true")
		host(t, s.Workspace, "git", "config", "--worktree", "user.name", "W")
		host(t, s.GitDir, "git", "config", "extensions.worktreeConfig", "true")
		host(t, s.GitDir, "git", "config", "--worktree", "core.bare", "false")
		host(t, s.GitDir, "git", "config", "--worktree", "user.name", "inside")
	})
	o.need("git")
	o.sh(identity + "echo x > x && git add x && git commit -qm x && git config --worktree user.email a@example.org")
	if got := o.sh("git config user.name; git status --porcelain"); got != "inside" {
		t.Errorf("got %q", got)
	}
}
