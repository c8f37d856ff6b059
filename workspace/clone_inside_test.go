package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
)

// A git directory in a tree that was another thing by the time it is opened is
// not followed, also where Check has just seen a directory.
func TestShadowInTreeFollowsNothing(t *testing.T) {
	outside := t.TempDir()
	refs := filepath.Join(outside, "refs", "heads")
	if err := os.MkdirAll(refs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(refs, "secret"), []byte(strings.Repeat("1", 40)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if seen, err := readShadow(caisson.Workspace{Path: "/nowhere", Shadow: outside}); err != nil || len(seen.refs) != 1 {
		t.Fatalf("what is to be seen is not: %v, %v", seen.refs, err)
	}
	for name, put := range map[string]func(at string) error{
		"a link out":       func(at string) error { return os.Symlink(outside, at) },
		"a link in":        func(at string) error { return os.Symlink(".", at) },
		"a link to itself": func(at string) error { return os.Symlink(".git", at) },
		"a file":           func(at string) error { return os.WriteFile(at, []byte("gitdir: "+outside), 0o644) },
		"a pipe":           func(at string) error { return syscall.Mkfifo(at, 0o644) },
		"nothing":          func(string) error { return nil },
		"refs lead out": func(at string) error {
			if err := os.Mkdir(at, 0o755); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(outside, "refs"), filepath.Join(at, "refs"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := caisson.Workspace{Path: t.TempDir(), Mode: caisson.WorkspaceClone}
			ws.Shadow = filepath.Join(ws.Path, ".git")
			var err error
			if ws.Binding.TreeDevice, ws.Binding.TreeInode, err = directoryID(ws.Path); err != nil {
				t.Fatal(err)
			}
			if err := put(ws.Shadow); err != nil {
				t.Fatal(err)
			}
			seen, err := readShadow(ws)
			if len(seen.refs) > 0 || seen.head != "" {
				t.Errorf("%v was read", seen.refs)
			}
			if name != "refs lead out" && caisson.CodeOf(err) != caisson.CodeImportHeld {
				t.Error(err)
			}
		})
	}
}
