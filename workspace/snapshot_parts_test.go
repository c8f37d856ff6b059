//go:build linux

package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/workspace"
)

// indexParts are the first parts of indexes that a shadow has.
func indexParts(t *testing.T, shadow string) []string {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(shadow, "sharedindex.*"))
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// However a tree changes, snapshots hold it, and write the first part of their
// index once. An agent's own index, which is in two parts too, stays whole.
func TestSnapshotIndexInParts(t *testing.T) {
	for name, setting := range map[string]string{
		"plain":  "true",
		"parted": "git config core.splitIndex true && git update-index --split-index",
		"sparse": "git sparse-checkout set --cone --sparse-index sub d",
	} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			inside(t, box, setting)
			first := 0
			for turn, line := range []string{
				"true",
				"mkdir -p d && for i in 1 2 3 4 5 6 7 8 9; do echo $i >d/$i; done",
				"echo 1 >>sub/b.txt && rm d/1",
				"rm -r d && echo file >d",
				"rm d && mkdir d && echo back >d/1 && ln -s d e && chmod +x sub/b.txt",
				"echo same >d/1",
				"echo emas >d/1", // as large, and perhaps in the same moment
				"git add d && git commit -qm d",
				"rm -r d e",
			} {
				inside(t, box, line)
				snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", turn+1)
				if err != nil || snap.Partial != "" {
					t.Fatalf("after %q: %+v, %v", line, snap, err)
				}
				anew := "git read-tree HEAD"
				if name == "sparse" { // what is left out of the tree is known to its index only
					anew = "cp $(git rev-parse --git-dir)/index $GIT_INDEX_FILE"
				}
				want := inside(t, box, "export GIT_INDEX_FILE=$(mktemp -u) && "+anew+" && git -c core.splitIndex=false add -A . && git write-tree && rm -f $GIT_INDEX_FILE")
				if got := wd.git("rev-parse", snap.Commit+"^{tree}"); got != want {
					t.Errorf("after %q the snapshot has tree %s, not %s", line, got, want)
				}
				if n := len(indexParts(t, ws.Shadow)); turn < 2 {
					first = n
				} else if n != first && name != "parted" {
					t.Errorf("after %q there are %d first parts, not %d", line, n, first)
				}
				inside(t, box, "git status --porcelain && git ls-files")
			}
		})
	}
}

// Where the first part of the index of snapshots is damaged, or made up, that is no
// more believed than the index itself: it is made anew.
func TestSnapshotWithDamagedIndexPart(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"gone":     os.Remove,
		"cut":      func(path string) error { return os.Truncate(path, 20) },
		"nonsense": func(path string) error { return os.WriteFile(path, []byte("nonsense\n"), 0o600) },
		"another's": func(path string) error {
			raw, err := os.ReadFile(path)
			if err == nil {
				raw[len(raw)-1] ^= 1
				err = os.WriteFile(path, raw, 0o600)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			if _, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1); err != nil {
				t.Fatal(err)
			}
			parts := indexParts(t, ws.Shadow)
			if len(parts) == 0 {
				t.Fatal("the index is in one part")
			}
			for _, part := range parts {
				if err := os.Chmod(part, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := damage(part); err != nil {
					t.Fatal(err)
				}
			}
			wd.write(filepath.Join(ws.Path, "new.txt"), "new\n")
			snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 2)
			if err != nil || snap.Partial != "" || !snap.Changed {
				t.Fatalf("%+v, %v", snap, err)
			}
			if files := wd.git("ls-tree", "-r", "--name-only", snap.Commit); !slices.Equal(strings.Split(files, "\n"), []string{".gitignore", "a.txt", "new.txt", "sub/b.txt"}) {
				t.Errorf("it has %q", files)
			}
		})
	}
}

// After files were brought back, snapshots go on, and one more restore does.
func TestRestoreWithIndexInParts(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	var kept []workspace.Snapshot
	for turn := range 3 {
		wd.write(filepath.Join(ws.Path, "a.txt"), fmt.Sprintf("turn %d\n", turn))
		snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", turn+1)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, snap)
	}
	for turn, snap := range kept {
		if _, err := wd.w.RestoreFiles(t.Context(), ws, box, workspace.RestoreSpec{Name: snap.Name, Commit: snap.Commit}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(ws.Path, "a.txt"))
		if want := fmt.Sprintf("turn %d\n", turn); err != nil || string(raw) != want {
			t.Errorf("restored %q, %v, not %q", raw, err, want)
		}
	}
	if parts := indexParts(t, ws.Shadow); len(parts) > 1 {
		t.Errorf("%d first parts are left", len(parts))
	}
}
