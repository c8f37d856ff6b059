package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// vacant is a workspace in which nobody works, as far as its lock tells.
func vacant(t *testing.T) caisson.Workspace {
	t.Helper()
	return caisson.Workspace{ID: caisson.NewWorkspaceID(), Branch: "b", Home: filepath.Join(t.TempDir(), "home")}
}

// Somebody who only looks whether the lock is held is no occupant that could be
// named, but keeps others from it. Nobody works without the lock.
func TestOccupyWhileLookedAt(t *testing.T) {
	h, ws := opened(t, "", nil), vacant(t)
	f, err := os.Create(usePath(ws))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if lock, err := h.occupy(t.Context(), ws, "r"); lock != nil || caisson.CodeOf(err) != caisson.CodeLeaseHeld {
		t.Fatalf("%v, %v", lock, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	lock, err := h.occupy(t.Context(), ws, "r")
	if err != nil {
		t.Fatal(err)
	}
	if held, err := lockfile.Held(usePath(ws)); err != nil || !held {
		t.Errorf("held: %v, %v", held, err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

// A workspace that was removed meanwhile is none, and that is what is said.
func TestOccupyWhatWasRemoved(t *testing.T) {
	h, ws := opened(t, "", nil), vacant(t)
	ws.Home = filepath.Join(ws.Home, "gone", "home")
	if lock, err := h.occupy(t.Context(), ws, "r"); lock != nil || caisson.CodeOf(err) != caisson.CodeNotFound || strings.Contains(err.Error(), ws.Home) {
		t.Errorf("%v, %v", lock, err)
	}
}

// Nothing is committed in a workspace in which somebody is about to work.
func TestCommitInATakenWorkspace(t *testing.T) {
	h, ws := opened(t, "", nil), vacant(t)
	use, err := h.occupy(t.Context(), ws, "r")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.gather(t.Context(), ws, MergeRequest{Commit: true}); caisson.CodeOf(err) != caisson.CodeLeaseHeld {
		t.Errorf("%v", err)
	}
	if err := use.Close(); err != nil {
		t.Fatal(err)
	}
}
