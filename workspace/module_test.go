package workspace_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// A submodule's commits come home to the repository that it borrows from, and
// its tree is never below one in which a person's git looks.
func TestSubmodules(t *testing.T) { forModes(t, testSubmodules) }

func testSubmodules(t *testing.T) {
	wd := newWorld(t)
	wd.withSubmodule()
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	for _, m := range ws.Submodules {
		if m.Empty != "" || m.Nested != (m.Path == "libs/dep/in/ner") {
			t.Errorf("%+v", m)
		}
	}
	box := newBox(t, ws)
	if got := inside(t, box, "cat libs/dep/dep.txt libs/dep/in/ner/inner.txt; git submodule --quiet foreach --recursive 'git status --porcelain --branch'; git status --porcelain"); got != "dep\ninner\n## HEAD (no branch)\n## HEAD (no branch)" {
		t.Fatalf("inside: %q", got)
	}
	if entries, err := os.ReadDir(filepath.Join(ws.Path, "libs", "dep")); err != nil || len(entries) > 0 {
		t.Fatalf("outside: %v, %v", entries, err)
	}
	lost := inside(t, box, `set -e
cd libs/dep; git switch -qc topic; echo more >>dep.txt; git commit -qam one-in-dep; git tag v1
git stash -q 2>/dev/null || :; echo gone >>dep.txt; git commit -qam gone; git rev-parse HEAD; git reset -q --hard HEAD~1
cd in/ner; echo more >>inner.txt; git commit -qam in-inner; cd ..; cd ..
git add in/ner; git commit -qm two-in-dep
cd ../..; git add libs/dep; git commit -qm 'move dep'`)
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if !got.Moved || got.IndexKept != "" || got.Unkept != "" || len(got.Pinned) == 0 {
		t.Fatalf("%+v", got)
	}
	used := box.used()
	if again := wd.importOK(ws, box, workspace.ImportOptions{}); len(again.Pinned) > 0 || box.used() != used {
		t.Errorf("nothing was new: %+v", again)
	}
	if s := wd.status(ws, box); s != "" {
		t.Errorf("outer status %q", s)
	}
	if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	wd.loseShadow(ws)
	for _, dir := range []string{dep, filepath.Join(dep, "modules", "in", "ner")} {
		wd.gitIn(dir, "reflog", "expire", "--expire=now", "--all")
		wd.gitIn(dir, "gc", "-q", "--prune=now")
		wd.gitIn(dir, "fsck", "--strict")
	}
	wd.gitIn(dep, "rev-list", "--objects", lost)
	// The person takes it all without a network.
	wd.git("submodule", "--quiet", "update", "--recursive", "--no-fetch")
	if s := wd.git("-C", "libs/dep", "log", "-2", "--format=%s"); s != "two-in-dep\none-in-dep" {
		t.Errorf("the submodule is at %q", s)
	}
	if s := wd.git("-C", "libs/dep/in/ner", "log", "-1", "--format=%s"); s != "in-inner" {
		t.Errorf("the inner one is at %q", s)
	}
	if s := wd.git("status", "--porcelain"); s != "" {
		t.Errorf("status %q", s)
	}
}

// A clean-up of the submodule's own repository leaves what is borrowed of it.
func TestSubmoduleObjectsAreKept(t *testing.T) { forModes(t, testSubmoduleObjectsAreKept) }

func testSubmoduleObjectsAreKept(t *testing.T) {
	wd := newWorld(t)
	wd.withSubmodule()
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	wd.git("rm", "-qf", "libs/dep")
	wd.git("commit", "-qm", "without dep")
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	git := func(args ...string) string {
		return wd.gitIn(dep, append([]string{"--git-dir=.", "--work-tree=."}, args...)...)
	}
	git("update-ref", "--no-deref", "HEAD", git("commit-tree", "-m", "else", "HEAD^{tree}"))
	for _, ref := range strings.Fields(git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes")) {
		git("update-ref", "-d", ref)
	}
	git("reflog", "expire", "--expire=now", "--all")
	git("gc", "-q", "--prune=now")
	inside(t, box, "cd libs/dep; git fsck --strict; git checkout -q .; git log -p -1 >/dev/null; git status --porcelain")
	// What is gone altogether does not keep the workspace from being opened.
	wd.must(os.RemoveAll(dep))
	inside(t, newBox(t, ws), "git status --porcelain --ignore-submodules >/dev/null")
}

