package atomicfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/fault"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("CAISSON_TEST_ATOMICFILE"); path != "" {
		if err := atomicfile.Write(path, []byte("new"), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// alone verifies that path is all there is in its directory.
func alone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func TestWrite(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "f")
	for _, c := range []struct {
		data string
		mode fs.FileMode
	}{{"one", 0o644}, {"", 0o400}, {"two", 0o755}} {
		if err := atomicfile.Write(path, []byte(c.data), c.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != c.mode || read(t, path) != c.data {
			t.Fatalf("%v, %v", info, err)
		}
		alone(t, path)
	}
}

func TestWriteReplacesLink(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := atomicfile.Write(target, []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Create(path, []byte("x"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a link was overwritten: %v", err)
	}
	if err := atomicfile.Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if read(t, target) != "safe" || read(t, path) != "new" {
		t.Fatal("the link was followed")
	}
}

func TestCreateOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { errs[i] = atomicfile.Create(path, fmt.Append(nil, i), 0o600) })
	}
	all.Wait()
	made := 0
	for i, err := range errs {
		if err == nil {
			made++
			if read(t, path) != fmt.Sprint(i) {
				t.Error("another's content")
			}
		} else if !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d succeeded", made)
	}
	alone(t, path)
}

func TestErrorsLeaveTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := atomicfile.Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"atomicfile.sync", "atomicfile.place.before"} {
		disarm := fault.Arm(point, fault.ENOSPC, 1)
		err := atomicfile.Write(path, []byte("new"), 0o600)
		disarm()
		if !errors.Is(err, syscall.ENOSPC) || read(t, path) != "old" {
			t.Fatalf("%s: %v, %q", point, err, read(t, path))
		}
		alone(t, path)
	}
	if err := atomicfile.Write(filepath.Join(path, "x"), nil, 0o600); err == nil {
		t.Fatal("written below a file")
	}
}

func TestCrash(t *testing.T) {
	for point, want := range map[string]string{"atomicfile.sync": "old", "atomicfile.place.before": "old", "atomicfile.place.after": "new"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := atomicfile.Write(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "CAISSON_TEST_ATOMICFILE="+path, fault.Env+"="+point+"=crash")
		if err := cmd.Run(); err == nil {
			t.Fatalf("%s was not passed", point)
		}
		if got := read(t, path); got != want {
			t.Errorf("%s: %q", point, got)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if name := entry.Name(); atomicfile.IsTemporary(name) != (name != "f") {
				t.Errorf("%s: %s is taken for another kind of file", point, name)
			}
		}
	}
}

// Which names are of files that were not written to their end.
func TestTemporaryNames(t *testing.T) {
	for name, want := range map[string]bool{".note.123.tmp": true, "note": false, "note.1.tmp": false, ".note.tmp": false, ".note.x.tmp": false} {
		if atomicfile.IsTemporary(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := atomicfile.RemoveIfThere(path); err != nil || exists(path) {
			t.Error(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
