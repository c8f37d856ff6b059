package workspace_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(wd *world)
		spec    workspace.CreateSpec
		code    caisson.Code
	}{
		"no repository": {func(wd *world) { wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git"))) }, workspace.CreateSpec{}, caisson.CodeNoRepository},
		"changed file":  {func(wd *world) { wd.write(filepath.Join(wd.repo, "a.txt"), "changed") }, workspace.CreateSpec{}, caisson.CodeBaseUnusable},
		"staged only": {func(wd *world) {
			wd.write(filepath.Join(wd.repo, "n"), "x")
			wd.git("add", "n")
			wd.must(os.Remove(filepath.Join(wd.repo, "n")))
		}, workspace.CreateSpec{}, caisson.CodeBaseUnusable},
		"detached":          {func(wd *world) { wd.git("switch", "-q", "--detach") }, workspace.CreateSpec{}, caisson.CodeBaseUnusable},
		"unborn":            {func(wd *world) { wd.git("switch", "-q", "--orphan", "fresh") }, workspace.CreateSpec{}, caisson.CodeBaseUnusable},
		"no such base":      {nil, workspace.CreateSpec{Base: "--all"}, caisson.CodeBaseUnusable},
		"branch exists":     {func(wd *world) { wd.git("branch", "b") }, workspace.CreateSpec{Branch: "b"}, caisson.CodeBranchExists},
		"branch in the way": {func(wd *world) { wd.git("branch", "caisson") }, workspace.CreateSpec{}, caisson.CodeBranchExists},
		"checked out":       {nil, workspace.CreateSpec{Branch: "main"}, caisson.CodeBranchCheckedOut},
		"bad branch":        {nil, workspace.CreateSpec{Branch: "a..b"}, caisson.CodeUsage},
		"option as branch":  {nil, workspace.CreateSpec{Branch: "-f"}, caisson.CodeUsage},
		"bad name":          {nil, workspace.CreateSpec{Name: "../x"}, caisson.CodeUsage},
		"reftable": {func(wd *world) {
			wd.git("config", "core.repositoryFormatVersion", "1")
			wd.git("config", "extensions.refStorage", "reftable")
		}, workspace.CreateSpec{}, caisson.CodeRepositoryUnsupported},
		"borrowed secrets": {func(wd *world) {
			wd.write(filepath.Join(wd.repo, ".git", "objects", "info", "alternates"), wd.home+"\n")
		}, workspace.CreateSpec{}, caisson.CodeRepositoryUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			if c.prepare != nil {
				c.prepare(wd)
			}
			refs, _ := wd.tryGit(wd.repo, "for-each-ref")
			c.spec.Dir = wd.repo
			_, err := wd.w.Create(t.Context(), c.spec)
			wantCode(t, err, c.code)
			wd.wantNothingMade(refs)
		})
	}
}

// wantNothingMade checks that a create that did not succeed left nothing.
func (wd *world) wantNothingMade(refs string) {
	wd.t.Helper()
	if now, _ := wd.tryGit(wd.repo, "for-each-ref"); now != refs {
		wd.t.Errorf("references: %s", now)
	}
	for _, pattern := range []string{wd.state + "/workspaces/*/*", wd.state + "/shadows/*", wd.repo + "/.git/worktrees"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			wd.t.Errorf("left: %q", left)
		}
	}
	if all, _ := wd.store.Workspaces(wd.t.Context(), caisson.WorkspaceFilter{}); len(all) > 0 {
		wd.t.Errorf("recorded: %v", all)
	}
}

func TestCreateRollsBack(t *testing.T) { forModes(t, testCreateRollsBack) }

func testCreateRollsBack(t *testing.T) {
	wd := newWorld(t)
	refs, _ := wd.tryGit(wd.repo, "for-each-ref")
	wd.store.err = caisson.Errorf(caisson.CodeDiskFull, "no space")
	_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Mode: wd.mode})
	wantCode(t, err, caisson.CodeDiskFull)
	wd.wantNothingMade(refs)
}

