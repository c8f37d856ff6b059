//go:build linux

package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
	"github.com/caisson-run/caisson/workspace"
)

// opened is a box with the engine that made it.
type opened struct {
	caisson.Sandbox
	engine *namespace.Engine
}

func (o opened) Close() error { return errors.Join(o.Sandbox.Close(), o.engine.Close()) }

// openBox opens a box of the built-in engine around a workspace.
func openBox(ctx context.Context, ws caisson.Workspace) (workspace.OpenedBox, error) {
	engine := namespace.New(namespace.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()})
	sandbox, err := engine.Open(ctx, around(ws))
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return opened{sandbox, engine}, nil
}

// boxes lets the world's Workspaces open boxes by themselves.
func (wd *world) boxes() {
	wd.w = workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Box: openBox})
}

// trashWorld is a world with a workspace in which something was done inside.
func trashWorld(t *testing.T, work string) (*world, caisson.Workspace) {
	t.Helper()
	wd := newWorld(t)
	wd.boxes()
	ws := wd.create(workspace.CreateSpec{Name: "r7"})
	wd.work(ws, work)
	return wd, ws
}

// work does something inside, in a box of its own.
func (wd *world) work(ws caisson.Workspace, line string) {
	wd.t.Helper()
	if line == "" {
		return
	}
	if out, code := wd.tryWork(ws, line); code != 0 {
		wd.t.Fatalf("inside: %s: status %d\n%s", line, code, out)
	}
}

func (wd *world) tryWork(ws caisson.Workspace, line string) (string, int) {
	wd.t.Helper()
	box, err := openBox(wd.t.Context(), ws)
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		wd.t.Skipf("needs a boundary: %v", err)
	}
	wd.must(err)
	defer func() { wd.must(box.Close()) }()
	var out bytes.Buffer
	p, err := box.Hold(wd.t.Context(), caisson.Command{Line: line, Stdout: &out, Stderr: &out})
	wd.must(err)
	wd.must(p.Release())
	exit, err := p.Wait(wd.t.Context())
	wd.must(err)
	return out.String(), exit.Code
}

func (wd *world) inspect(ws caisson.Workspace) workspace.Inspection {
	wd.t.Helper()
	found, err := wd.w.Inspect(wd.t.Context(), ws, workspace.InspectOptions{Import: workspace.ImportOptions{AllowRewrite: true}})
	if err != nil {
		wd.t.Fatal(err)
	}
	if slices.ContainsFunc(found.Losses, func(l workspace.Loss) bool {
		return l.Kind == workspace.LossUnknown && strings.Contains(string(l.How), "boundary")
	}) {
		wd.t.Skip("needs a boundary")
	}
	return found
}

// discard is the permit of a person who was shown what was found.
func discard(t testing.TB, found workspace.Inspection) workspace.Permit {
	t.Helper()
	d := workspace.Decide(found, workspace.Ask{Word: found.Digest()})
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
	return d.Permit
}

func (wd *world) remove(permit workspace.Permit) workspace.Trashed {
	wd.t.Helper()
	trashed, err := wd.w.Remove(wd.t.Context(), permit, "ada")
	if err != nil {
		wd.t.Fatal(err)
	}
	return trashed
}

func (wd *world) restore(ws caisson.Workspace) caisson.Workspace {
	wd.t.Helper()
	back, err := wd.w.Restore(wd.t.Context(), ws.ID)
	if err != nil {
		wd.t.Fatal(err)
	}
	if err := wd.w.Check(wd.t.Context(), back); err != nil {
		wd.t.Fatal(err)
	}
	return back
}

func lossesOf(found workspace.Inspection, kind workspace.LossKind) []string {
	var list []string
	for _, l := range found.Losses {
		if l.Kind == kind {
			list = append(list, string(l.What))
		}
	}
	return list
}

// files lists all that is below a directory, with content, mode and target.
func files(t testing.TB, dir string, skip ...string) map[string]string {
	if dir == "" {
		return nil // a clone has no record in the repository
	}
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if errors.Is(err, fs.ErrPermission) {
			all[rel+"/"] = "closed"
			return nil
		}
		if err != nil {
			return err
		}
		if slices.Contains(skip, rel) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrPermission) {
				raw, err = fmt.Appendf(nil, "%d bytes", info.Size()), nil
			}
			if err != nil {
				return err
			}
			if !strings.Contains(rel, "objects/") { // whose times git moves when it has use for them
				what += " " + info.ModTime().String()
			}
			what += "\n" + string(raw)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " → " + to
		}
		all[rel] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// everything is all that a restored workspace must have again.
