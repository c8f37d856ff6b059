package sandbox_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

func keep(t *testing.T, dir, program string) *sandbox.Programs {
	t.Helper()
	kept, err := sandbox.KeepPrograms(dir, func() ([]byte, error) { return []byte(program), nil })
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func old(t *testing.T, dir string) []string {
	t.Helper()
	found, err := sandbox.OldPrograms(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The guest program of an earlier build goes when no sandbox uses it any more.
func TestOldPrograms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "programs")
	if found := old(t, dir); len(found) > 0 {
		t.Errorf("%q", found)
	}
	first := keep(t, dir, "one")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(first.Dir, long, long); err != nil {
		t.Fatal(err)
	}
	second, again := keep(t, dir, "two"), keep(t, dir, "two")
	if found := old(t, dir); len(found) > 0 {
		t.Errorf("in use: %q", found)
	}
	if err := sandbox.RemovePrograms(first.Dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(first.Dir, "caisson-guest")); err != nil {
		t.Errorf("it was removed while it was used: %v", err)
	}
	for _, p := range []*sandbox.Programs{first, second} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if found := old(t, dir); !cmp.Equal(found, []string{first.Dir}) {
		t.Errorf("%q, not %q", found, first.Dir)
	}
	if err := sandbox.RemovePrograms(first.Dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(first.Dir); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if found := old(t, dir); len(found) > 0 { // the next sandbox will want it
		t.Errorf("the newest is %q", found)
	}
	if keep(t, dir, "one").Dir != first.Dir {
		t.Error("it has another place now")
	}
}

// Whoever has said that a program is in use has it, however often it was removed
// meanwhile.
func TestProgramsRemovedMeanwhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "programs")
	at := keep(t, dir, "one")
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var removers sync.WaitGroup
	for range 2 {
		removers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := sandbox.RemovePrograms(at.Dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3000 {
		kept := keep(t, dir, "one")
		if raw, err := os.ReadFile(filepath.Join(kept.Dir, "caisson-guest")); err != nil || string(raw) != "one" {
			t.Errorf("%q, %v", raw, err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
	close(over)
	removers.Wait()
}
