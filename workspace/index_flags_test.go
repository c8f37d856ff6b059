package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is read of an index of files that git overlooks is what git says of it. An
// index that git could read in another way is not read.
func TestOverlookedInIndex(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			git := func(args ...string) string {
				cmd := exec.Command("git", args...)
				cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("git %q: %v\n%s", args, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			read := func() ([]byte, []string, error) {
				raw, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
				if err != nil {
					t.Fatal(err)
				}
				size := map[string]int{"sha1": 20, "sha256": 32}[format]
				names, err := overlookedIn(raw, size)
				for n := range len(raw) { // no read goes beyond the end
					_, _ = overlookedIn(raw[:n], size)
				}
				return raw, names, err
			}
			git("init", "-q", "--object-format="+format)
			blob := git("hash-object", "-w", "/dev/null")
			long := strings.Repeat("d/", 2100) + "f" // longer than an entry says
			for _, name := range []string{"a", "b\nc", "c", long, "z"} {
				git("update-index", "--add", "--cacheinfo", "100644,"+blob+","+name)
			}
			if _, names, err := read(); err != nil || len(names) > 0 {
				t.Errorf("%q, %v", names, err)
			}
			git("update-index", "--skip-worktree", "b\nc")
			git("update-index", "--assume-unchanged", "a", long)
			git("update-index", "--skip-worktree", long)
			raw, names, err := read()
			if want := []string{"a", "b\nc", long}; err != nil || !slices.Equal(names, want) {
				t.Errorf("%.80q, %v", names, err)
			}
			lied := slices.Clone(raw)
			lied[indexHead+indexObject+len(blob)/2+1]++ // the first name is longer than it is
			if names, err := overlookedIn(lied, len(blob)/2); err == nil {
				t.Errorf("read of a name of two lengths: %.80q", names)
			}
			for _, form := range [][]string{{"-c", "index.threads=2"}, {"-c", "core.splitIndex=true"}, {"-c", "index.version=4"}} {
				old := raw
				git(append(form, "update-index", "--force-write-index")...)
				if form[1] == "index.version=4" {
					git("update-index", "--index-version", "4")
				}
				raw, names, err := read()
				if err == nil && (form[1] != "index.threads=2" || strings.Contains(string(raw), "EOIE")) {
					t.Errorf("%s: read as %.80q", form[1], names)
				}
				if err := os.WriteFile(filepath.Join(dir, ".git", "index"), old, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