type everything struct {
	Tree, Private, Admin map[string]string
	Refs, Tip, Log       string
}

func (wd *world) everything(ws caisson.Workspace) everything {
	wd.t.Helper()
	tip, _ := wd.tryGit(wd.repo, "rev-parse", "--verify", "--quiet", "refs/heads/"+ws.Branch)
	log, _ := wd.tryGit(wd.repo, "reflog", "show", "refs/heads/"+ws.Branch)
	return everything{
		Tree: files(wd.t, ws.Path), Private: files(wd.t, filepath.Dir(ws.Home), "lock"), Admin: files(wd.t, ws.Binding.AdminDir),
		Refs: wd.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/caisson", "refs/heads"), Tip: tip, Log: log,
	}
}

// A workspace with nothing of its own goes without a question, its branch with it.
func TestRemoveClean(t *testing.T) { forModes(t, testRemoveClean) }

func testRemoveClean(t *testing.T) {
	wd, ws := trashWorld(t, "")
	found := wd.inspect(ws)
	d := workspace.Decide(found, workspace.Ask{Batch: true})
	if d.Mode != workspace.ModeClean {
		t.Fatalf("%s %v", d.Why, d.Losses)
	}
	before := wd.everything(ws)
	trashed := wd.remove(d.Permit)
	if !trashed.BranchDeleted || exists(ws.Path) || exists(ws.Binding.AdminDir) || exists(filepath.Dir(ws.Home)) {
		t.Fatalf("%+v", trashed)
	}
	if _, err := wd.tryGit(wd.repo, "rev-parse", "--verify", "--quiet", ws.Branch); err == nil {
		t.Error("the branch is left")
	}
	if s := wd.git("worktree", "list"); strings.Contains(s, "r7") {
		t.Error(s)
	}
	if list, err := wd.w.List(t.Context(), wd.repo); err != nil || len(list) > 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if n := residue(t, wd); n > 0 {
		t.Errorf("%d things of it are residue", n)
	}
	if diff := cmp.Diff(before, wd.everything(wd.restore(ws))); diff != "" {
		t.Error(diff)
	}
	if exists(filepath.Join(wd.state, "trash", string(ws.ID))) {
		t.Error("it is in the trash still")
	}
}

// Origin: cc 79899, where a clean status was taken for nothing to lose.
func TestCase_W01(t *testing.T) { forModes(t, testCaseW01) }

func testCaseW01(t *testing.T) {
	wd, ws := trashWorld(t, "echo x >x; git add x; git commit -qm unpushed")
	found := wd.inspect(ws)
	if got := lossesOf(found, workspace.LossCommit); len(got) != 1 || len(found.Losses) != 1 {
		t.Fatalf("%v", found.Losses)
	}
	for _, ask := range []workspace.Ask{{}, {Batch: true}, {Batch: true, Word: found.Digest()}} {
		if d := workspace.Decide(found, ask); d.Mode != workspace.ModeRefused {
			t.Fatalf("%+v: %s", ask, d.Mode)
		}
	}
	before := wd.everything(ws)
	if trashed := wd.remove(discard(t, found)); trashed.BranchDeleted {
		t.Error("a branch was deleted whose commits are nowhere else")
	}
	wd.git("update-ref", "-d", "refs/heads/"+ws.Branch) // the person does it by hand
	wd.git("reflog", "expire", "--expire=now", "--all")
	wd.git("gc", "-q", "--prune=now")
	after := wd.everything(wd.restore(ws))
	before.Log, after.Log = "", ""
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	// Merged, nothing of it is only here.
	wd.git("merge", "-q", ws.Branch)
	d := workspace.Decide(wd.inspect(ws), workspace.Ask{Batch: true})
	if d.Mode != workspace.ModeClean {
		t.Fatalf("%v", d.Losses)
	}
	if trashed := wd.remove(d.Permit); !trashed.BranchDeleted {
		t.Error("a branch is left whose commits are all on another")
	}
}

// Origin: git itself, which removes ignored files without a word.
func TestCase_W02(t *testing.T) { forModes(t, testCaseW02) }

