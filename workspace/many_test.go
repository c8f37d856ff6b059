package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
	"github.com/caisson-run/caisson/workspace"
)

const (
	// manyEnv makes the test program one of several that work at once: state
	// directory, repository, first and last number.
	manyEnv = "CAISSON_TEST_MANY"
	// manyAtOnce is how many workspaces there are.
	manyAtOnce = 20
	// manyProcesses is how many processes make them, each with as many goroutines
	// as it has workspaces.
	manyProcesses = 4
)

// several is one process of TestManyAtOnce.
func several() int {
	fields := strings.Split(os.Getenv(manyEnv), "\n")
	var from, to int
	if _, err := fmt.Sscan(fields[2], &from, &to); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	ledger, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(fields[0], "ledger.db")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	engine := namespace.New(namespace.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()})
	w := workspace.New(workspace.Options{StateDir: fields[0], Ledger: ledger, Box: func(ctx context.Context, ws caisson.Workspace) (workspace.OpenedBox, error) {
		return engine.Open(ctx, around(ws))
	}})
	errs := make([]error, to-from)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			if err := one(ctx, w, engine, fields[1], from+i); err != nil {
				errs[i] = fmt.Errorf("workspace %d: %w", from+i, err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(append(errs, w.Tidy(ctx), engine.Close(), ledger.Close())...); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// one makes a workspace, works in it, and removes every second one.
func one(ctx context.Context, w *workspace.Workspaces, engine caisson.Engine, repo string, n int) error {
	ws, err := worked(ctx, w, engine, repo, n)
	if err != nil || n%2 == 0 {
		return err
	}
	// The person's gc writes the logs of all worktrees anew. A removal that sees
	// it backs out, and all is where it was.
	for range 5 {
		var found workspace.Inspection
		if found, err = w.Inspect(ctx, ws, workspace.InspectOptions{}); err != nil {
			return fmt.Errorf("inspect: %w", err)
		}
		decision := workspace.Decide(found, workspace.Ask{Word: found.Digest()})
		if decision.Mode == workspace.ModeRefused {
			err = caisson.Errorf(decision.Code, "%s: %+v", decision.Why, decision.Losses)
		} else {
			_, err = w.Remove(ctx, decision.Permit, "ada")
		}
		if caisson.CodeOf(err) != caisson.CodeWorkspaceDirty {
			break
		}
	}
	if err != nil && caisson.CodeOf(err) != caisson.CodeWorkspaceDirty {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

// worked makes a workspace, commits three times inside, imports each and keeps a
// snapshot after each.
func worked(ctx context.Context, w *workspace.Workspaces, engine caisson.Engine, repo string, n int) (ws caisson.Workspace, err error) {
	ws, err = w.Create(ctx, workspace.CreateSpec{Dir: repo, Name: fmt.Sprint("m", n), Base: "main"})
	if err != nil {
		return ws, fmt.Errorf("create: %w", err)
	}
	box, err := engine.Open(ctx, around(ws))
	if err != nil {
		return ws, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	for turn := range 3 {
		line := fmt.Sprintf("echo %d >>of%d.txt && git add of%d.txt && git commit -qm 'turn %d of %d' && echo later >later.txt", turn, n, n, turn, n)
		p, err := box.Hold(ctx, caisson.Command{Line: line})
		if err != nil {
			return ws, err
		}
		if err := p.Release(); err != nil {
			return ws, err
		}
		if exit, err := p.Wait(ctx); err != nil || exit.Code != 0 {
			return ws, fmt.Errorf("commit: %+v, %w", exit, err)
		}
		got, err := w.Import(ctx, ws, box, workspace.ImportOptions{})
		if err != nil || !got.Moved || got.IndexKept != "" || got.Diverged != "" {
			return ws, fmt.Errorf("import: %+v, %w", got, err)
		}
		snap, err := w.Snapshot(ctx, ws, box, caisson.RunID(ws.Name), turn)
		if err != nil || !snap.Changed || snap.Partial != "" {
			return ws, fmt.Errorf("snapshot: %+v, %w", snap, err)
		}
	}
	return ws, nil
}

// personal is a round of what a person does meanwhile in the main checkout.
func (wd *world) personal(n int) error {
	for _, args := range [][]string{
		{"commit", "-q", "--allow-empty", "-m", fmt.Sprint("own ", n)},
		{"worktree", "prune", "--expire=now"},
		{"branch", "-f", "spare"},
		{"branch", "-M", "spare", "caisson/spare"}, // beside ours
		{"fetch", "-q", "--prune", wd.repo + "-other", "+refs/heads/*:refs/remotes/other/*"},
		{"pack-refs", "--all"},
		{"checkout", "-q", "-B", "side"},
		{"worktree", "add", "-q", "--detach", filepath.Join(wd.home, "w")},
		{"gc", "--auto", "-q"},
		{"checkout", "-q", "main"},
		{"worktree", "remove", filepath.Join(wd.home, "w")},
		{"branch", "-q", "-D", "caisson/spare"},
	} {
		if out, err := wd.tryGit(wd.repo, args...); err != nil {
			return fmt.Errorf("git %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// Twenty workspaces of one repository are made, committed to, imported, kept and
// every second one removed, by goroutines of several processes, while their person works in the main
// checkout. Nothing fails, and nothing is lost.
func TestManyAtOnce(t *testing.T) {
	wd := newWorld(t)
	newBox(t, wd.create(workspace.CreateSpec{Name: "probe"})) // skips where there is no boundary
	wd.git("clone", "-q", wd.repo, wd.repo+"-other")
	wd.git("config", "gc.auto", "20") // so that it has a reason each time
	wd.git("config", "gc.autoDetach", "false")
	var children []*exec.Cmd
	var outs []*strings.Builder
	for i := range manyProcesses {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		each := manyAtOnce / manyProcesses
		cmd.Env = append(os.Environ(), "HOME="+wd.home, manyEnv+"="+strings.Join([]string{wd.state, wd.repo, fmt.Sprint(i*each, (i+1)*each)}, "\n"))
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children, outs = append(children, cmd), append(outs, out)
	}
	ended := make(chan struct{})
	go func() { // ends with the children
		defer close(ended)
		for i, c := range children {
			if err := c.Wait(); err != nil {
				t.Errorf("process %d: %v: %s", i, err, outs[i])
			}
		}
	}()
	rounds := 0
	for working := true; working; rounds++ {
		if err := wd.personal(rounds); err != nil {
			t.Error(err)
			break
		}
		select {
		case <-ended:
			working = false
		default:
		}
	}
	<-ended
	t.Logf("the person did %d rounds meanwhile", rounds)
	wd.wantAll()
	if n := wd.git("rev-list", "--count", "--grep=^own", "main"); n != fmt.Sprint(rounds) {
		t.Errorf("of %d commits of the person %s are left", rounds, n)
	}
}

// wantAll checks that the work of TestManyAtOnce is there.
func (wd *world) wantAll() {
	wd.t.Helper()
	all, err := wd.store.Workspaces(wd.t.Context(), caisson.WorkspaceFilter{})
	if err != nil || len(all) < manyAtOnce/2+1 || len(all) > manyAtOnce+1 {
		wd.t.Fatalf("%d are on record, %v", len(all), err)
	}
	for n := range manyAtOnce {
		for turn := range 3 {
			if got := wd.git("rev-list", "--all", "--count", fmt.Sprintf("--grep=^turn %d of %d$", turn, n)); got != "1" {
				wd.t.Errorf("commit %d of workspace %d is there %s times", turn, n, got)
			}
		}
	}
	for _, ws := range all {
		if ws.Name == "probe" {
			continue
		}
		if err := wd.w.Check(wd.t.Context(), ws); err != nil {
			wd.t.Error(err)
		}
		for turn := range 3 {
			ref := workspace.SnapshotRef(caisson.RunID(ws.Name), turn)
			if got := wd.git("show", ref+":later.txt"); got != "later" {
				wd.t.Errorf("%s has %q", ref, got)
			}
		}
		if got := wd.gitIn(ws.Path, "status", "--porcelain"); got != "?? later.txt" {
			wd.t.Errorf("status of %s outside: %q", ws.Name, got)
		}
	}
	if out, err := wd.tryGit(wd.repo, "fsck", "--strict"); err != nil {
		wd.t.Errorf("%v: %s", err, out)
	}
	common := filepath.Join(wd.repo, ".git")
	for _, pattern := range []string{
		common + "/*.lock", common + "/*/*.lock", common + "/*/*/*.lock", common + "/*/*/*/*.lock", common + "/caisson-*", common + "/worktrees/*/caisson-*",
		wd.state + "/updates/*", wd.state + "/making/*",
	} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			wd.t.Errorf("%q is left, %v", left, err)
		}
	}
}
