package sandboxtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// repository makes a repository with a linked worktree and a git directory for
// the inside, and asks for a sandbox around them.
func repository(t *testing.T) func(*caisson.SandboxSpec) {
	need(t, "git")
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
	o.fails("echo gitdir: /tmp > .git")
	o.fails("rm .git")
	o.fails("mv .git git")
	if after, err := os.ReadFile(filepath.Join(o.ws, ".git")); err != nil || string(after) != string(pointer) {
		t.Errorf("the worktree's own .git is %q now, was %q (%v)", after, pointer, err)
	}
}

// A git directory whose hooks are a link. Origin: srt 221, cc 44567.
func gitMayHoldLinks(t *testing.T, h Harness) {
	for _, target := range []string{"/etc", "/root/unreadable", "/nowhere"} {
		o := open(t, h, repository(t), func(s *caisson.SandboxSpec) {
			hooks := filepath.Join(s.GitDir, "hooks")
			if err := os.RemoveAll(hooks); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, hooks); err != nil {
				t.Fatal(err)
			}
		})
		o.sh(identity + "echo x > x && git add x && git commit -qm x")
	}
}

// Ordinary work with a cold home.
func developmentWorks(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) {
		write(t, filepath.Join(s.Workspace, "go.mod"), "module example.org/m\n\ngo 1.20\n", 0o644)
		write(t, filepath.Join(s.Workspace, "m.go"), "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n", 0o644)
		write(t, filepath.Join(s.Workspace, "m_test.go"), "package main\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.TempDir() }\n", 0o644)
		write(t, filepath.Join(s.Workspace, "m.c"), "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n", 0o644)
	})
	for _, c := range []struct{ program, line, want string }{
		{"python3", `python3 -c 'import tempfile, subprocess, multiprocessing as m; tempfile.TemporaryFile(); m.Lock(); print(subprocess.check_output(["echo", "hello"], text=True).strip())'`, "hello"},
		{"node", `node -e 'require("child_process").execSync("true"); console.log("hello")'`, "hello"},
		{"gcc", `gcc -o m m.c && ./m`, "hello"},
		{"git", `git init -q r && cd r && ` + identity + `echo x > x && git add x && git commit -qm x && git log --format=%s`, "x"},
		{"sed", `id -un >/dev/null && test -w "$HOME" && test -c /dev/null && ls /dev/pts >/dev/null && echo hello | sed s/x/y/`, "hello"},
	} {
		t.Run(c.program, func(t *testing.T) {
			need(t, c.program)
			o.t = t
			if got := o.sh(c.line); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("go", func(t *testing.T) {
		need(t, "go")
		if testing.Short() {
			t.Skip("builds the standard library: not with -short")
		}
		o.t, o.patience = t, 4*time.Minute // all that it uses of the standard library is built
		if got := o.sh("export GOFLAGS=-mod=mod CGO_ENABLED=0; go build -o m . && ./m && go test -vet=off . >/dev/null"); got != "hello" {
			t.Errorf("got %q", got)
		}
	})
}