func testCaseW02(t *testing.T) {
	wd, ws := trashWorld(t, `printf '.env\n*.db\nnode_modules/\nbig*\n' >.gitignore; git add -A; git commit -qm ignore
		echo KEY=1 >.env; mkdir -p data node_modules/x; echo db >data/my.db; echo k >node_modules/x/server.key; echo l >a.log; truncate -s 20M big`)
	wd.git("merge", "-q", ws.Branch)
	wd.importInto(ws)
	found := wd.inspect(ws)
	if got := lossesOf(found, workspace.LossIgnored); !slices.Equal(got, []string{".env", "big", "data/my.db"}) {
		t.Fatalf("%v", found.Losses)
	}
	if d := workspace.Decide(found, workspace.Ask{Batch: true}); d.Mode != workspace.ModeRefused {
		t.Fatal(d.Mode)
	}
	before := wd.everything(ws)
	wd.remove(discard(t, found))
	if diff := cmp.Diff(before, wd.everything(wd.restore(ws))); diff != "" {
		t.Error(diff)
	}
	if raw, err := os.ReadFile(filepath.Join(ws.Path, ".env")); err != nil || string(raw) != "KEY=1\n" {
		t.Errorf("%q, %v", raw, err)
	}
}

// importInto imports and merges what was committed inside.
func (wd *world) importInto(ws caisson.Workspace) {
	wd.t.Helper()
	wd.inspect(ws)
	wd.git("merge", "-q", ws.Branch)
}

// Origin: ai-agents PR4718, where commits that only a reflog knew went.
func TestCase_W03(t *testing.T) { forModes(t, testCaseW03) }

func testCaseW03(t *testing.T) {
	wd, ws := trashWorld(t, "for i in 1 2 3; do echo $i >f; git add f; git commit -qm lost-$i; done; git reset -q --hard HEAD~3")
	found := wd.inspect(ws)
	if got := lossesOf(found, workspace.LossReflog); len(got) != 3 {
		t.Fatalf("%v", found.Losses)
	}
	lost := lossesOf(found, workspace.LossReflog)[0]
	before := wd.everything(ws)
	wd.remove(discard(t, found))
	wd.git("reflog", "expire", "--expire=now", "--all")
	wd.git("gc", "-q", "--prune=now")
	if s := wd.git("log", "-1", "--format=%s", lost); s != "lost-3" {
		t.Fatalf("%s is not kept: %q", lost, s)
	}
	if refs := wd.git("for-each-ref", "--contains="+lost, "refs/caisson/trash/"+string(ws.ID)); refs == "" {
		t.Fatal("it is not pinned")
	}
	back := wd.restore(ws)
	after := wd.everything(back)
	before.Log, after.Log = "", ""
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	wd.work(back, "git reset -q --hard HEAD@{1}; test $(git log --format=%s -1) = lost-3; test $(cat f) = 3")
}

// Origin: reading of peers, which look, ask, and remove what is there by then.
func TestCase_W04(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said   string
		change func(t *testing.T, wd *world, ws caisson.Workspace)
	}{
		"a new file": {"files in it", func(_ *testing.T, wd *world, ws caisson.Workspace) { wd.write(filepath.Join(ws.Path, "new"), "x") }},
		"the same size, within the same second": {"files in it", func(t *testing.T, wd *world, ws caisson.Workspace) {
			wd.write(filepath.Join(ws.Path, "a.txt"), "eno\n")
		}},
		"an ignored file": {"files in it", func(_ *testing.T, wd *world, ws caisson.Workspace) { wd.write(filepath.Join(ws.Path, "x.log"), "x") }},
		"a mode": {"files in it", func(_ *testing.T, wd *world, ws caisson.Workspace) {
			wd.must(os.Chmod(filepath.Join(ws.Path, "a.txt"), 0o755))
		}},
		"a commit inside": {"its git directory", func(_ *testing.T, wd *world, ws caisson.Workspace) {
			wd.work(ws, "git commit -q --allow-empty -m late")
		}},
		"staged by hand": {"its record in the repository", func(_ *testing.T, wd *world, ws caisson.Workspace) {
			wd.write(filepath.Join(ws.Path, "a.txt"), "y")
			wd.gitIn(ws.Path, "add", "a.txt")
			wd.write(filepath.Join(ws.Path, "a.txt"), "one\n")
		}},
		"the branch moved by hand": {"its branch", func(_ *testing.T, wd *world, ws caisson.Workspace) {
			wd.git("commit", "-q", "--allow-empty", "-m", "later")
			wd.git("update-ref", "refs/heads/"+ws.Branch, "main")
		}},
		"a process goes there": {"(sleep): ", func(t *testing.T, wd *world, ws caisson.Workspace) { stays(t, ws.Path, "sleep", "1000") }},
		"a process has a file of it open": {"(sleep): ", func(t *testing.T, wd *world, ws caisson.Workspace) {
			stays(t, wd.home, "sh", "-c", "exec sleep 1000 <'"+filepath.Join(ws.Path, "a.txt")+"'")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd, ws := trashWorld(t, "")
			found := wd.inspect(ws)
			d := workspace.Decide(found, workspace.Ask{})
			if d.Mode != workspace.ModeClean {
				t.Fatalf("%v", d.Losses)
			}
			c.change(t, wd, ws)
			before := wd.everything(ws)
			_, err := wd.w.Remove(t.Context(), d.Permit, "ada")
			wantCode(t, err, caisson.CodeWorkspaceDirty)
			if _, said, _ := strings.Cut(err.Error(), "was looked at ("); !strings.Contains(said, c.said) {
				t.Errorf("%v, want %q", err, c.said)
			}
			if diff := cmp.Diff(before, wd.everything(ws)); diff != "" {
				t.Error(diff)
			}
			if err := wd.w.Check(t.Context(), ws); err != nil {
				t.Error(err)
			}
			if n := residue(t, wd); n > 0 || exists(filepath.Join(wd.state, "trash", string(ws.ID))) {
				t.Errorf("%d things are left of the attempt", n)
			}
		})
	}
}

