package workspace_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/workspace"
)

// gitEnv is the git program of a maker.
const gitEnv = "CAISSON_TEST_GIT"

// interrupted is a git that stops where it has locked the references that it is
// to write, says who it is, and kills the process that has started it.
const interrupted = `#!/bin/sh
case " $* " in
*" update-ref --stdin -z "*) ;;
*) exec %[1]s "$@" ;;
esac
exec 4<&0
cd '%[2]s'
mkfifo answers
{ exec 3<&-; printf 'start\0'; cat <&4; printf 'prepare\0'; cat hold; } | %[1]s "$@" >answers &
echo $! >pid
exec 5<answers
read started <&5
read prepared <&5
kill -9 $PPID
`

// A process is killed while its git has references locked, which goes on; then
// that is killed too. The locks are removed when both have ended, not before.
func TestKilledWithReferencesLocked(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	real, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "git")
	wd.write(program, fmt.Sprintf(interrupted, real, dir))
	wd.must(os.Chmod(program, 0o755))
	wd.must(syscall.Mkfifo(filepath.Join(dir, "hold"), 0o600))
	hold, err := os.OpenFile(filepath.Join(dir, "hold"), os.O_RDWR, 0)
	wd.must(err)
	defer hold.Close()

	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOME="+wd.home, makerEnv+"="+wd.state+"\n"+wd.repo, gitEnv+"="+program)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the maker was not killed: %v: %s", err, out)
	}
	lock := filepath.Join(wd.repo, ".git", "refs", "heads", "caisson", "r7k2.lock")
	wd.until(func() bool { raw, _ := os.ReadFile(lock); return len(raw) == 41 })
	wd.must(wd.open().Tidy(t.Context()))
	if !exists(lock) {
		t.Fatal("a lock was removed that a living git holds")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "pid"))
	wd.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	wd.must(err)
	wd.must(syscall.Kill(pid, syscall.SIGKILL))
	wd.until(func() bool { wd.must(wd.open().Tidy(t.Context())); return !exists(lock) })
	if found := wd.made(); len(found) > 0 {
		t.Errorf("%q is left", found)
	}
	if _, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Run: "r7k2"}); err != nil {
		t.Error(err)
	}
}

// A killed command's note of many references is read whole; one that was cut is
// kept and told, and stops nobody.
func TestNotesOfKilledUpdates(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	common, id := filepath.Join(wd.repo, ".git"), wd.git("rev-parse", "HEAD")
	refs := map[string]string{}
	for n := range 2000 {
		refs[fmt.Sprint("refs/caisson/inside/x/tags/", n)] = id
	}
	raw, err := json.Marshal(map[string]any{"common": common, "refs": refs})
	wd.must(err)
	note, lock := filepath.Join(wd.state, "updates", "MANY"), filepath.Join(common, "refs/caisson/inside/x/tags/1999.lock")
	wd.write(note, string(raw))
	wd.write(lock, id+"\n")
	wd.must(wd.w.Tidy(t.Context()))
	if exists(lock) || exists(note) {
		t.Errorf("the lock is left: %v, the note: %v", exists(lock), exists(note))
	}
	wd.write(note, string(raw[:len(raw)-10]))
	if err := wd.w.Tidy(t.Context()); err == nil || !strings.Contains(err.Error(), note) || !exists(note) {
		t.Errorf("a note that was cut: %v, there: %v", err, exists(note))
	}
	wd.create(workspace.CreateSpec{Name: "r1"})
	wd.write(note, "")
	wd.must(os.Chtimes(note, time.Time{}, time.Now().Add(-time.Hour)))
	wd.must(wd.w.Tidy(t.Context()))
	if exists(note) {
		t.Error("an empty note is left")
	}
}

// A git that was killed between making a lock and writing the value leaves it
// empty. It is removed where it can be no other's.
func TestEmptyLocksOfKilledUpdates(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	common, id := filepath.Join(wd.repo, ".git"), wd.git("rev-parse", "HEAD")
	wd.git("branch", "packed")
	wd.git("pack-refs", "--all")
	wd.git("branch", "loose")
	left := map[string]bool{ // whether the lock is to stay
		"refs/caisson/runs/r1/1": false, "refs/caisson/runs/r1/2": true, "refs/heads/new": false, "refs/heads/writing": true,
		"refs/heads/packed": true, "refs/heads/loose": true,
	}
	refs := map[string]string{}
	for name := range left {
		refs[name] = id
		wd.write(filepath.Join(common, name+".lock"), "")
	}
	for _, name := range []string{"refs/caisson/runs/r1/2", "refs/heads/writing"} {
		f, err := os.Open(filepath.Join(common, name+".lock"))
		wd.must(err)
		defer f.Close()
	}
	raw, err := json.Marshal(map[string]any{"common": common, "refs": refs})
	wd.must(err)
	wd.write(filepath.Join(wd.state, "updates", "KILLED"), string(raw))
	wd.must(wd.w.Tidy(t.Context()))
	for name, stays := range left {
		if exists(filepath.Join(common, name+".lock")) != stays {
			t.Errorf("%s: there is a lock: %v", name, !stays)
		}
	}
}

