package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// kind makes a repository of a kind from the world's and returns where it is.
type kind struct {
	make    func(wd *world) string
	refused string // part of the reason; "" where it works
}

// clone clones the world's repository over git's own protocol.
func (wd *world) clone(args ...string) string {
	wd.t.Helper()
	wd.git("config", "uploadpack.allowFilter", "true")
	wd.git("config", "uploadpack.allowAnySHA1InWant", "true")
	dir := wd.repo + "-clone"
	wd.git(append(append([]string{"clone", "-q", "--no-local"}, args...), "file://"+wd.repo, dir)...)
	return dir
}

// grow gives the repository a longer history.
func (wd *world) grow() {
	wd.t.Helper()
	for _, text := range []string{"two", "three"} {
		wd.write(filepath.Join(wd.repo, "a.txt"), text+"\n"+strings.Repeat("line\n", 50))
		wd.write(filepath.Join(wd.repo, "sub", "deep", "c.txt"), text+"\n")
		wd.git("add", "-A")
		wd.git("commit", "-qm", text)
	}
}

// withSubmodule adds a submodule, which has one itself, to the repository.
func (wd *world) withSubmodule() {
	wd.t.Helper()
	for _, name := range []string{"inner", "dep"} {
		dir := filepath.Join(filepath.Dir(wd.repo), name)
		wd.git("init", "-q", dir)
		wd.write(filepath.Join(dir, name+".txt"), name+"\n")
		if name == "dep" {
			wd.gitIn(dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../inner", "in/ner")
		}
		wd.gitIn(dir, "add", "-A")
		wd.gitIn(dir, "commit", "-qm", name)
	}
	wd.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--name", "dep-name", "../dep", "libs/dep")
	wd.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--recursive")
	wd.git("commit", "-qm", "with dep")
}

func kinds() map[string]kind {
	here := func(prepare func(wd *world)) func(wd *world) string {
		return func(wd *world) string { prepare(wd); return wd.repo }
	}
	return map[string]kind{
		"plain":  {make: here(func(*world) {})},
		"packed": {make: here(func(wd *world) { wd.grow(); wd.git("gc", "-q") })},
		"bare": {make: func(wd *world) string {
			wd.git("clone", "-q", "--bare", wd.repo, wd.repo+".git")
			return wd.repo + ".git"
		}},
		"bare, with worktrees": {make: func(wd *world) string {
			wd.git("clone", "-q", "--bare", wd.repo, wd.repo+".git")
			wd.gitIn(wd.repo+".git", "worktree", "add", "-q", wd.repo+"-tree", "main")
			return wd.repo + "-tree"
		}},
		"worktree of a worktree": {make: func(wd *world) string {
			wd.git("worktree", "add", "-qb", "one", wd.repo+"-one")
			wd.gitIn(wd.repo+"-one", "worktree", "add", "-qb", "two", wd.repo+"-two")
			return wd.repo + "-two"
		}},
		"settings of a worktree": {make: func(wd *world) string {
			wd.git("config", "extensions.worktreeConfig", "true")
			wd.git("config", "--worktree", "core.bare", "false")
			wd.git("worktree", "add", "-qb", "one", wd.repo+"-one")
			wd.gitIn(wd.repo+"-one", "sparse-checkout", "set", "--cone", "sub")
			return wd.repo + "-one"
		}},
		"sha256": {make: func(wd *world) string {
			dir := wd.repo + "-256"
			wd.git("init", "-q", "--object-format=sha256", dir)
			wd.write(filepath.Join(dir, "a.txt"), "one\n")
			wd.gitIn(dir, "add", "-A")
			wd.gitIn(dir, "commit", "-qm", "first")
			return dir
		}},
		"shared": {make: func(wd *world) string {
			wd.git("clone", "-q", "--shared", wd.repo, wd.repo+"-shared")
			return wd.repo + "-shared"
		}},
		"borrowing of one that borrows": {make: func(wd *world) string {
			wd.grow()
			wd.git("clone", "-q", "--reference", wd.repo, "file://"+wd.repo, wd.repo+"-one")
			wd.git("clone", "-q", "--shared", wd.repo+"-one", wd.repo+"-two")
			return wd.repo + "-two"
		}},
		"shallow":                {make: func(wd *world) string { wd.grow(); return wd.clone("--depth=1") }},
		"shallow, of two":        {make: func(wd *world) string { wd.grow(); return wd.clone("--depth=2") }},
		"partial, blobs":         {make: func(wd *world) string { wd.grow(); return wd.clone("--filter=blob:none") }},
		"partial, trees":         {make: func(wd *world) string { wd.grow(); return wd.clone("--filter=tree:0") }},
		"partial, large blobs":   {make: func(wd *world) string { wd.grow(); return wd.clone("--filter=blob:limit=50") }},
		"partial and shallow":    {make: func(wd *world) string { wd.grow(); return wd.clone("--filter=blob:none", "--depth=1") }},
		"partial, not fetched":   {make: func(wd *world) string { wd.grow(); return wd.clone("--filter=blob:none", "--no-checkout") }, refused: "have not been fetched"},
		"partial, trees missing": {make: func(wd *world) string { wd.grow(); return wd.clone("--filter=tree:0", "--no-checkout") }, refused: "have not been fetched"},
		"partial and sparse": {make: func(wd *world) string {
			wd.grow()
			return wd.clone("--filter=blob:none", "--sparse")
		}, refused: "have not been fetched"},
		"submodules": {make: here((*world).withSubmodule)},
		"submodules, not fetched": {make: func(wd *world) string {
			wd.withSubmodule()
			return wd.clone()
		}},
		"submodules, from a worktree": {make: func(wd *world) string {
			wd.withSubmodule()
			wd.git("worktree", "add", "-qb", "one", wd.repo+"-one")
			wd.gitIn(wd.repo+"-one", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
			return wd.repo + "-one"
		}},
		"a submodule that nothing names": {make: here(func(wd *world) {
			wd.git("update-index", "--add", "--cacheinfo", "160000,"+wd.git("rev-parse", "HEAD")+",dep")
			wd.git("commit", "-qm", "dep")
			wd.must(os.Mkdir(filepath.Join(wd.repo, "dep"), 0o755))
		})},
		"lfs, pointers": {make: here(func(wd *world) {
			wd.write(filepath.Join(wd.repo, ".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n")
			wd.write(filepath.Join(wd.repo, "x.bin"), pointerTo("content"))
			wd.git("add", "-A")
			wd.git("commit", "-qm", "lfs")
		})},
		"reftable": {make: here(func(wd *world) {
			wd.git("config", "core.repositoryFormatVersion", "1")
			wd.git("config", "extensions.refStorage", "reftable")
		}), refused: "refstorage"},
		"an extension nobody knows": {make: here(func(wd *world) {
			wd.git("config", "core.repositoryFormatVersion", "1")
			wd.git("config", "extensions.fromTheFuture", "true")
		}), refused: "fromthefuture"},
		"relative worktrees": {make: here(func(wd *world) {
			wd.git("config", "core.repositoryFormatVersion", "1")
			wd.git("config", "extensions.relativeWorktrees", "true")
		}), refused: "relativeworktrees"},
	}
}

// Each kind of repository works from end to end, or is refused at create with
// the reason and nothing made. Origin: sbx 460, container-use 161.
func TestCase_W10(t *testing.T) { forModes(t, testCaseW10) }

func testCaseW10(t *testing.T) {
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			dir := k.make(wd)
			if strings.HasPrefix(name, "re") && !wd.gitIs(2, 39) { // what it makes of these differs
				t.Skip("needs git 2.39: a newer one knows this extension, and its own repositories of that kind")
			}
			wd.repo = dir
			refs, _ := wd.tryGit(dir, "for-each-ref")
			ws, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: dir, Name: "r10", Run: "r10", Mode: wd.mode})
			if k.refused != "" {
				wantCode(t, err, caisson.CodeRepositoryUnsupported)
				if !strings.Contains(err.Error(), k.refused) {
					t.Fatalf("the reason is %q", err)
				}
				wd.wantNothingMade(refs)
				if !strings.HasPrefix(name, "partial") {
					return
				}
				// What the hint says helps.
				hint := strings.Fields(strings.Split(caisson.AsError(err).Hint, "`")[1])
				wd.git(hint[1:]...)
				ws, err = wd.w.Create(t.Context(), workspace.CreateSpec{Dir: dir, Base: "HEAD", Name: "r10", Run: "r10", Mode: wd.mode})
			}
			wd.must(err)
			wd.worksThrough(dir, ws)
		})
	}
}

