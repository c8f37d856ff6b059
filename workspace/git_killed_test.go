//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// killedAfterRefs is a git that is killed once it has written references of which
// one is WHICH, or has only begun to.
const killedAfterRefs = `#!/bin/sh
dir=$(dirname "$0")
case "$*" in *update-ref*) ;; *) exec git "$@" ;; esac
cat >"$dir/asked"
if [ -e "$dir/killed" ] || ! grep -aq WHICH "$dir/asked"; then exec git "$@" <"$dir/asked"; fi
touch "$dir/killed"
HOW
kill -9 $$
`

// onlyFirst writes the first of them.
const onlyFirst = `tr '\0' '\n' <"$dir/asked" | head -3 | tr '\n' '\0' >"$dir/half"; git "$@" <"$dir/half"`

// A branch is taken back also where git was killed after it had made it, and so
// is what git had made before it came to the branch.
func TestGitKilledWhileItMakesTheBranch(t *testing.T) {
	for name, how := range map[string]string{
		"after all of it": `git "$@" <"$dir/asked"`,
		// One reference is written after the other, in the order of the request.
		"in the middle": onlyFirst,
	} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			program := filepath.Join(wd.home, "git")
			wd.write(program, strings.NewReplacer("HOW", how, "WHICH", "refs/heads/wanted").Replace(killedAfterRefs))
			wd.must(os.Chmod(program, 0o755))
			before := wd.git("for-each-ref")
			w := workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Git: program})
			spec := workspace.CreateSpec{Dir: wd.repo, Name: "r1", Branch: "wanted"}
			if _, err := w.Create(t.Context(), spec); err == nil || !exists(filepath.Join(wd.home, "killed")) {
				t.Fatalf("git was not killed: %v", err)
			}
			if got := wd.git("for-each-ref"); got != before {
				t.Errorf("left:\n%s", got)
			}
			ws, err := w.Create(t.Context(), spec)
			if err != nil || ws.Branch != "wanted" {
				t.Fatalf("again: %v", err)
			}
			_, err = w.Create(t.Context(), workspace.CreateSpec{Dir: wd.repo, Name: "r2", Branch: "wanted"})
			wantCode(t, err, caisson.CodeBranchCheckedOut)
			if wd.git("rev-parse", "wanted") != ws.Base {
				t.Error("the branch of the other is gone")
			}
		})
	}
}

// What a rewritten branch leaves behind, be it the workspace's or another one, is
// kept also where git was killed while it moved the reference.
func TestGitKilledWhileItMovesARewrittenBranch(t *testing.T) {
	for name, switched := range map[string]string{"its own": "true", "another": "git switch -q -c side"} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			left := inside(t, box, switched+" && git commit -q --allow-empty -m left && git rev-parse HEAD")
			wd.importOK(ws, box, workspace.ImportOptions{})
			inside(t, box, "git commit -q --amend --allow-empty -m rewritten && git reflog expire --expire=now --all")
			program := filepath.Join(wd.home, "git")
			wd.write(program, strings.NewReplacer("HOW", onlyFirst, "WHICH", "/was/").Replace(killedAfterRefs))
			wd.must(os.Chmod(program, 0o755))
			w := workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Git: program})
			_, err := w.Import(t.Context(), ws, box, workspace.ImportOptions{AllowRewrite: true})
			if !exists(filepath.Join(wd.home, "killed")) {
				t.Fatalf("git was not killed: %v", err)
			}
			if got, err := w.Import(t.Context(), ws, box, workspace.ImportOptions{AllowRewrite: true}); err != nil || got.Diverged != "" {
				t.Fatalf("%+v, %v", got, err)
			}
			wd.git("reflog", "expire", "--expire=now", "--all")
			if got := wd.git("for-each-ref", "--contains="+left, "refs/caisson/inside/"+string(ws.ID)); !strings.Contains(got, "/was/") {
				t.Errorf("nothing of ours keeps %s: %q", left, got)
			}
		})
	}
}