// A submodule that was not fetched is an empty directory, with the reason; so
// are those of names that lead elsewhere.
func TestSubmodulesThatStayEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(wd *world)
		why     string
	}{
		"not fetched": {func(wd *world) { wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git", "modules"))) }, "has not fetched it"},
		"commit not fetched": {func(wd *world) {
			wd.git("update-index", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",libs/dep")
			wd.git("commit", "-qm", "newer")
		}, "has not fetched its commit"},
		"no name": {func(wd *world) { wd.git("rm", "-q", "--cached", ".gitmodules"); wd.git("commit", "-qm", "x") }, "does not name it"},
		"a link to another place": {func(wd *world) {
			dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
			wd.must(os.Rename(dep, wd.home+"/dep"))
			wd.must(os.Symlink(wd.home+"/dep", dep))
		}, "a link to elsewhere"},
		"names that are no text": {func(wd *world) {
			wd.write(filepath.Join(wd.repo, ".gitmodules"), "[submodule \"a\xfe\"]\n\tpath = libs/dep\n\turl = x\n")
			wd.git("commit", "-qam", "x")
		}, "cannot be used"},
		"broken list": {func(wd *world) {
			wd.write(filepath.Join(wd.repo, ".gitmodules"), "[include]\n\tpath = /etc/passwd\n[submodule \"dep-name\"\n")
			wd.git("commit", "-qam", "x")
		}, "does not name it"},
		"borrowing anything": {func(wd *world) {
			wd.write(filepath.Join(wd.repo, ".git", "modules", "dep-name", "objects", "info", "alternates"), wd.home+"\n")
		}, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.withSubmodule()
			c.prepare(wd)
			ws := wd.create(workspace.CreateSpec{Base: "HEAD"})
			if len(ws.Submodules) != 1 || !strings.Contains(ws.Submodules[0].Empty, c.why) {
				t.Fatalf("%+v", ws.Submodules)
			}
			if ws.Objects[0] != filepath.Join(wd.repo, ".git", "objects") || len(ws.Objects) != 1 {
				t.Errorf("lent: %q", ws.Objects)
			}
			box := newBox(t, ws)
			if got := inside(t, box, "ls -A libs/dep"); got != "" {
				t.Errorf("inside: %q", got)
			}
			inside(t, box, "echo x >>a.txt; git add a.txt; git commit -qm x")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What git takes for an attack could never be imported.
func TestSubmodulesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		"[submodule \"../../../other/.git\"]\n\tpath = libs/dep\n\turl = x\n",
		"[submodule \"a/../b\"]\n\tpath = x\n\turl = x\n",
		"[submodule \"dep-name\"]\n\tpath = libs/dep\n\turl = --upload-pack=x\n",
		"[submodule \"dep-name\"]\n\tpath = -u\n\turl = x\n",
	} {
		wd := newWorld(t)
		wd.withSubmodule()
		wd.write(filepath.Join(wd.repo, ".gitmodules"), list)
		wd.git("commit", "-qam", "x")
		refs, _ := wd.tryGit(wd.repo, "for-each-ref")
		_, err := wd.w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Base: "HEAD"})
		wantCode(t, err, caisson.CodeRepositoryUnsupported)
		wd.wantNothingMade(refs)
	}
}

// What an agent commits in a submodule that it has fetched or added is kept.
func TestSubmoduleMadeInside(t *testing.T) { forModes(t, testSubmoduleMadeInside) }

