package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/workspace"
)

const mergerEnv = "CAISSON_TEST_MERGER" // state directory of a merge that is killed

// merger merges the only workspace there is, and is killed where the
// environment says.
func merger() int {
	state, ctx := os.Getenv(mergerEnv), context.Background()
	ledger, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(state, "ledger.db")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	all, err := ledger.Workspaces(ctx, caisson.WorkspaceFilter{})
	if err == nil {
		_, err = workspace.New(workspace.Options{StateDir: state, Ledger: ledger}).Merge(ctx, all[0], workspace.MergeOptions{})
	}
	fmt.Println(err)
	return 1
}

// killedAt merges in a process that is killed at a point.
func (wd *world) killedAt(point string) {
	wd.t.Helper()
	cmd := exec.CommandContext(wd.t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOME="+wd.home, mergerEnv+"="+wd.state, fault.Env+"="+point+"=crash")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		wd.t.Fatalf("the merge was not killed: %v: %s", err, out)
	}
}

// reworked is a workspace whose commits change, add, remove and turn files.
func reworked(t *testing.T) (*world, caisson.Workspace) {
	t.Helper()
	wd := newWorld(t)
	wd.write(filepath.Join(wd.repo, "dir", "gone"), "gone\n")
	wd.write(filepath.Join(wd.repo, "turns"), "a file\n")
	wd.write(filepath.Join(wd.repo, "same"), "same\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "more")
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, `echo more >>a.txt; chmod +x a.txt; rm -r dir; rm turns; mkdir turns; echo in >turns/f; echo new >"$(printf 'n\377')"; ln -s a.txt link; mkdir fresh; echo in >fresh/f; git add -A; git commit -qm rework`)
	wd.importOK(ws, box, workspace.ImportOptions{})
	return wd, ws
}

// A merge that is killed between the branch and its checkout is brought to its
// end by the next command.
func TestKilledMerge(t *testing.T) {
	for point, moved := range map[string]bool{"merge.noted": false, "merge.moved": true, "merge.written": true, "merge.installed": true} {
		for _, what := range []string{"all", "half", "edited elsewhere"} {
			if what != "all" && point != "merge.moved" {
				continue
			}
			t.Run(point+" "+what, func(t *testing.T) {
				wd, ws := reworked(t)
				old, tip := wd.git("rev-parse", "main"), wd.git("rev-parse", ws.Branch)
				wd.killedAt(point)
				want, status := old, ""
				if moved {
					want = tip
				}
				if what == "half" { // some files came, some went
					wd.write(filepath.Join(wd.repo, "a.txt"), "one\nmore\n")
					wd.must(os.Chmod(filepath.Join(wd.repo, "a.txt"), 0o755))
					wd.must(os.RemoveAll(filepath.Join(wd.repo, "dir")))
					wd.must(os.Remove(filepath.Join(wd.repo, "turns")))
				}
				if what == "edited elsewhere" {
					wd.write(filepath.Join(wd.repo, "same"), "mine\n")
					wd.write(filepath.Join(wd.repo, "untracked"), "mine\n")
					status = " M same\n?? untracked"
				}
				if got := wd.git("rev-parse", "main"); got != want {
					t.Fatalf("main is at %s", got)
				}
				if n := residue(t, wd); n == 0 {
					t.Error("nothing is listed")
				}
				w := wd.open()
				wd.must(w.Tidy(t.Context()))
				if out, _ := wd.tryGit(wd.repo, "status", "--porcelain"); strings.TrimRight(out, "\n") != status {
					t.Errorf("%q", out)
				}
				if wd.git("rev-parse", "main") != want || residue(t, wd) > 0 || len(w.Unfinished()) > 0 {
					t.Errorf("%s: not settled: %v", wd.git("rev-parse", "main"), w.Unfinished())
				}
				left, err := filepath.Glob(filepath.Join(wd.repo, ".git", "*caisson*"))
				if err != nil || len(left) > 0 || exists(filepath.Join(wd.repo, ".git", "index.lock")) {
					t.Errorf("left: %q %v", left, err)
				}
				wd.git("fsck", "--strict")
			})
		}
	}
}

