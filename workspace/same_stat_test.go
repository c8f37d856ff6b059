//go:build linux

package workspace_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/workspace"
)

// A file that another one of the same size and time takes the place of, as all
// files have the time at which they were checked out, is changed: for git inside,
// for a snapshot, and for a removal. Also where git inside was told to look at
// times and sizes alone. (Times count in seconds: the copy is made in a later one.)
func TestFileOfTheSameSizeAndTime(t *testing.T) {
	for name, config := range map[string]string{
		"as it is made":     "true",
		"told to look less": "git config core.checkStat minimal && git config core.trustctime false",
	} {
		for way, line := range map[string]string{"renamed": "mv x.txt y.txt", "copied": "sleep 1.1; cp -p x.txt y.txt"} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				wd := newWorld(t)
				wd.boxes()
				x, y := filepath.Join(wd.repo, "x.txt"), filepath.Join(wd.repo, "y.txt")
				wd.write(x, "AAAA\n")
				wd.write(y, "BBBB\n")
				wd.git("add", "-A")
				wd.git("commit", "-qm", "two of one size")
				ws := wd.create(workspace.CreateSpec{Name: "r1"})
				one := []unix.Timespec{{Sec: 1_700_000_000}, {Sec: 1_700_000_000}}
				for _, name := range []string{"x.txt", "y.txt"} { // as a checkout of all in one second leaves them
					wd.must(unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(ws.Path, name), one, 0))
				}
				box := newBox(t, ws)
				inside(t, box, "git status -s && git update-index --really-refresh && "+config)
				if _, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 1); err != nil {
					t.Fatal(err)
				}
				inside(t, box, line)
				if name == "as it is made" {
					if got := inside(t, box, "git diff --name-only -- y.txt"); got != "y.txt" {
						t.Errorf("git inside says %q", got)
					}
				}
				snap, err := wd.w.Snapshot(t.Context(), ws, box, "r1", 2)
				if err != nil {
					t.Fatal(err)
				}
				if got := wd.git("show", snap.Commit+":y.txt"); got != "AAAA" {
					t.Errorf("the snapshot has %q", got)
				}
				found := wd.inspect(ws)
				changed := false
				for _, l := range found.Losses {
					changed = changed || l.Kind == workspace.LossChange && l.What == "y.txt"
				}
				if !changed {
					t.Errorf("found %v", found.Losses)
				}
			})
		}
	}
}

// Git inside has nothing to read of a tree that was just checked out, whoever its
// files belong to there.
func TestNothingToReadInside(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	if got := inside(t, newBox(t, ws), "git diff-files --name-only"); got != "" {
		t.Errorf("git inside would read %q", got)
	}
}
