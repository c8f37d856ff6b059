//go:build linux

package workspace_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// sequencesEnv is for how many sequences are tried in place of a few.
const sequencesEnv = "CAISSON_SEQUENCES"

// quoted quotes a word for the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// drawLine draws one thing that an agent does in its tree.
func drawLine(t *rapid.T) string {
	file := quoted(rapid.SampledFrom([]string{"a.txt", "sub/b.txt", "new", "d/e/f", "-x", "two words", "ü", "new\nline", "\xff\xfe", "x.log", "d/.env"}).Draw(t, "file"))
	branch := rapid.SampledFrom([]string{"one", "two", "three/deep", "caisson/r7"}).Draw(t, "branch")
	content := strings.Repeat(rapid.SampledFrom([]string{"x", "y", "one", "\x00b"}).Draw(t, "content")+"\n", rapid.IntRange(0, 40).Draw(t, "times"))
	write := fmt.Sprintf("mkdir -p -- \"$(dirname -- %s)\"; printf %%b %s >%s", file, quoted(strings.ReplaceAll(content, "\x00", `\000`)), "./"+file)
	return rapid.SampledFrom([]string{
		write, write, write + "; git add -- " + file, write + "; git add -A; git commit -qm more", write + "; git commit -qam changed",
		"rm -rf -- " + file, "git rm -qf -- " + file, "git rm -q --cached -- " + file, "git add -A", "git add -N -- " + file,
		"git commit -qm staged", "git commit -q --allow-empty -m empty", "git commit -q --amend -m amended", "git commit -qa --amend --no-edit",
		"git branch " + branch, "git branch -D " + branch, "git switch -q " + branch, "git switch -qc " + branch, "git switch -q --detach", "git checkout -q " + branch + " -- .",
		"git stash -q", "git stash -qu", "git stash -qa", "git stash pop -q", "git stash drop -q",
		"git reset -q --hard HEAD~1", "git reset -q --soft HEAD~1", "git reset -q", "git reset -q --hard ORIG_HEAD",
		"git rebase -q " + branch, "git rebase --abort", "git merge -q --no-edit " + branch, "git merge --abort", "git cherry-pick " + branch, "git revert --no-edit HEAD",
		"git tag t-" + strings.ReplaceAll(branch, "/", "-"), "git tag -a -m note n-" + strings.ReplaceAll(branch, "/", "-"), "git tag blob HEAD:a.txt",
		"git bisect start; git bisect bad; git bisect good HEAD~1", "git bisect reset",
		"chmod 755 -- " + file, "chmod 600 -- " + file, "chmod 500 sub", "chmod 700 sub", "ln -sfn nowhere -- " + file + ".link", "ln -sfn / outside", "mkdir -p empty/deep", "mkfifo pipe",
		"git gc -q", "git repack -qad", "git pack-refs --all", "git reflog expire --expire=now --all", "git update-index --assume-unchanged -- " + file,
		"git init -q nested; echo n >nested/n", "git config core.worktree /", "git sparse-checkout set sub", "git worktree prune",
	}).Draw(t, "line")
}

// known prints all objects that anything inside names, and whether all of them
// are whole.
const known = `export GIT_DIR=$(git rev-parse --absolute-git-dir) GIT_WORK_TREE=$PWD; git rev-list --objects --all --reflog --indexed-objects 2>&1 | sort; git stash list; git status --porcelain=v2 --branch --ignored; git fsck --full --no-dangling --no-progress 2>&1; echo $?`

// Whatever was done in a workspace is there again after it was removed and
// restored, though the person's repository was cleaned up meanwhile.
func TestSequences(t *testing.T) {
	t.Parallel()
	n := 10
	if text := os.Getenv(sequencesEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if err := checks.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	defer checks.Value.Set(before)
	wd := newWorld(t)
	wd.boxes()
	made, discarded := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(drawLine), 1, 14).Draw(rt, "lines")
		byHand := rapid.Bool().Draw(rt, "byHand")
		made++
		ws := wd.create(workspace.CreateSpec{Name: fmt.Sprint("s", made), Branch: fmt.Sprint("caisson/s", made)})
		script := "exec 3>&1 >/dev/null 2>&1\nGIT_EDITOR=true; export GIT_EDITOR\ngit branch -m caisson/r7; git switch -q " + ws.Branch + " || git switch -qc " + ws.Branch + "\n"
		for _, line := range lines {
			script += "(" + line + ") </dev/null || :\n"
		}
		seen, _ := wd.tryWork(ws, script+"exec >&3 2>&1; "+known)
		found := wd.inspect(ws)
		if len(found.Losses) > 0 {
			discarded++
		}
		was := wd.everything(ws)
		remove := func() (workspace.Trashed, error) {
			d := workspace.Decide(found, workspace.Ask{Word: found.Digest()})
			if d.Err() != nil {
				rt.Fatal(d.Err())
			}
			return wd.w.Remove(t.Context(), d.Permit, "ada")
		}
		trashed, err := remove()
		// The guest of another test that began meanwhile, as the same user, cannot be
		// looked at: for all that is known it has a file of the workspace open.
		for tries := 0; caisson.CodeOf(err) == caisson.CodeWorkspaceDirty && os.Geteuid() != 0 && tries < 3; tries++ {
			found = wd.inspect(ws)
			trashed, err = remove()
		}
		if err != nil {
			rt.Fatal(err)
		}
		if byHand && !trashed.BranchDeleted {
			wd.git("update-ref", "-d", "refs/heads/"+ws.Branch)
		}
		wd.git("reflog", "expire", "--expire=now", "--all")
		wd.git("gc", "-q", "--prune=now")
		back, err := wd.w.Restore(t.Context(), ws.ID)
		if err != nil {
			rt.Fatal(err)
		}
		is := wd.everything(back)
		was.Log, is.Log = "", ""
		if diff := cmp.Diff(was, is); diff != "" {
			rt.Fatal(diff)
		}
		if now, _ := wd.tryWork(back, known); now != seen {
			rt.Fatal(cmp.Diff(seen, now))
		}
	})
	if discarded == 0 {
		t.Error("no sequence had anything to lose")
	}
}