// What a person did meanwhile is not written over: it is told.
func TestKilledMergeThatAPersonWentOnFrom(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(wd *world)
		told string
		mine string
	}{
		"edited a file that changes":   {func(wd *world) { wd.write(filepath.Join(wd.repo, "a.txt"), "mine\n") }, "a.txt", "a.txt"},
		"has a new file of the name":   {func(wd *world) { wd.write(filepath.Join(wd.repo, "link"), "mine\n") }, "link", "link"},
		"has a directory of the name":  {func(wd *world) { wd.write(filepath.Join(wd.repo, "link", "f"), "mine\n") }, "link", "link/f"},
		"has a file for the directory": {func(wd *world) { wd.write(filepath.Join(wd.repo, "fresh"), "mine\n") }, "fresh", "fresh"},
		"another git is at work":       {func(wd *world) { wd.write(filepath.Join(wd.repo, ".git", "index.lock"), "") }, "another git", ""},
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws := reworked(t)
			wd.killedAt("merge.moved")
			if name != "another git is at work" {
				// A person's git would not work now: they take the lock away.
				wd.must(os.Remove(filepath.Join(wd.repo, ".git", "index.lock")))
			}
			c.do(wd)
			w := wd.open()
			err := w.Tidy(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.told) || !strings.Contains(strings.Join(w.Unfinished(), " "), wd.repo) {
				t.Errorf("%v; %q", err, w.Unfinished())
			}
			if raw, err := os.ReadFile(filepath.Join(wd.repo, c.mine)); c.mine != "" && string(raw) != "mine\n" {
				t.Fatalf("what is the person's was written over: %q, %v", raw, err)
			}
			if _, err := w.Merge(t.Context(), ws, workspace.MergeOptions{}); err == nil {
				t.Error("merged on top of it")
			}
			if name == "another git is at work" {
				wd.must(os.Remove(filepath.Join(wd.repo, ".git", "index.lock")))
			} else {
				wd.must(os.RemoveAll(filepath.Join(wd.repo, c.mine)))
				wd.git("reset", "-q", "--hard")
			}
			wd.must(w.Tidy(t.Context()))
			if s := wd.git("status", "--porcelain"); s != "" || len(w.Unfinished()) > 0 {
				t.Errorf("%q %q", s, w.Unfinished())
			}
		})
	}
	t.Run("elsewhere", func(t *testing.T) {
		wd, _ := reworked(t)
		wd.killedAt("merge.moved")
		wd.must(os.Remove(filepath.Join(wd.repo, ".git", "index.lock")))
		wd.git("checkout", "-qf", "-b", "other")
		wd.must(wd.open().Tidy(t.Context()))
		if s := wd.git("status", "--porcelain"); s != "" || residue(t, wd) > 0 {
			t.Errorf("%q", s)
		}
	})
	t.Run("a git of it is at work", func(t *testing.T) {
		wd, _ := reworked(t)
		wd.killedAt("merge.moved")
		f, err := os.Open(filepath.Join(wd.repo, ".git", "index.lock"))
		wd.must(err)
		wd.must(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
		if err := wd.open().Tidy(t.Context()); err == nil || !strings.Contains(err.Error(), "still at work") {
			t.Fatalf("%v", err)
		}
		wd.must(f.Close())
		wd.must(wd.open().Tidy(t.Context()))
		if s := wd.git("status", "--porcelain"); s != "" {
			t.Errorf("%q", s)
		}
	})
}

// movedThenKilled is a git that is killed, or never ends, where it has moved the
// branch of a merge.
const movedThenKilled = `#!/bin/sh
case " $* " in
*" update-ref --stdin -z -m caisson: merge "*) ;;
*) exec %[1]s "$@" ;;
esac
%[1]s "$@"
: >'%[2]s'
%[3]s
`

