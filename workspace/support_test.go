package workspace_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/workspace"
)

// store is a ledger whose writes can be made to fail.
type store struct {
	caisson.Ledger
	err error
}

func (s *store) PutWorkspace(ctx context.Context, w caisson.Workspace) error {
	if s.err != nil {
		return s.err
	}
	return s.Ledger.PutWorkspace(ctx, w)
}

// forModes runs a test once for each way to make a workspace, at the same time as
// others; the worlds that it makes know which.
func forModes(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	inModes(t, func(t *testing.T) { t.Parallel(); test(t) })
}

// inModes is forModes of a test that changes what all of the process have.
func inModes(t *testing.T, test func(t *testing.T)) {
	for _, mode := range []caisson.WorkspaceMode{caisson.WorkspaceWorktree, caisson.WorkspaceClone} {
		t.Run("mode="+string(mode), test)
	}
}

// world is a person with a home, a repository and a state directory.
type world struct {
	t     testing.TB
	home  string
	repo  string
	state string
	store *store
	w     *workspace.Workspaces
	mode  caisson.WorkspaceMode // of workspaces that create makes
	after []func()              // takes back what a test did to the disk
}

// writable lets an ordinary user remove what is under dir again: a workspace
// may hold directories that its owner cannot write in.
func writable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	t.Cleanup(func() { writable(dir) })
	wd := &world{t: t, mode: caisson.WorkspaceWorktree, home: filepath.Join(dir, "home"), repo: filepath.Join(dir, "my project"), state: filepath.Join(dir, "state")}
	if strings.Contains(t.Name(), "/mode="+string(caisson.WorkspaceClone)) {
		wd.mode = caisson.WorkspaceClone
	}
	for _, d := range []string{wd.home, wd.repo} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wd.write(filepath.Join(wd.home, ".gitconfig"), "[user]\n\tname = Ada Person\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n")
	ledger, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(wd.state, "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	wd.store = &store{Ledger: ledger}
	wd.w = wd.open()
	wd.git("init", "-q")
	wd.write(filepath.Join(wd.repo, "a.txt"), "one\n")
	wd.write(filepath.Join(wd.repo, "sub", "b.txt"), "two\n")
	wd.write(filepath.Join(wd.repo, ".gitignore"), "*.log\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "first")
	return wd
}

// open returns Workspaces as another process would have them.
func (wd *world) open() *workspace.Workspaces {
	return workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env()})
}

func (wd *world) env() []string {
	return []string{"HOME=" + wd.home, "PATH=" + os.Getenv("PATH"), "GIT_DIR=/nowhere", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.bare", "GIT_CONFIG_VALUE_0=true"}
}

func (wd *world) write(path, text string) {
	wd.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		wd.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		wd.t.Fatal(err)
	}
}

// git is the person's own git in the repository.
func (wd *world) git(args ...string) string {
	wd.t.Helper()
	return wd.gitIn(wd.repo, args...)
}

func (wd *world) gitIn(dir string, args ...string) string {
	wd.t.Helper()
	out, err := wd.tryGit(dir, args...)
	if err != nil {
		wd.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

func (wd *world) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + wd.home, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (wd *world) create(spec workspace.CreateSpec) caisson.Workspace {
	wd.t.Helper()
	if spec.Dir == "" {
		spec.Dir = wd.repo
	}
	if spec.Mode == "" {
		spec.Mode = wd.mode
	}
	ws, err := wd.w.Create(wd.t.Context(), spec)
	if err != nil {
		wd.t.Fatalf("create: %v", err)
	}
	return ws
}

// status is what `git status` says of a workspace's tree to who may ask it: the
// person outside of a worktree, only the agent of a clone.
func (wd *world) status(ws caisson.Workspace, box *box, args ...string) string {
	wd.t.Helper()
	if ws.Mode == caisson.WorkspaceClone {
		return inside(wd.t, box, "git status --porcelain "+strings.Join(args, " "))
	}
	return wd.gitIn(ws.Path, append([]string{"status", "--porcelain"}, args...)...)
}

// inside runs a shell line in the box as an agent would.
func inside(t testing.TB, box *box, line string) string {
	t.Helper()
	out, code := tryInside(t, box, line)
	if code != 0 {
		t.Fatalf("inside: %s: status %d\n%s", line, code, out)
	}
	return out
}

func tryInside(t testing.TB, box *box, line string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	p, err := box.Hold(t.Context(), caisson.Command{Line: line, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), exit.Code
}

func (wd *world) importOK(ws caisson.Workspace, box workspace.Box, opts workspace.ImportOptions) workspace.Imported {
	wd.t.Helper()
	got, err := wd.w.Import(wd.t.Context(), ws, box, opts)
	if err != nil {
		wd.t.Fatalf("import: %v", err)
	}
	return got
}

func wantCode(t testing.TB, err error, code caisson.Code) {
	t.Helper()
	if caisson.CodeOf(err) != code {
		t.Fatalf("got %v (%s), want %s", err, caisson.CodeOf(err), code)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
