package workspace_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// store keeps workspaces in memory, with the ledger's rule on names.
type store struct {
	mu  sync.Mutex
	all []caisson.Workspace
	err error // returned by writes
}

func (s *store) PutWorkspace(_ context.Context, w caisson.Workspace) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	for i, have := range s.all {
		if have.ID == w.ID {
			s.all[i] = w
			return nil
		}
		if have.Name == w.Name && have.Binding.CommonDir == w.Binding.CommonDir && !have.Removed {
			return caisson.Errorf(caisson.CodeAlreadyExists, "workspace %s exists", w.Name)
		}
	}
	s.all = append(s.all, w)
	return nil
}

func (s *store) Workspace(_ context.Context, id caisson.WorkspaceID) (caisson.Workspace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.ID == id {
			return w, nil
		}
	}
	return caisson.Workspace{}, caisson.Errorf(caisson.CodeNotFound, "no workspace %s", id)
}

func (s *store) Workspaces(_ context.Context, f caisson.WorkspaceFilter) ([]caisson.Workspace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []caisson.Workspace
	for _, w := range slices.Backward(s.all) {
		if (f.CommonDir == "" || f.CommonDir == w.Binding.CommonDir) && (f.Removed || !w.Removed) {
			found = append(found, w)
		}
	}
	return found, nil
}

// world is a person with a home, a repository and a state directory.
type world struct {
	t     testing.TB
	home  string
	repo  string
	state string
	store *store
	w     *workspace.Workspaces
}

func newWorld(t testing.TB) *world {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	wd := &world{t: t, home: filepath.Join(dir, "home"), repo: filepath.Join(dir, "my project"), state: filepath.Join(dir, "state"), store: &store{}}
	for _, d := range []string{wd.home, wd.repo} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wd.write(filepath.Join(wd.home, ".gitconfig"), "[user]\n\tname = Ada Person\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n")
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
	ws, err := wd.w.Create(wd.t.Context(), spec)
	if err != nil {
		wd.t.Fatalf("create: %v", err)
	}
	return ws
}

// inside runs a shell line in the box as an agent would.
func inside(t testing.TB, box *bwrapBox, line string) string {
	t.Helper()
	out, code := tryInside(t, box, line)
	if code != 0 {
		t.Fatalf("inside: %s: status %d\n%s", line, code, out)
	}
	return out
}

func tryInside(t testing.TB, box *bwrapBox, line string) (string, int) {
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
