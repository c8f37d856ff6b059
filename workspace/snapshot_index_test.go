//go:build linux

package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// A file that was changed within the second in which it was checked out, to as
// many bytes, is in a snapshot also where the first look is in a later second:
// git compares times in whole seconds, and takes a file of the second of its
// index for one that it must read.
func TestSnapshotOfChangesWithinASecond(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	file, index := filepath.Join(ws.Path, "a.txt"), filepath.Join(ws.Shadow, "index")
	for n := 0; ; n++ {
		nextSecond() // so that there is most of it for all of this
		inside(t, box, "echo 111 >a.txt && git add a.txt && git commit -qm one --allow-empty && sleep 0.05 && echo two >a.txt")
		if second(t, file) == second(t, index) {
			break
		}
		if n == 20 {
			t.Fatal("no change was within the second of its index")
		}
	}
	nextSecond()
	snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := wd.git("show", snap.Commit+":a.txt"); got != "two" {
		t.Errorf("the snapshot has %q, not what was written last", got)
	}
}

// nextSecond waits for the next one to begin.
func nextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
}

// second is that in which a file was last written.
func second(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime().Unix()
}
