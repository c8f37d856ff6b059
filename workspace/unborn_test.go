package workspace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/workspace"
)

const (
	makerEnv   = "CAISSON_TEST_MAKER"         // state directory and repository of a maker that is killed
	refusedEnv = "CAISSON_TEST_MAKER_REFUSED" // its run is refused
	modeEnv    = "CAISSON_TEST_MAKER_MODE"
)

// maker makes a workspace of a run, and is killed where the environment says,
// at the latest before the run is recorded.
func maker() int {
	state, repo, _ := strings.Cut(os.Getenv(makerEnv), "\n")
	ctx := context.Background()
	ledger, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(state, "ledger.db")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	made := func(context.Context, caisson.Workspace) error { return die() }
	if os.Getenv(refusedEnv) != "" {
		made = func(context.Context, caisson.Workspace) error { return errors.New("refused") }
	}
	_, err = workspace.New(workspace.Options{StateDir: state, Ledger: dyingStore{ledger}, Git: os.Getenv(gitEnv)}).Create(ctx, workspace.CreateSpec{Dir: repo, Mode: caisson.WorkspaceMode(os.Getenv(modeEnv)), Run: "r7k2", Made: made})
	fmt.Println(err)
	return 1
}

func die() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := self.Kill(); err != nil {
		return err
	}
	select {}
}

// dyingStore is the end of its process when a workspace was taken back on record.
type dyingStore struct{ workspace.Store }

func (s dyingStore) PutWorkspace(ctx context.Context, ws caisson.Workspace) error {
	err := s.Store.PutWorkspace(ctx, ws)
	if err == nil && ws.Removed {
		err = die()
	}
	return err
}

// made lists what a maker makes.
func (wd *world) made() []string {
	wd.t.Helper()
	var found []string
	for _, dir := range []string{
		filepath.Join(wd.state, "making"), filepath.Join(wd.state, "workspaces"), filepath.Join(wd.state, "shadows"),
		filepath.Join(wd.repo, ".git", "worktrees"),
	} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != dir {
				found = append(found, path)
			}
			return nil
		})
		if err != nil {
			wd.t.Fatal(err)
		}
	}
	for _, pattern := range []string{filepath.Join(wd.repo, ".git", "caisson-*"), filepath.Join(wd.state, "updates", "*")} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			wd.t.Fatal(err)
		}
		found = append(found, left...)
	}
	if refs := wd.git("for-each-ref", "--format=%(refname)", "refs/caisson", "refs/heads/caisson"); refs != "" {
		found = append(found, refs)
	}
	return found
}

// A maker of a workspace is killed at each of its writes, and before its run is
// recorded; the next process takes back what was made.
func TestKilledMaker(t *testing.T) { forModes(t, testKilledMaker) }

func testKilledMaker(t *testing.T) {
	wd := newWorld(t)
	last := false
	for n := 1; !last; n++ {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), "HOME="+wd.home, makerEnv+"="+wd.state+"\n"+wd.repo, modeEnv+"="+string(wd.mode), fault.Env+"="+fmt.Sprintf("workspace.create.write=crash@%d", n))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("the maker was not killed: %v: %s", err, out)
		}
		recorded, err := wd.store.Workspaces(t.Context(), caisson.WorkspaceFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if last = len(recorded) > 0; last && n < 8 {
			t.Fatalf("only %d writes were seen", n)
		}
		if len(wd.made()) > 0 && residue(t, wd) == 0 {
			t.Errorf("killed at write %d: nothing is listed", n)
		}
		if err := wd.open().Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if found := wd.made(); len(found) > 0 || residue(t, wd) > 0 {
			t.Errorf("killed at write %d: %q is left", n, found)
		}
		if recorded, err = wd.store.Workspaces(t.Context(), caisson.WorkspaceFilter{}); err != nil || len(recorded) > 0 {
			t.Errorf("killed at write %d: recorded is %v, %v", n, recorded, err)
		}
	}
	if wd.git("status", "--porcelain") != "" {
		t.Error("the repository's own checkout was changed")
	}
	if _, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Mode: wd.mode, Run: "r7k2"}); err != nil {
		t.Errorf("its name is not free again: %v", err)
	}
}