func (wd *world) gitIs(major, minor int) bool {
	out, _ := wd.tryGit(wd.home, "version")
	f := strings.Fields(out)
	return len(f) > 2 && strings.HasPrefix(f[2], strings.Join([]string{itoa(major), itoa(minor), ""}, "."))
}

// worksThrough goes through the life of a workspace.
func (wd *world) worksThrough(dir string, ws caisson.Workspace) {
	t := wd.t
	t.Helper()
	box := newBox(t, ws)
	if s := inside(t, box, "git status --porcelain"); s != "" {
		t.Fatalf("new, and inside it is %q", s)
	}
	if s := wd.status(ws, box); s != "" {
		t.Fatalf("new, and outside it is %q", s)
	}
	inside(t, box, `set -e
for i in 1 2 3; do echo $i >>a.txt; git commit -qam c$i; done
git commit -q --amend -m c3-amended
GIT_SEQUENCE_EDITOR='sed -i 2s/pick/squash/' GIT_EDITOR=true git rebase -q -i HEAD~3
echo s >>a.txt; git stash -q; git stash pop -q; git checkout -q a.txt
git switch -qc other; echo o >o; git add o; git commit -qm on-other; git tag -a v1 -m v1; git switch -q -
git merge -q --no-edit --no-ff other
git revert --no-edit HEAD~1 >/dev/null
git cherry-pick --allow-empty --keep-redundant-commits other >/dev/null
git bisect start HEAD HEAD~1 >/dev/null; git bisect reset >/dev/null 2>&1
git sparse-checkout set sub; git sparse-checkout disable
git config extensions.worktreeConfig true; git config --worktree core.abbrev 12
git gc -q
test -z "$(git status --porcelain)"`)
	wd.importWhole(dir, ws, box)
	inside(t, box, "git gc -q --prune=now; git log -p -1 >/dev/null; echo last >>a.txt; git commit -qam last")
	wd.importWhole(dir, ws, box)
	if diff := wd.diff(ws, box, workspace.DiffOptions{}); !strings.Contains(diff, "+last") || strings.Contains(diff, "deleted file") {
		t.Errorf("diff: %s", diff)
	}
	if diff := wd.diff(ws, box, workspace.DiffOptions{From: ws.Base, To: ws.Branch}); !strings.Contains(diff, "+last") {
		t.Errorf("diff: %s", diff)
	}
	if snap, err := wd.w.Snapshot(t.Context(), ws, box, "r10", 1); err != nil || snap.Partial != "" {
		t.Errorf("snapshot: %+v, %v", snap, err)
	}
	log, err := wd.w.Log(t.Context(), ws, 0)
	if err != nil || len(log) < 5 {
		t.Errorf("log: %v, %v", log, err)
	}
	if ws.BaseRef != "" {
		if merged, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil || merged.New == merged.Old {
			t.Fatalf("merge: %+v, %v", merged, err)
		} else if merged.Checkout != "" {
			if s := wd.gitIn(merged.Checkout, "status", "--porcelain"); s != "" {
				t.Errorf("the checkout is %q after the merge", s)
			}
		}
	}
	wd.gitIn(dir, "branch", "merged", ws.Base)
	wd.gitIn(dir, "branch", "squashed", ws.Base)
	for _, opts := range []workspace.MergeOptions{{Into: "merged"}, {Into: "squashed", Mode: workspace.MergeSquash}} {
		merged, err := wd.w.Merge(t.Context(), ws, opts)
		if err != nil || merged.New == merged.Old {
			t.Fatalf("merge %+v: %+v, %v", opts, merged, err)
		}
	}
	wd.fsck(dir)
	wd.must(wd.w.Check(t.Context(), ws))
	inside(t, box, "git fsck --strict 2>&1 | (! grep -v dangling)")
}

func (wd *world) importWhole(dir string, ws caisson.Workspace, box *box) {
	wd.t.Helper()
	got := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true})
	if !got.Moved || got.IndexKept != "" || got.Unkept != "" {
		wd.t.Fatalf("import: %+v", got)
	}
	if s := wd.status(ws, box); s != "" {
		wd.t.Fatalf("outer status: %q", s)
	}
	wd.fsck(dir)
}

func (wd *world) fsck(dir string) {
	wd.t.Helper()
	out, err := wd.tryGit(dir, "fsck", "--strict", "--connectivity-only")
	if err != nil || strings.Contains(out, "missing") || strings.Contains(out, "broken") {
		wd.t.Errorf("fsck outside: %v\n%s", err, out)
	}
}