// A git that is killed after it has moved the branch has moved it: the checkout
// follows.
func TestMergeWhoseGitIsKilled(t *testing.T) {
	real, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	for name, end := range map[string]string{"killed": "kill -9 $$", "cancelled": "exec sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			wd, ws := reworked(t)
			tip := wd.git("rev-parse", ws.Branch)
			program, moved := filepath.Join(wd.home, "git"), filepath.Join(wd.home, "moved")
			wd.write(program, fmt.Sprintf(movedThenKilled, real, moved, end))
			wd.must(os.Chmod(program, 0o755))
			w := workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Git: program})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := w.Merge(ctx, ws, workspace.MergeOptions{})
				done <- err
			}()
			wd.until(func() bool { return exists(moved) })
			if name == "cancelled" {
				cancel()
			}
			err := <-done
			t.Logf("the merge: %v", err)
			if got := wd.git("rev-parse", "main"); got != tip {
				t.Fatalf("main is at %s", got)
			}
			wd.must(wd.open().Tidy(t.Context()))
			if s := wd.git("status", "--porcelain"); s != "" || residue(t, wd) > 0 {
				t.Errorf("the checkout does not follow: %q", s)
			}
		})
	}
}

// Where the checkout cannot be brought along, branch and files are as they were.
func TestMergeIsTakenBack(t *testing.T) {
	wd, ws := reworked(t)
	old := wd.git("rev-parse", "main")
	// A directory in which nothing can be written.
	if os.Geteuid() == 0 {
		if err := exec.Command("chattr", "+i", filepath.Join(wd.repo, "dir")).Run(); err != nil {
			t.Skipf("needs a directory that root cannot write: chattr: %v", err)
		}
		defer exec.Command("chattr", "-i", filepath.Join(wd.repo, "dir")).Run()
	} else {
		wd.must(os.Chmod(filepath.Join(wd.repo, "dir"), 0o555))
		defer os.Chmod(filepath.Join(wd.repo, "dir"), 0o755)
	}
	_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{})
	tip := wd.git("rev-parse", "main")
	status := wd.git("status", "--porcelain")
	if err == nil && tip != old { // git goes on where it cannot remove a file
		if status != "" && status != "?? dir/" {
			t.Fatalf("%q", status)
		}
		return
	}
	if tip != old || status != "" {
		t.Fatalf("%v: %s, %q", err, tip, status)
	}
}

// git writes over ignored files in the way of a checkout; a merge does not.
func TestMergeKeepsIgnoredFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ inside, path string }{
		"file":                           {"echo theirs >x.log; git add -f x.log", "x.log"},
		"directory for a file":           {"echo theirs >x.log; git add -f x.log", "x.log/in.log"},
		"file for a directory":           {"mkdir x.log; echo theirs >x.log/f; git add -f x.log", "x.log"},
		"in a directory that is a file":  {"rm -r sub; echo theirs >sub; git add -A", "sub/x.log"},
		"a link for a directory":         {"mkdir x.log; echo theirs >x.log/f; git add -f x.log", "x.log"},
		"an empty repository for a file": {"echo theirs >x.log; git add -f x.log", "x.log/.git/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			inside(t, box, c.inside+"; git commit -qm theirs")
			wd.importOK(ws, box, workspace.ImportOptions{})
			path := filepath.Join(wd.repo, c.path)
			if name == "a link for a directory" {
				wd.must(os.Symlink(wd.home, path))
			} else {
				wd.write(path, "precious")
			}
			_, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{})
			wantCode(t, err, caisson.CodeWorkspaceDirty)
			if !exists(path) || wd.git("rev-parse", "main") != ws.Base || wd.git("status", "--porcelain") != "" {
				t.Fatalf("%v: %s", err, wd.git("status", "--porcelain"))
			}
			wd.must(os.RemoveAll(filepath.Join(wd.repo, "x.log")))
			wd.must(os.RemoveAll(filepath.Join(wd.repo, "sub", "x.log")))
			if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil || wd.git("status", "--porcelain") != "" {
				t.Fatalf("%v", err)
			}
		})
	}
}
