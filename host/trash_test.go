package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// The sandbox of a holder that is dead may be there still, if its engine did
// not answer when it was swept: nobody can tell whether it writes.
func TestSandboxThatCouldNotBeSwept(t *testing.T) {
	h, ws := opened(t, "", nil), vacant(t)
	dead, err := process.Register(h.Paths.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Ledger.PutInstance(t.Context(), dead.Instance); err != nil {
		t.Fatal(err)
	}
	record := caisson.SandboxRecord{ID: caisson.NewSandboxID(), Workspace: ws.ID, Instance: dead.Instance.ID, Engine: "docker", State: caisson.SandboxCreating}
	if err := h.Ledger.PutSandbox(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if opts, err := h.users(t.Context(), ws); err != nil || len(opts.Unknown) != 1 || opts.Driver != "" {
		t.Errorf("%+v, %v", opts, err)
	}
}

// discarded puts a workspace whose repository is gone into the trash.
func discarded(t *testing.T, h *Host, age time.Duration) (dir string) {
	t.Helper()
	id := caisson.NewWorkspaceID()
	dir = filepath.Join(h.trashDir(), string(id))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age).UTC().Format(time.RFC3339Nano)
	write(t, filepath.Join(dir, "note"), fmt.Sprintf(`{"version":1,"stage":"kept","at":%q,"workspace":{"id":%q,"path":%q}}`, at, id, filepath.Join(dir, "gone")))
	return dir
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

// One that cannot be removed keeps no other in the trash.
func TestTidyTrashBesideOneThatStays(t *testing.T) {
	h := opened(t, "", nil)
	stays, goes := discarded(t, h, 400*24*time.Hour), discarded(t, h, 300*24*time.Hour)
	if err := os.Mkdir(stays+".lock", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.tidyTrash(t.Context(), func() (int64, bool) { return 1 << 60, true }); err == nil {
		t.Error("no error of the one")
	}
	if gone(stays) || !gone(goes) {
		t.Errorf("gone: %v, %v", gone(stays), gone(goes))
	}
}

// Below the floor the oldest goes, as long as that helps.
func TestTidyTrashBelowTheFloor(t *testing.T) {
	h := opened(t, "floor: {disk: 1GiB}", nil)
	oldest, older, newest := discarded(t, h, 3*time.Hour), discarded(t, h, 2*time.Hour), discarded(t, h, time.Hour)
	readings := []int64{10, 20, 20, 20, 20, 30} // before and after each
	free := func() (int64, bool) {
		now := readings[0]
		readings = readings[1:]
		return now, true
	}
	h.keepTrash = true
	if err := h.tidyTrash(t.Context(), func() (int64, bool) { return 0, true }); err != nil || gone(oldest) {
		t.Fatalf("kept: %v, %v", !gone(oldest), err)
	}
	h.keepTrash = false
	if err := h.tidyTrash(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	if !gone(oldest) || !gone(older) || gone(newest) {
		t.Errorf("gone: %v, %v, %v", gone(oldest), gone(older), gone(newest))
	}
}