// Origin: ai-agents PR4728, where a rebase under way and stashes were removed.
func TestCase_W09(t *testing.T) {
	t.Parallel()
	conflict := "set -e; git switch -qc other; echo theirs >a.txt; git commit -qam theirs; git switch -q caisson/r7; echo ours >a.txt; git commit -qam ours; "
	for name, c := range map[string]struct {
		work string
		kind workspace.LossKind
		what string
		test string // holds inside after it was restored
	}{
		"merge":       {conflict + "git merge -q other || true", workspace.LossOperation, "merge", "test -f $(git rev-parse --git-dir)/MERGE_HEAD; git ls-files -u | grep -q a.txt; git merge --abort"},
		"rebase":      {conflict + "git rebase -q other || true", workspace.LossOperation, "rebase", "git rebase --abort; test $(git log -1 --format=%s) = ours"},
		"cherry-pick": {conflict + "git cherry-pick other || true", workspace.LossOperation, "cherry-pick", "git cherry-pick --abort"},
		"revert":      {conflict + "echo x >a.txt; git commit -qam x; git revert HEAD~1 || true", workspace.LossOperation, "revert", "git revert --abort"},
		"bisect":      {"git commit -q --allow-empty -m two; git bisect start; git bisect bad; git bisect good HEAD~1", workspace.LossOperation, "bisect", "git bisect reset"},
		"stashes":     {"echo a >>a.txt; git stash -q; echo b >>a.txt; git stash -q", workspace.LossStash, "stash@{1}", "test $(git stash list | wc -l) = 2; git stash drop -q; git stash pop -q; grep -q a a.txt"},
		"detached":    {"git switch -q --detach; git commit -q --allow-empty -m detached", workspace.LossRef, "HEAD", "test $(git log -1 --format=%s) = detached"},
		"branch":      {"git branch side; git switch -q side; git commit -q --allow-empty -m side; git switch -q caisson/r7", workspace.LossRef, "refs/heads/side", "test $(git log -1 --format=%s side) = side"},
		"tag":         {"git tag -a v1 -m one", workspace.LossRef, "refs/tags/v1", "git cat-file -e v1^{tag}"},
		"staged":      {"echo staged >s; git add s; rm s", workspace.LossChange, "s", "test $(git show :s) = staged"},
		"overlooked":  {"git update-index --assume-unchanged a.txt; echo hidden >a.txt", workspace.LossUnknown, "a.txt", "grep -q hidden a.txt"},
		"repository":  {"git init -q nested; echo x >nested/x", workspace.LossChange, "nested/", "test -d nested/.git"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd, ws := trashWorld(t, c.work)
			found := wd.inspect(ws)
			if got := lossesOf(found, c.kind); !slices.Contains(got, c.what) {
				t.Fatalf("%v", found.Losses)
			}
			if name != "overlooked" && found.Has(workspace.LossUnknown) {
				t.Errorf("%v", found.Losses)
			}
			before := wd.everything(ws)
			wd.remove(discard(t, found))
			wd.git("reflog", "expire", "--expire=now", "--all")
			wd.git("gc", "-q", "--prune=now")
			back := wd.restore(ws)
			after := wd.everything(back)
			before.Log, after.Log = "", ""
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error(diff)
			}
			wd.work(back, "set -e; git fsck --strict --no-dangling >/dev/null; "+c.test)
		})
	}
}