func testSubmoduleMadeInside(t *testing.T) {
	wd := newWorld(t)
	wd.withSubmodule()
	wd.must(os.RemoveAll(filepath.Join(wd.repo, ".git", "modules")))
	ws := wd.create(workspace.CreateSpec{Base: "HEAD"})
	box := newBox(t, ws)
	// A box without a network: what it would clone is made there.
	inside(t, box, `set -e
git init -q ../up; cd ../up; git config user.name u; git config user.email u@x; echo up >up.txt; git add up.txt; git commit -qm upstream; cd -
mkdir -p $(git rev-parse --git-dir)/modules; git clone -q --separate-git-dir=$(git rev-parse --git-dir)/modules/up ../up libs/dep`)
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); len(got.Pinned) > 0 || got.Unkept != "" {
		t.Errorf("what can be had again was taken: %+v", got)
	}
	used := box.used()
	wd.importOK(ws, box, workspace.ImportOptions{})
	if box.used() != used {
		t.Error("nothing was new, and the box was asked")
	}
	own := inside(t, box, "set -e; cd libs/dep; git switch -q --detach; git -c user.name=u -c user.email=u@x commit -q --allow-empty -m own; git rev-parse HEAD")
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if len(got.Pinned) == 0 || got.Unkept != "" {
		t.Fatalf("%+v", got)
	}
	wd.loseShadow(ws)
	wd.collect()
	if s := wd.git("log", "--format=%s", own); s != "own\nupstream" {
		t.Errorf("kept: %q", s)
	}
}

// What an agent does to the places of submodules does not lead a box elsewhere,
// nor keep one from opening.
func TestSubmodulePlaces(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"moved":                 "mv libs lib2",
		"another one in place":  "mv libs lib2; mkdir -p libs/dep; git init -q libs/dep",
		"a link in place":       "mv libs lib2; ln -s /etc libs",
		"link at the last part": "mv libs lib2; mkdir libs; ln -s $HOME libs/dep",
		"a file in place":       "mv libs lib2; mkdir libs; echo x >libs/dep",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.withSubmodule()
			ws := wd.create(workspace.CreateSpec{})
			inside(t, newBox(t, ws), line)
			box := newBox(t, ws)
			inside(t, box, "echo x >>a.txt; git commit -qm x a.txt")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Errorf("%+v", got)
			}
			inside(t, box, "rm -rf libs; mv lib2 libs")
			if got := inside(t, newBox(t, ws), "cat libs/dep/dep.txt; git status --porcelain"); got != "dep" {
				t.Errorf("put back: %q", got)
			}
		})
	}
}

// Git directories of submodules inside are written by whoever is inside.
func TestHostileModules(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"a pipe":      "rm -rf $G/modules; mkfifo $G/modules",
		"links out":   "mv $G/modules/dep-name $G/modules/x; rm -rf $G/modules/x; ln -s / $G/modules/x; ln -s /tmp $G/modules/y",
		"many":        "for i in $(seq 600); do mkdir -p $G/modules/n$i/objects; echo ref: refs/heads/x >$G/modules/n$i/HEAD; done",
		"deep":        "cd $G/modules; for i in $(seq 50); do mkdir -p a/objects; cd a; mkdir modules; cd modules; done",
		"bad names":   "mkdir -p $G/modules/'a b'/objects $G/modules/x.lock/objects $G/modules/$(printf '\\033[31m')/objects",
		"bad refs":    "echo $(printf '2%.0s' $(seq 40)) >$G/modules/dep-name/refs/heads/x",
		"many refs":   "seq 2500 | sed \"s,^,$(printf '4%.0s' $(seq 40)) refs/heads/n,\" >>$G/modules/dep-name/packed-refs",
		"no head":     "rm $G/modules/dep-name/HEAD",
		"other names": "mkdir -p $G/modules/refs/objects $G/modules/logs/objects; cp $G/HEAD $G/modules/refs",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.withSubmodule()
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			inside(t, box, "git commit -q --allow-empty -m x; G="+ws.Shadow+"; "+line)
			for range 2 {
				got, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
				if err != nil || len(got.Pinned) > 0 {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			if tip := wd.git("log", "-1", "--format=%s", ws.Branch); tip != "x" {
				t.Errorf("the branch is at %q", tip)
			}
		})
	}
}

