//go:build linux

package workspace_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

const (
	longLine  = `head -c 3000 /dev/zero | tr '\0' x`
	badModule = `printf '[submodule "../x"]\n\tpath = x\n\turl = u\n'`
)

// A file that git outside does not take, as it could be meant to mislead a git,
// keeps no other file from a snapshot, and is named by its path.
func TestSnapshotWithoutRefused(t *testing.T) {
	forModes(t, func(t *testing.T) {
		wd := newWorld(t)
		wd.boxes()
		wd.write(wd.repo+"/sub/.gitattributes", "*.bin binary\n")
		wd.git("add", "-A")
		wd.git("commit", "-qm", "attributes")
		ws := wd.create(workspace.CreateSpec{Name: "r1"})
		box := newBox(t, ws)
		inside(t, box, longLine+" >sub/.gitattributes; mkdir 'a [b]'; "+badModule+" >'a [b]/.gitmodules'; "+badModule+" >.gitmodules; echo new >new")
		for turn := 1; turn < 3; turn++ {
			snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", turn)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"sub/.gitattributes: ", "too long lines", "a [b]/.gitmodules: ", "disallowed submodule name", "r .gitmodules: "} {
				if !strings.Contains(snap.Partial, want) {
					t.Errorf("%q does not say %q", snap.Partial, want)
				}
			}
			if got := wd.git("diff", "--name-status", ws.Base, snap.Commit); got != "A\tnew" || snap.Changed != (turn == 1) {
				t.Errorf("turn %d: %q, changed %t", turn, got, snap.Changed)
			}
		}
		// Once that is mended, all of it is there.
		inside(t, box, "rm -r .gitmodules 'a [b]'; echo '*.x text' >sub/.gitattributes")
		snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 3)
		if got := wd.git("diff", "--name-status", ws.Base, snap.Commit); err != nil || snap.Partial != "" || got != "A\tnew\nM\tsub/.gitattributes" {
			t.Errorf("%q, %q, %v", got, snap.Partial, err)
		}
	})
}

// What is committed inside is refused as a whole, and named by its path.
func TestImportNamesRefused(t *testing.T) {
	wd := newWorld(t)
	wd.boxes()
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "mkdir d && "+badModule+" >d/.gitmodules && git add d && git commit -qm bad && echo x >x && git add x && git commit -qm x")
	names := func(what string, err error) {
		t.Helper()
		if e := caisson.AsError(err); e == nil || e.Code != caisson.CodeImportHeld || !strings.Contains(e.Error(), "d/.gitmodules: disallowed submodule name") || !strings.Contains(e.HintText(), "git rebase") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
	names("import", err)
	_, err = wd.w.Snapshot(t.Context(), ws, box, "r1", 1)
	names("snapshot", err)
	inside(t, box, "git reset -q --soft HEAD~2 && git rm -qrf --cached d && rm -r d && git commit -qm x")
	wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true})
}