// until waits for what another process brings about.
func (wd *world) until(is func() bool) {
	wd.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(end) {
			wd.t.Fatal("it did not come about")
		}
	}
}

// A process is killed while it holds the lock of an outer index. The next import
// takes the lock for what it is, and brings the index along.
func TestKilledWithIndexLocked(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	newBox(t, wd.create(workspace.CreateSpec{Name: "probe"})) // skips where there is no boundary
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOME="+wd.home, manyEnv+"="+wd.state+"\n"+wd.repo+"\n0 1", fault.Env+"=workspace.index.locked=crash@1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("it was not killed: %v: %s", err, out)
	}
	ws, err := wd.w.Find(t.Context(), wd.repo, "m0")
	wd.must(err)
	lock := filepath.Join(ws.Binding.AdminDir, "index.lock")
	if !exists(lock) {
		t.Fatal("it holds no lock")
	}
	wd.must(wd.w.Unlock(ws))
	box := newBox(t, ws)
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); got.IndexKept != "" || exists(lock) {
		t.Errorf("%+v", got)
	}
	if got := wd.gitIn(ws.Path, "status", "--porcelain"); got != "?? later.txt" {
		t.Errorf("status outside: %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(ws.Binding.AdminDir, "caisson-*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

// A lock that is not known for ours stays, however old it is, and is named.
func TestForeignLocks(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-1000 * time.Hour)
	for name, c := range map[string]struct {
		lock func(*world, caisson.Workspace) string
		do   func(*world, caisson.Workspace, *box) (kept string, err error)
	}{
		"outer index": {
			func(_ *world, ws caisson.Workspace) string { return filepath.Join(ws.Binding.AdminDir, "index.lock") },
			func(wd *world, ws caisson.Workspace, box *box) (string, error) {
				got, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
				if !got.Moved {
					wd.t.Errorf("the branch was not moved: %+v", got)
				}
				return got.IndexKept, err
			},
		},
		"branch": {
			func(wd *world, ws caisson.Workspace) string {
				return filepath.Join(wd.repo, ".git", "refs", "heads", ws.Branch+".lock")
			},
			func(wd *world, ws caisson.Workspace, box *box) (string, error) {
				_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
				return "", err
			},
		},
		"index of the person's checkout": {
			func(wd *world, _ caisson.Workspace) string { return filepath.Join(wd.repo, ".git", "index.lock") },
			func(wd *world, ws caisson.Workspace, box *box) (string, error) {
				wd.importOK(ws, box, workspace.ImportOptions{})
				_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{})
				return "", err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			t.Parallel()
			inside(t, box, "echo new >new.txt && git add . && git commit -qm new")
			lock := c.lock(wd, ws)
			wd.write(lock, "")
			wd.must(os.Chtimes(lock, old, old))
			kept, err := c.do(wd, ws, box)
			if kept == "" {
				wantCode(t, err, caisson.CodeRepositoryBusy)
				kept = err.Error() + caisson.AsError(err).Hint
			}
			if !strings.Contains(kept, lock) || !strings.Contains(kept, "remove") {
				t.Errorf("it does not say what to do with which: %s", kept)
			}
			if !exists(lock) {
				t.Fatal("it was removed")
			}
			wd.must(os.Remove(lock))
			inside(t, box, "echo more >>new.txt && git commit -qam more")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Errorf("it does not go on: %+v", got)
			}
		})
	}
}

// A lock that is held for a moment is waited for.
func TestHeldLocksAreWaitedFor(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	inside(t, box, "echo new >new.txt && git add . && git commit -qm new")
	for _, lock := range []string{
		filepath.Join(ws.Binding.AdminDir, "index.lock"), filepath.Join(wd.repo, ".git", "refs", "heads", ws.Branch+".lock"),
	} {
		wd.write(lock, "")
		defer time.AfterFunc(time.Second, func() { _ = os.Remove(lock) }).Stop()
	}
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.IndexKept != "" {
		t.Fatalf("import: %+v", got)
	}
	lock := filepath.Join(wd.repo, ".git", "index.lock")
	wd.write(lock, "")
	defer time.AfterFunc(time.Second, func() { _ = os.Remove(lock) }).Stop()
	if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil || wd.git("status", "--porcelain") != "" {
		t.Fatalf("merge: %v", err)
	}
}
