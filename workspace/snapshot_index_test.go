//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/workspace"
)

// An index of snapshots that cannot be read any more is made anew:
// the snapshot is whole.
func TestSnapshotWithDamagedIndex(t *testing.T) {
	for name, damage := range map[string]func(raw []byte) []byte{
		"nonsense": func([]byte) []byte { return []byte("nonsense\n") },
		"empty":    func([]byte) []byte { return nil },
		"cut":      func(raw []byte) []byte { return raw[:10] },
		"no file":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Name: "r1"})
			box := newBox(t, ws)
			if _, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1); err != nil {
				t.Fatal(err)
			}
			kept := filepath.Join(ws.Shadow, "caisson-index")
			raw, err := os.ReadFile(kept)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(kept); err != nil {
				t.Fatal(err)
			}
			if damage != nil {
				wd.write(kept, string(damage(raw)))
			}
			wd.write(filepath.Join(ws.Path, "new.txt"), "new\n")
			snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 2)
			if err != nil || snap.Partial != "" || !snap.Changed {
				t.Fatalf("%+v, %v", snap, err)
			}
			if files := wd.git("ls-tree", "-r", "--name-only", snap.Commit); files != strings.Join([]string{".gitignore", "a.txt", "new.txt", "sub/b.txt"}, "\n") {
				t.Errorf("it has %q", files)
			}
		})
	}
}
