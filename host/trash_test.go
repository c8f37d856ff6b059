package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// Below the floor the oldest goes, as long as that helps; the commands that follow
// do not try again for a while.
func TestTidyTrashBelowTheFloor(t *testing.T) {
	h := opened(t, "floor: {disk: 1GiB}", nil)
	little := discarded(t, h, 4*time.Hour)
	large := func(age time.Duration) string {
		dir := discarded(t, h, age)
		write(t, filepath.Join(dir, "large"), strings.Repeat("x", 2*littleOnDisk))
		return dir
	}
	oldest, older, newer, newest := large(3*time.Hour), large(2*time.Hour), large(time.Hour), large(time.Minute)
	tidy := func(readings ...int64) {
		t.Helper()
		if err := h.tidyTrash(t.Context(), func() (int64, bool) {
			now := readings[0]
			if len(readings) > 1 {
				readings = readings[1:]
			}
			return now, true
		}); err != nil {
			t.Fatal(err)
		}
	}
	wantGone := func(want ...bool) {
		t.Helper()
		for i, dir := range []string{little, oldest, older, newer, newest} {
			if gone(dir) != want[i] {
				t.Errorf("%d: gone: %v", i, gone(dir))
			}
		}
	}
	h.keepTrash = true
	tidy(0)
	wantGone(false, false, false, false, false)
	h.keepTrash = false
	tidy(10, 10, 4<<20+10, 4<<20+10, 4<<20+10) // of the little one, then before and after each
	wantGone(false, true, true, false, false)
	tidy(10, 10, 20)
	wantGone(false, true, true, false, false)
	if err := os.Remove(h.unhelpedPath()); err != nil {
		t.Fatal(err)
	}
	tidy(10, 10, 1<<30)
	wantGone(false, true, true, true, false)
	log, err := os.ReadFile(filepath.Join(h.trashDir(), "log"))
	if err != nil || strings.Count(string(log), "removed workspace") != 3 ||
		!strings.Contains(string(log), " 4 MiB more are free without") || !strings.Contains(string(log), " 0 KiB more are free without") {
		t.Errorf("%s, %v", log, err)
	}
}
