package workspace_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// collect is a person's own clean-up, as thorough as git can.
func (wd *world) collect() {
	wd.t.Helper()
	wd.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
	wd.git("worktree", "prune", "--expire=now")
	wd.git("gc", "-q", "--prune=now")
}

// loseShadow takes away all that a workspace has beside the repository.
func (wd *world) loseShadow(ws caisson.Workspace) {
	wd.t.Helper()
	wd.must(os.RemoveAll(filepath.Dir(ws.Shadow)))
}

// What no reference inside holds is kept outside: neither a clean-up there nor
// the loss of the shadow costs a commit. Origin: the stash's log, of which a
// reference holds the last entry only.
func TestImportKeepsWhatOnlyLogsKnow(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"stash": {
			"for i in 1 2 3; do echo $i >>a.txt; git stash -q -m s$i; K \"$(git rev-parse stash)\"; done",
			"echo u >untracked; echo i >>a.txt; git add a.txt; echo w >>a.txt; git stash -qu -m s4; K \"$(git rev-parse stash)\"",
		},
		"reset":           {"C one; C two; K \"$(git rev-parse HEAD)\"; git reset -q --hard HEAD~2"},
		"amend":           {"C one; K \"$(git rev-parse HEAD)\"; git commit -q --allow-empty --amend -m other; K \"$(git rev-parse HEAD)\"; git commit -q --allow-empty --amend -m third"},
		"detached, left":  {"git switch -q --detach; C loose; K \"$(git rev-parse HEAD)\"; git switch -q -"},
		"detached":        {"git switch -q --detach; C loose; K \"$(git rev-parse HEAD)\""},
		"branch, deleted": {"git switch -qc side; C side; K \"$(git rev-parse HEAD)\"; git switch -q -; git branch -qD side"},
		"branch, moved between imports": {
			"git switch -qc side; C side; K \"$(git rev-parse HEAD)\"; git switch -q -", "git branch -qD side", "git branch side",
		},
		"rebased": {"for i in 1 2 3; do echo $i >f$i; git add f$i; C c$i; done; K \"$(git rev-parse HEAD)\"; GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -qi HEAD~3"},
		"under way, with what was not committed": {
			"echo x >a.txt; git add a.txt; C x; git switch -qc up HEAD~1; echo y >a.txt; git add a.txt; C y; git switch -q -; echo more >>sub/b.txt",
			"git rebase -q --autostash up || :; K \"$(cat $G/rebase-merge/autostash)\"; K \"$(cat $G/rebase-merge/orig-head)\"",
		},
		"cherry-picked": {"git switch -qc side; C side; git switch -q -; git cherry-pick --allow-empty side >/dev/null; K \"$(git rev-parse HEAD)\"; git reset -q --hard HEAD~1; git branch -qD side"},
		"another worktree": {
			"git worktree add -q --detach ../elsewhere; cd ../elsewhere; C there; K \"$(git rev-parse HEAD)\"; C again; K \"$(git rev-parse HEAD)\"; git reset -q --hard HEAD~2",
		},
		"bisect":  {"for i in 1 2 3 4; do C c$i; done; K \"$(git rev-parse HEAD)\"; git bisect start HEAD HEAD~4 >/dev/null; git reset -q --hard HEAD~1"},
		"tags":    {"C tagged; git tag -am v1 v1; K \"$(git rev-parse v1)\"; git reset -q --hard HEAD~1"},
		"garbage": {"C one; C two; K \"$(git rev-parse HEAD)\"; git reset -q --hard HEAD~2; git gc -q"},
		"no branch any more": {
			"C one; K \"$(git rev-parse HEAD)\"; git symbolic-ref HEAD refs/heads/unborn; git branch -qD caisson/r1",
		},
		"ten thousand entries": {"C one; K \"$(git rev-parse HEAD)\"; git reset -q --hard HEAD~1; tail -1 $G/logs/HEAD >one; for i in $(seq 10000); do cat one; done >>$G/logs/HEAD; rm one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			const words = "set -e; G=$(git rev-parse --git-dir); K() { test -n \"$1\"; echo \"$1\" >>$HOME/keep; }; C() { git commit -q --allow-empty -m \"$1\"; }; "
			for _, line := range lines {
				inside(t, box, words+line)
				if got := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true}); got.Unkept != "" {
					t.Error(got.Unkept)
				}
			}
			used := box.used()
			if got := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true}); len(got.Pinned) > 0 || box.used() != used {
				t.Errorf("nothing was new: %+v", got)
			}
			keep, err := os.ReadFile(filepath.Join(ws.Home, "keep"))
			wd.must(err)
			wd.loseShadow(ws)
			wd.collect()
			for _, id := range strings.Fields(string(keep)) {
				if out, err := wd.tryGit(wd.repo, "rev-list", "--objects", id); err != nil {
					t.Errorf("%s is lost: %s", id, out)
				}
			}
			if out, err := wd.tryGit(wd.repo, "fsck", "--strict"); err != nil {
				t.Error(out)
			}
			refs := strings.Split(wd.git("for-each-ref", "--format=%(refname)", "refs/caisson"), "\n")
			if len(refs) > 20 {
				t.Errorf("%d references for so little", len(refs))
			}
		})
	}
}

