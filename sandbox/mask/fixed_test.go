package mask

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func put(t rapid.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What lies in a directory that is masked needs no mask, and could have none.
func TestFoundAtOpen(t *testing.T) {
	top, ctx := t.TempDir(), t.Context()
	for _, name := range []string{".env", "secrets/real", "secrets/a/.env", "b/shown"} {
		put(t, filepath.Join(top, name))
	}
	if err := os.Symlink("secrets/real", filepath.Join(top, "x.pem")); err != nil {
		t.Fatal(err)
	}
	f, err := Look(ctx, FixedOptions{Engine: "some", Workspace: top, Patterns: []string{"**/.env", "secrets", "*.pem"}, Mark: 4711})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := []Match{{".env", false}, {"secrets", true}}; !slices.Equal(f.Found(), want) {
		t.Errorf("found %v, want %v", f.Found(), want)
	}
}

func TestMasksAreUnreadableAndMarked(t *testing.T) {
	file, dir := filepath.Join(t.TempDir(), "f"), filepath.Join(t.TempDir(), "d")
	if err := MakeMasks(file, dir, 1234567); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, dir} {
		if info, err := os.Lstat(name); err != nil || info.Mode().Perm() != 0 || info.ModTime().Unix() != 1234567 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