// A submodule's filters, hooks and the like never run on the host.
func TestSubmoduleTraps(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.withSubmodule()
	marks := t.TempDir()
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	config, err := os.ReadFile(filepath.Join(dep, "config"))
	wd.must(err)
	wd.write(filepath.Join(dep, "config"), string(config)+traps(marks))
	wd.write(filepath.Join(dep, "info", "attributes"), evilAttributes)
	evilHooks(t, filepath.Join(dep, "hooks"), marks)
	ws := wd.create(workspace.CreateSpec{Base: "HEAD"})
	if len(ws.Submodules) != 2 || ws.Submodules[0].Empty != "" {
		t.Fatalf("%+v", ws.Submodules)
	}
	box := newBox(t, ws)
	module := ws.Submodules[0].GitDir
	inner, err := os.ReadFile(filepath.Join(module, "config"))
	wd.must(err)
	wd.write(filepath.Join(module, "config"), string(inner)+traps(marks)+"[commit]\n\tgpgSign = false\n")
	evilHooks(t, filepath.Join(module, "hooks"), marks)
	inside(t, box, "cd libs/dep; echo x >>dep.txt; git add -A 2>/dev/null; git commit --no-verify -qm x 2>/dev/null; cd ../..; git -c core.hooksPath=/dev/null commit -qam dep")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || len(got.Pinned) == 0 {
		t.Fatalf("%+v", got)
	}
	if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "main"}); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(marks); len(entries) > 0 {
		t.Errorf("%s ran on the host", entries[0].Name())
	}
}

// A maker that is killed leaves nothing in the repositories of submodules.
func TestKilledMakerOfSubmodules(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.withSubmodule()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOME="+wd.home, makerEnv+"="+wd.state+"\n"+wd.repo)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the maker was not killed: %v: %s", err, out)
	}
	dep := filepath.Join(wd.repo, ".git", "modules", "dep-name")
	refs := func() string {
		return wd.gitIn(dep, "for-each-ref", "refs/caisson") + wd.gitIn(filepath.Join(dep, "modules", "in", "ner"), "for-each-ref", "refs/caisson")
	}
	if strings.Count(refs(), "refs/caisson") != 2 {
		t.Fatalf("before: %q", refs())
	}
	wd.must(wd.open().Tidy(t.Context()))
	if found := wd.made(); len(found) > 0 || refs() != "" {
		t.Errorf("left: %q %q", found, refs())
	}
}

// What only a submodule's tree has is listed before the workspace goes.
func TestInspectLooksIntoSubmodules(t *testing.T) { forModes(t, testInspectLooksIntoSubmodules) }

func testInspectLooksIntoSubmodules(t *testing.T) {
	wd := newWorld(t)
	wd.withSubmodule()
	wd.boxes()
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	if found := wd.inspect(ws); len(found.Losses) > 0 {
		t.Fatalf("of a new one: %+v", found.Losses)
	}
	wd.work(ws, `set -e
echo secret >libs/dep/.env; echo .env >>$(git -C libs/dep rev-parse --git-dir)/info/exclude
echo secret >libs/dep/in/ner/.env; echo .env >>$(git -C libs/dep/in/ner rev-parse --git-dir)/info/exclude
git init -q --separate-git-dir=$(git rev-parse --git-dir)/modules/mine ../mine`)
	found := wd.inspect(ws)
	if got := lossesOf(found, workspace.LossIgnored); !slices.Equal(got, []string{"libs/dep/.env", "libs/dep/in/ner/.env"}) {
		t.Errorf("ignored: %q", got)
	}
	if got := lossesOf(found, workspace.LossRef); !slices.Contains(got, "modules/mine") {
		t.Errorf("references: %q", got)
	}
}

// A sandbox of another workspace, whose processes cannot be looked at, keeps
// nobody from removing this one.
func TestInspectBesideAnotherSandbox(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.boxes()
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	other := newBox(t, wd.create(workspace.CreateSpec{Name: "r2"}))
	p, err := other.Hold(t.Context(), caisson.Command{Line: "sleep 1000"})
	wd.must(err)
	defer p.Drop()
	if found := wd.inspect(ws); len(found.Losses) > 0 {
		t.Errorf("%+v", found.Losses)
	}
}