// Logs are written by whoever is inside.
func TestHostileLogs(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("1", 40)+" "+strings.Repeat("2", 40)+" a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"a link out":       "rm $G/logs/HEAD; ln -s " + secret + " $G/logs/HEAD",
		"a pipe":           "rm $G/logs/HEAD; mkfifo $G/logs/HEAD; mkfifo $G/ORIG_HEAD",
		"a loop":           "ln -s . $G/logs/loop; ln -s ../.. $G/logs/refs/up",
		"logs are a pipe":  "rm -rf $G/logs; mkfifo $G/logs",
		"nonsense":         "head -c 100000 /dev/urandom >>$G/logs/HEAD; head -c 100000 /dev/zero >>$G/ORIG_HEAD",
		"no such objects":  "for i in $(seq 3000); do printf '%040x %040x a <b> 1 +0000\tx\n' $((i + 77)) $i; done >>$G/logs/HEAD",
		"no commit":        "echo \"$N $(git rev-parse HEAD:a.txt) a\" >>$G/logs/HEAD; echo \"$N $(git rev-parse HEAD^{tree}) a\" >>$G/logs/HEAD",
		"many directories": "mkdir -p $G/worktrees; cd $G/worktrees; seq 5000 | xargs mkdir; for i in $(seq 100); do echo $N >$i/HEAD; done",
		"deep":             "cd $G/logs; for i in $(seq 100); do mkdir d; cd d; done; cp $G/logs/HEAD x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{})
			box := newBox(t, ws)
			before := wd.git("rev-list", "--objects", "--all", "--reflog")
			inside(t, box, "git commit -q --allow-empty -m one; G="+ws.Shadow+" N=$(printf '4%.0s' $(seq 40)); "+line)
			got := wd.importOK(ws, box, workspace.ImportOptions{})
			if !got.Moved {
				t.Fatalf("%+v", got)
			}
			if now := wd.git("rev-list", "--objects", "--all", "--reflog", "--not", got.New); now != "" {
				t.Errorf("taken: %s\nbefore: %s", now, before)
			}
		})
	}
	t.Run("not whole", func(t *testing.T) {
		t.Parallel()
		wd := newWorld(t)
		ws := wd.create(workspace.CreateSpec{})
		box := newBox(t, ws)
		good := inside(t, box, `G=`+ws.Shadow+` N=$(printf '4%.0s' $(seq 40))
git commit -q --allow-empty -m good; git rev-parse HEAD; git reset -q --hard HEAD~1
for i in $(seq 20); do echo "$N $(printf "tree $N\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\n$i\n" | git hash-object -w -t commit --stdin --literally) a" >>$G/logs/HEAD; done
git commit -q --allow-empty -m one`)
		got := wd.importOK(ws, box, workspace.ImportOptions{})
		if !got.Moved || got.Unkept == "" {
			t.Fatalf("%+v", got)
		}
		if refs := wd.git("for-each-ref", "refs/caisson/inside"); !strings.Contains(refs, good) || strings.Count(refs, "\n") > 0 {
			t.Errorf("kept: %s", refs)
		}
	})
}

// What only imports keep goes with them when the workspace does, and is listed.
func TestInspectListsWhatOnlyImportsKeep(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	wd.boxes()
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	wd.work(ws, "git worktree add -q --detach elsewhere; cd elsewhere; git commit -q --allow-empty -m there; git rev-parse HEAD >$HOME/keep")
	wd.inspect(ws) // which imports
	raw, err := os.ReadFile(filepath.Join(ws.Home, "keep"))
	wd.must(err)
	id := strings.TrimSpace(string(raw))
	wd.work(ws, "git worktree remove --force elsewhere")
	found := wd.inspect(ws)
	if !slices.Contains(lossesOf(found, workspace.LossReflog), id) {
		t.Errorf("%s is not among %+v", id, found.Losses)
	}
	if !slices.ContainsFunc(found.Pins, func(p workspace.Pin) bool { return p.ID == id }) {
		t.Errorf("%s would not be pinned", id)
	}
}