// The disk is full in the middle of the checkout.
func TestCreateOnFullDisk(t *testing.T) { forModes(t, testCreateOnFullDisk) }

func testCreateOnFullDisk(t *testing.T) {
	wd := newWorld(t)
	if os.Getuid() != 0 {
		t.Skip("needs root to make a small file system")
	}
	wd.write(filepath.Join(wd.repo, "big"), strings.Repeat("x", 3<<20))
	wd.git("add", "-A")
	wd.git("commit", "-qm", "big")
	trees := filepath.Join(wd.state, "workspaces")
	wd.must(os.MkdirAll(trees, 0o755))
	if err := syscall.Mount("tmpfs", trees, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	t.Cleanup(func() { wd.must(syscall.Unmount(trees, 0)) })
	refs, _ := wd.tryGit(wd.repo, "for-each-ref")
	_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Mode: wd.mode})
	wantCode(t, err, caisson.CodeDiskFull)
	wd.wantNothingMade(refs)
}

func TestCreateFromOtherPlaces(t *testing.T) { forModes(t, testCreateFromOtherPlaces) }

func testCreateFromOtherPlaces(t *testing.T) {
	for name, prepare := range map[string]func(wd *world) workspace.CreateSpec{
		"subdirectory": func(wd *world) workspace.CreateSpec { return workspace.CreateSpec{Dir: filepath.Join(wd.repo, "sub")} },
		"dirty, base": func(wd *world) workspace.CreateSpec {
			wd.write(filepath.Join(wd.repo, "a.txt"), "x")
			return workspace.CreateSpec{Dir: wd.repo, Base: "HEAD"}
		},
		"detached, base": func(wd *world) workspace.CreateSpec {
			wd.git("switch", "-q", "--detach")
			return workspace.CreateSpec{Dir: wd.repo, Base: "HEAD"}
		},
		"untracked": func(wd *world) workspace.CreateSpec {
			wd.write(filepath.Join(wd.repo, "u"), "x")
			return workspace.CreateSpec{Dir: wd.repo}
		},
		"packed": func(wd *world) workspace.CreateSpec {
			wd.git("gc", "-q")
			return workspace.CreateSpec{Dir: wd.repo}
		},
		"through a link": func(wd *world) workspace.CreateSpec {
			wd.must(os.Symlink(wd.repo, wd.repo+"-link"))
			return workspace.CreateSpec{Dir: wd.repo + "-link"}
		},
		"linked worktree": func(wd *world) workspace.CreateSpec {
			wd.git("worktree", "add", "-q", "-b", "mine", wd.repo+"-mine")
			return workspace.CreateSpec{Dir: wd.repo + "-mine"}
		},
		"a workspace's tree": func(wd *world) workspace.CreateSpec {
			return workspace.CreateSpec{Dir: wd.create(workspace.CreateSpec{Name: "outer"}).Path}
		},
		"bare": func(wd *world) workspace.CreateSpec {
			wd.git("clone", "-q", "--bare", wd.repo, wd.repo+".git")
			return workspace.CreateSpec{Dir: wd.repo + ".git"}
		},
		"borrowing": func(wd *world) workspace.CreateSpec {
			wd.git("clone", "-q", "--shared", wd.repo, wd.repo+"-shared")
			return workspace.CreateSpec{Dir: wd.repo + "-shared"}
		},
		"sha256": func(wd *world) workspace.CreateSpec {
			dir := wd.repo + "-256"
			wd.git("init", "-q", "--object-format=sha256", dir)
			wd.write(filepath.Join(dir, "a.txt"), "x")
			wd.gitIn(dir, "add", "-A")
			wd.gitIn(dir, "commit", "-qm", "first")
			return workspace.CreateSpec{Dir: dir}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			spec := prepare(wd)
			spec.Name = "r1"
			ws := wd.create(spec)
			box := newBox(t, ws)
			inside(t, box, "test -z \"$(git status --porcelain)\"; echo more >>a.txt; git commit -qam inside; echo u >u")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.IndexKept != "" {
				t.Fatalf("%+v", got)
			}
			if _, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1); err != nil {
				t.Fatal(err)
			}
			if s := wd.status(ws, box); s != "?? u" {
				t.Fatalf("outer status %q", s)
			}
			if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "fresh"}); caisson.CodeOf(err) != caisson.CodeNotFound {
				t.Fatal(err)
			}
			wd.gitIn(ws.Binding.CommonDir, "branch", "into", ws.Base)
			if m, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "into", Mode: workspace.MergeSquash}); err != nil || m.New == m.Old {
				t.Fatal(m, err)
			}
			wd.gitIn(ws.Binding.CommonDir, "worktree", "prune")
			wd.must(wd.w.Check(t.Context(), ws))
		})
	}
}