// residue counts what is listed that nobody holds.
func residue(t *testing.T, wd *world) int {
	t.Helper()
	all, err := wd.open().Remnants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range all {
		if r.Why == "" {
			t.Errorf("%+v says no reason", r)
		}
		if !r.Live {
			n++
		}
	}
	return n
}

// A maker whose run was refused is killed when it has said on record that the
// workspace is gone, and before it is.
func TestKilledRefusedMaker(t *testing.T) { forModes(t, testKilledRefusedMaker) }

func testKilledRefusedMaker(t *testing.T) {
	wd := newWorld(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOME="+wd.home, makerEnv+"="+wd.state+"\n"+wd.repo, modeEnv+"="+string(wd.mode), refusedEnv+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the maker was not killed: %v: %s", err, out)
	}
	if len(wd.made()) == 0 {
		t.Fatal("nothing was left to take back")
	}
	if err := wd.open().Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found := wd.made(); len(found) > 0 {
		t.Errorf("%q is left", found)
	}
}

// What is being made, and what was made, is left alone.
func TestTidyKeeps(t *testing.T) { forModes(t, testTidyKeeps) }

func testTidyKeeps(t *testing.T) {
	wd := newWorld(t)
	seen := false
	ws, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Mode: wd.mode, Run: "r7k2", Made: func(ctx context.Context, ws caisson.Workspace) error {
		if n := residue(t, wd); n > 0 {
			t.Errorf("%d things of it are called residue while it is made", n)
		}
		if err := wd.open().Tidy(ctx); err != nil {
			return err
		}
		_, err := os.Stat(filepath.Join(ws.Path, "a.txt"))
		seen = err == nil
		return err
	}})
	if err != nil || !seen {
		t.Fatalf("it was removed while it was made: %v", err)
	}
	if err := wd.open().Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := wd.w.Check(t.Context(), ws); err != nil {
		t.Error(err)
	}
}

// A run that cannot be recorded takes its workspace with it.
func TestMadeFails(t *testing.T) { forModes(t, testMadeFails) }

func testMadeFails(t *testing.T) {
	wd := newWorld(t)
	refused := errors.New("refused")
	_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Mode: wd.mode, Made: func(context.Context, caisson.Workspace) error { return refused }})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	recorded, err := wd.store.Workspaces(t.Context(), caisson.WorkspaceFilter{})
	if err != nil || len(recorded) > 0 {
		t.Errorf("recorded is %v, %v", recorded, err)
	}
	for _, left := range wd.made() {
		if rel, err := filepath.Rel(filepath.Join(wd.state, "workspaces"), left); err != nil || strings.Contains(rel, "/") && !strings.HasPrefix(rel, "..") || strings.HasPrefix(rel, "..") {
			t.Errorf("%s is left", left)
		}
	}
}

// Git was killed inside, as it was about to write its index.
func TestUnlock(t *testing.T) { forModes(t, testUnlock) }

func testUnlock(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	for _, name := range []string{"index.lock", "HEAD.lock", "refs/heads/" + ws.Branch + ".lock"} {
		wd.write(filepath.Join(ws.Shadow, name), "")
	}
	const change = "echo new > a.txt && git add a.txt && git commit -qm change"
	if _, code := tryInside(t, box, change); code == 0 {
		t.Fatal("the locks keep nobody out")
	}
	if err := wd.open().Unlock(ws); err != nil {
		t.Fatal(err)
	}
	inside(t, box, change)
}

// The note of a maker that was killed when all was done does no harm to a
// workspace that went to the trash since.
func TestNoteOfAWorkspaceInTheTrash(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, "git commit -q --allow-empty -m side && git branch side && git reset -q --hard HEAD~1 && echo x >loose")
	wd.remove(discard(t, wd.inspect(ws)))
	raw, err := json.Marshal(ws)
	wd.must(err)
	note := filepath.Join(wd.state, "making", string(ws.ID))
	wd.write(note, string(raw))
	before := wd.git("for-each-ref")
	if !strings.Contains(before, string(ws.ID)+"/base") {
		t.Fatal(before)
	}
	wd.must(wd.w.Tidy(t.Context()))
	if exists(note) {
		t.Error("the note is still there")
	}
	if got := wd.git("for-each-ref"); got != before {
		t.Errorf("before:\n%s\nnow:\n%s", before, got)
	}
	wd.restore(ws)
}
