package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/workspace"
)

// Origin: reading of peers.
func TestCase_W07(t *testing.T) { forModes(t, testCaseW07) }

func testCaseW07(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r7"})
	box := newBox(t, ws)
	inside(t, box, "git commit -q --allow-empty -m one-inside")
	// The person commits on the branch meanwhile.
	tree := wd.git("rev-parse", "main^{tree}")
	outside := wd.git("commit-tree", "-p", ws.Base, "-m", "outside", tree)
	wd.git("update-ref", "refs/heads/caisson/r7", outside)

	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if got.Moved || got.Diverged != "refs/caisson/diverged/caisson/r7/1" || got.Why == "" {
		t.Fatalf("%+v", got)
	}
	if wd.git("rev-parse", "caisson/r7") != outside || wd.git("log", "-1", "--format=%s", got.Diverged) != "one-inside" {
		t.Fatal("one of the two was not kept")
	}
	// What follows goes to the same place.
	inside(t, box, "git commit -q --allow-empty -m two-inside")
	if got = wd.importOK(ws, box, workspace.ImportOptions{}); got.Diverged != "refs/caisson/diverged/caisson/r7/1" {
		t.Fatalf("%+v", got)
	}
	if s := wd.git("log", "-2", "--format=%s", got.Diverged); s != "two-inside\none-inside" {
		t.Fatal(s)
	}
	// The agent, told, merges what is outside; the branch takes it again.
	inside(t, box, "git merge -q --no-edit "+outside)
	if got = wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("%+v", got)
	}
	// Rewriting what was imported needs the person's word.
	inside(t, box, "git reset -q --hard "+ws.Base+"; git commit -q --allow-empty -m anew")
	before := wd.git("rev-parse", "caisson/r7")
	if got = wd.importOK(ws, box, workspace.ImportOptions{}); got.Moved || got.Diverged != "refs/caisson/diverged/caisson/r7/2" {
		t.Fatalf("%+v", got)
	}
	inside(t, box, "git commit -q --allow-empty -m anew2")
	if got = wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true}); !got.Moved || !got.Rewritten {
		t.Fatalf("%+v", got)
	}
	if refs := wd.git("for-each-ref", "--format=%(objectname)", "refs/caisson/inside"); !strings.Contains(refs, before) {
		t.Fatal("what was left behind is not pinned")
	}
	// A branch deleted outside is not made again.
	wd.git("update-ref", "-d", "refs/heads/caisson/r7")
	inside(t, box, "git commit -q --allow-empty -m after")
	if got = wd.importOK(ws, box, workspace.ImportOptions{}); got.Moved || got.Diverged == "" {
		t.Fatalf("%+v", got)
	}
}

// Origin: srt 221, cc 44567.
func TestCase_S06(t *testing.T) { forModes(t, testCaseS06) }

func testCaseS06(t *testing.T) {
	for name, hooks := range map[string]func(wd *world, at string){
		"link to a directory": func(wd *world, at string) {
			wd.must(os.MkdirAll(filepath.Join(wd.home, "hooks"), 0o755))
			wd.must(os.Symlink(filepath.Join(wd.home, "hooks"), at))
		},
		"link to nowhere":     func(wd *world, at string) { wd.must(os.Symlink("/nowhere/at/all", at)) },
		"unreadable":          func(wd *world, at string) { wd.must(os.Mkdir(at, 0)) },
		"a file":              func(wd *world, at string) { wd.write(at, "x") },
		"link to itself":      func(wd *world, at string) { wd.must(os.Symlink(at, at)) },
		"hook is a directory": func(wd *world, at string) { wd.must(os.MkdirAll(filepath.Join(at, "pre-commit"), 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			at := filepath.Join(wd.repo, ".git", "hooks")
			wd.must(os.RemoveAll(at))
			hooks(wd, at)
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			inside(t, box, "git commit -q --allow-empty -m inside")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Fatalf("%+v", got)
			}
		})
	}
}

// The repository's own hooks and settings hold inside; files of the host that
// they lead to do not come along.
func TestShadowHasHooksAndNoSecrets(t *testing.T) { forModes(t, testShadowHasHooksAndNoSecrets) }

