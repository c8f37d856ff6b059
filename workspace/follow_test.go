//go:build linux

package workspace_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// What a person commits outside, while nobody works inside, is there inside, and
// what is committed on top of it comes home.
func TestFollowTakesThePersonsCommitsInside(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "echo agent >agent && git add agent && git commit -qm agent")
	before := wd.importOK(ws, box, workspace.ImportOptions{}).New
	wd.write(filepath.Join(ws.Path, "person"), "person\n")
	wd.gitIn(ws.Path, "add", "person")
	wd.gitIn(ws.Path, "commit", "-qm", "person")
	tip := wd.gitIn(ws.Path, "rev-parse", "HEAD")
	done, err := wd.w.Follow(t.Context(), ws, box)
	if err != nil || done.Old != before || done.New != tip || done.IndexKept != "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := inside(t, box, "git status --porcelain; git log --format=%s"); got != "person\nagent\nfirst" {
		t.Errorf("inside:\n%s", got)
	}
	if _, err := wd.w.Follow(t.Context(), ws, box); err != nil { // nothing is left to be done
		t.Error(err)
	}
	inside(t, box, "git commit -q --allow-empty -m more")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.Rewritten || got.Old != tip {
		t.Errorf("%+v", got)
	}

	// The person takes a commit back: it stays kept.
	last := wd.gitIn(ws.Path, "rev-parse", "HEAD")
	wd.gitIn(ws.Path, "reset", "-q", "--soft", "HEAD~1")
	if _, err := wd.w.Follow(t.Context(), ws, box); err != nil {
		t.Fatal(err)
	}
	if got := inside(t, box, "git log -1 --format=%H"); got != tip {
		t.Errorf("inside it is at %s", got)
	}
	if got := wd.git("for-each-ref", "--format=%(objectname)", "refs/caisson/inside/"+string(ws.ID)+"/was/"); !strings.Contains(got, last) {
		t.Errorf("%s is kept nowhere: %s", last, got)
	}
}

// Commits made inside that nobody brought home are not passed over.
func TestFollowKeepsWhatIsOnlyInside(t *testing.T) {
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	box := newBox(t, ws)
	inside(t, box, "git commit -q --allow-empty -m agent")
	wd.gitIn(ws.Path, "commit", "-q", "--allow-empty", "-m", "person")
	_, err := wd.w.Follow(t.Context(), ws, box)
	wantCode(t, err, caisson.CodeImportHeld)
	if got := inside(t, box, "git log -1 --format=%s"); got != "agent" {
		t.Error(got)
	}
}