func TestCreateAtOnce(t *testing.T) { forModes(t, testCreateAtOnce) }

func testCreateAtOnce(t *testing.T) {
	wd := newWorld(t)
	const n = 8
	var wg sync.WaitGroup
	made, errs := make([]caisson.Workspace, n), make([]error, n)
	for i := range n {
		w := wd.w
		if i%2 == 1 {
			w = wd.open() // as another process
		}
		wg.Go(func() {
			made[i], errs[i] = w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Name: fmt.Sprint("r", i), Mode: wd.mode})
		})
	}
	wg.Wait()
	wd.must(errors.Join(errs...))
	boxes := make([]*box, n)
	for i, ws := range made {
		boxes[i] = newBox(t, ws)
		inside(t, boxes[i], fmt.Sprintf("echo %d >n%d; git add -A; git commit -qm inside", i, i))
	}
	for i, ws := range made {
		wg.Go(func() { _, errs[i] = wd.open().Import(t.Context(), ws, boxes[i], workspace.ImportOptions{}) })
	}
	wg.Wait()
	wd.must(errors.Join(errs...))
	for i, ws := range made {
		if s := wd.status(ws, boxes[i], "--branch"); s != "## "+ws.Branch {
			t.Errorf("%s: %q", ws.Name, s)
		}
	}
	// The same name at once: one of them.
	for i := range n {
		wg.Go(func() {
			_, errs[i] = wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Name: "same", Mode: wd.mode})
		})
	}
	wg.Wait()
	good := 0
	for _, err := range errs {
		if err == nil {
			good++
		}
	}
	if good != 1 {
		t.Fatalf("%d creates of one name: %v", good, errs)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	one := wd.create(workspace.CreateSpec{Name: "alpha", Run: "rabc12"})
	two := wd.create(workspace.CreateSpec{Name: "beta", Run: "rabd34", Branch: "feature"})
	for ref, want := range map[string]caisson.WorkspaceID{
		"alpha": one.ID, "caisson/alpha": one.ID, "rabc12": one.ID, "rabc": one.ID, string(one.ID): one.ID,
		"1": two.ID, "2": one.ID, "feature": two.ID, "refs/heads/feature": two.ID,
	} {
		got, err := wd.w.Find(t.Context(), wd.repo, ref)
		if err != nil || got.ID != want {
			t.Errorf("%s: %v, %v", ref, got.ID, err)
		}
	}
	_, err := wd.w.Find(t.Context(), two.Path, "rab")
	wantCode(t, err, caisson.CodeAmbiguous)
	if c, _ := caisson.AsError(err).Detail["candidates"].([]string); len(c) != 2 {
		t.Fatalf("%v", c)
	}
	for _, ref := range []string{"", "3", "nobody"} {
		_, err = wd.w.Find(t.Context(), wd.repo, ref)
		wantCode(t, err, caisson.CodeNotFound)
	}
}