func testShadowHasHooksAndNoSecrets(t *testing.T) {
	wd := newWorld(t)
	secret := filepath.Join(wd.home, "secret")
	wd.write(secret, "s3cret-content\n")
	hooks := filepath.Join(wd.repo, ".git", "hooks")
	wd.write(filepath.Join(hooks, "commit-msg"), "#!/bin/sh\necho 'Checked: yes' >>\"$1\"\n")
	wd.must(os.Chmod(filepath.Join(hooks, "commit-msg"), 0o755))
	wd.must(os.Chmod(secret, 0o755))
	wd.must(os.Symlink(secret, filepath.Join(hooks, "pre-push")))
	wd.must(os.Remove(filepath.Join(wd.repo, ".git", "info", "exclude")))
	wd.must(os.Symlink(secret, filepath.Join(wd.repo, ".git", "info", "exclude")))
	wd.git("config", "core.excludesFile", secret)
	wd.git("config", "remote.origin.url", "https://user:s3cret-content@example.com/x")
	wd.git("config", "http.extraHeader", "Authorization: s3cret-content")
	wd.git("config", "merge.conflictStyle", "diff3")
	wd.write(filepath.Join(wd.home, ".config", "git", "ignore"), "*.swp\n")
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	inside(t, box, "git commit -q --allow-empty -m inside; touch x.swp")
	if got := inside(t, box, "git log -1 --format=%B; git config merge.conflictStyle; git status --porcelain"); got != "inside\nChecked: yes\n\ndiff3" {
		t.Fatalf("%q", got)
	}
	if got, _ := tryInside(t, box, "grep -r s3cret-content "+ws.Shadow); got != "" {
		t.Fatalf("a secret came along: %s", got)
	}
}

// Origin: codex 23661, cc 17374.
func TestCase_S07(t *testing.T) { forModes(t, testCaseS07) }

func testCaseS07(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r7"})
	box := newBox(t, ws)
	inside(t, box, "set -e; for i in 1 2 3; do echo $i >f$i; git add f$i; git commit -qm c$i; done")
	inside(t, box, "git commit -q --amend -m c3-amended")
	inside(t, box, "GIT_SEQUENCE_EDITOR='sed -i 2s/pick/squash/' GIT_EDITOR=true git rebase -q -i HEAD~3")
	inside(t, box, "echo stashed >>a.txt; git stash -q; test -z \"$(git status --porcelain)\"")
	inside(t, box, "git branch side; git switch -qc other; git commit -q --allow-empty -m on-other; git tag -a v1 -m v1; git switch -q caisson/r7")
	inside(t, box, "git merge -q --no-edit other")
	if exists(filepath.Join(ws.Binding.AdminDir, "index.lock")) {
		t.Fatal("index.lock was left")
	}
	got := wd.importOK(ws, box, workspace.ImportOptions{})
	if !got.Moved || got.IndexKept != "" {
		t.Fatalf("%+v", got)
	}
	for ref, want := range map[string]string{"heads/other": "on-other", "heads/side": "c3-amended", "stash": "", "tags/v1": "on-other"} {
		name := "refs/caisson/inside/" + string(ws.ID) + "/" + ref
		if s := wd.git("log", "-1", "--format=%s", name); want != "" && s != want {
			t.Errorf("%s: %q", name, s)
		}
	}
	if s := wd.status(ws, box); s != "" {
		t.Fatalf("outer status: %q", s)
	}
	stashed := wd.git("rev-parse", "refs/caisson/inside/"+string(ws.ID)+"/stash")
	inside(t, box, "git stash pop -q; echo again >>a.txt; git stash -q")
	if got = wd.importOK(ws, box, workspace.ImportOptions{}); !strings.Contains(wd.git("for-each-ref", "--format=%(objectname)", "refs/caisson/inside/"+string(ws.ID)), stashed) {
		t.Fatalf("a stash in whose place another is is not kept: %+v", got)
	}
	// The stash is popped and another made; a detached head and a/b after a.
	inside(t, box, "git stash pop -q; git stash -q; git branch -D side; git branch side/deep; git switch -q --detach; git commit -q --allow-empty -m detached")
	got = wd.importOK(ws, box, workspace.ImportOptions{})
	all := wd.git("for-each-ref", "--format=%(objectname) %(contents:subject)", "refs/caisson/inside/"+string(ws.ID))
	if !strings.Contains(all, stashed) || !strings.Contains(all, "detached") {
		t.Fatalf("not all is kept: %s\n%+v", all, got)
	}
}

// Origin: cc 80278.
func TestCase_S08(t *testing.T) { forModes(t, testCaseS08) }

func testCaseS08(t *testing.T) {
	wd := newWorld(t)
	wd.git("config", "core.repositoryFormatVersion", "1")
	wd.git("config", "extensions.worktreeConfig", "true")
	wd.git("config", "--worktree", "core.commentChar", ";")
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	inside(t, box, "echo x >x; git add x; git commit -qm inside; git config extensions.worktreeConfig true; git config --worktree core.abbrev 12; git sparse-checkout set sub; git sparse-checkout disable")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
		t.Fatalf("%+v", got)
	}
	if s := wd.status(ws, box); s != "" {
		t.Fatalf("outer status: %q", s)
	}
	if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (wd *world) must(err error) {
	wd.t.Helper()
	if err != nil {
		wd.t.Fatal(err)
	}
}
