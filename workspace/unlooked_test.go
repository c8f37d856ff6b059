//go:build linux

package workspace_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/workspace"
)

// What git inside cannot look at is told: a snapshot does not hold it, and a
// removal does not know what would be lost. Git itself succeeds all the same.
func TestTreeThatGitCannotLookInto(t *testing.T) {
	for name, line := range map[string]string{
		"a new directory":         "mkdir shut && echo x >shut/f && chmod 000 shut",
		"a directory of tracked":  "echo changed >sub/b.txt && chmod 000 sub",
		"a path that is too long": `i=0; while [ $i -lt 30 ]; do d=$(printf %0200d 0); mkdir $d && cd $d || exit 1; i=$((i+1)); done; echo x >f`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			wd.boxes()
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			inside(t, box, line)
			snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1)
			if err != nil || snap.Partial == "" {
				t.Errorf("the snapshot says %q, %v", snap.Partial, err)
			}
			wd.must(box.Close())
			if found := wd.inspect(ws); !found.Has(workspace.LossUnknown) {
				t.Errorf("found %v", found.Losses)
			}
		})
	}
}

// A new file is in a snapshot also where it is not among those that a sparse
// checkout is to have.
func TestSnapshotOfFilesBesideSparseCheckout(t *testing.T) {
	wd := newWorld(t)
	wd.boxes()
	wd.write(wd.repo+"/kept/c.txt", "three\n")
	wd.git("add", "-A")
	wd.git("commit", "-qm", "kept")
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	if got := inside(t, box, "git sparse-checkout set kept && ls -d sub || mkdir sub && echo new >sub/new && echo x >>kept/c.txt"); !strings.Contains(got, "sub") {
		t.Fatal(got)
	}
	for turn := 1; turn < 3; turn++ {
		snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", turn)
		if err != nil || snap.Partial != "" {
			t.Fatalf("%q, %v", snap.Partial, err)
		}
		if got := wd.git("diff", "--name-status", ws.Base, snap.Commit); got != "M\tkept/c.txt\nA\tsub/new" {
			t.Errorf("turn %d: %q", turn, got)
		}
	}
}

// The first look at a tree may come in the middle of a merge: files in conflict
// are in the snapshot as they are.
func TestFirstSnapshotInConflict(t *testing.T) {
	for name, after := range map[string]string{"as git left it": "true", "with a file that is gone": "rm a.txt", "with one that cannot be read": "chmod 000 a.txt"} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			wd.boxes()
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			inside(t, box, "git branch other && echo uno >a.txt && git commit -qam one && git switch -q other && echo dos >a.txt && git commit -qam two && git switch -q - && ! git merge -q other && echo new >n && "+after)
			snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := wd.git("show", snap.Commit+":n"); got != "new" {
				t.Errorf("n is %q", got)
			}
			got, err := wd.tryGit(wd.repo, "show", snap.Commit+":a.txt")
			switch name {
			case "as git left it":
				if err != nil || !strings.Contains(got, "<<<<<<<") || !strings.Contains(got, "dos") {
					t.Errorf("a.txt is %q, %v", got, err)
				}
			case "with a file that is gone":
				if err == nil {
					t.Errorf("a.txt is %q", got)
				}
			default:
				if snap.Partial == "" {
					t.Error("nothing is said of what could not be read")
				}
			}
			if got := inside(t, box, "git ls-files -u | wc -l"); got != "3" {
				t.Errorf("the conflict inside has %s sides", got)
			}
		})
	}
}
