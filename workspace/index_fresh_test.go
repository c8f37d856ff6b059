package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is read of an index is what git says of it, whatever its names and the
// form of its objects' names; another form is not read.
func TestFreshIndex(t *testing.T) {
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
			git("init", "-q", "--object-format="+format)
			blob := git("hash-object", "-w", "/dev/null")
			link := strings.Repeat("12", len(blob)/2)
			long := strings.Repeat("d/", 2100) + "f" // longer than an entry says
			for _, entry := range []string{"100644," + blob + ",a", "160000," + link + ",sub/module", "100755," + blob + ",b\nc", "100644," + blob + "," + long, "160000," + link + ",z"} {
				git("update-index", "--add", "--cacheinfo", entry)
			}
			tree := git("write-tree")
			index := filepath.Join(dir, ".git", "index")
			if err := os.Remove(index); err != nil {
				t.Fatal(err)
			}
			git("read-tree", "-m", tree)
			read := func() (freshIndex, error) {
				raw, err := os.ReadFile(index)
				if err != nil {
					t.Fatal(err)
				}
				return parseFreshIndex(raw, len(blob)/2)
			}
			got, err := read()
			if err != nil || got.tree != tree || len(got.links) != 2 || got.links[0] != (moduleLink{"sub/module", link}) || got.links[1] != (moduleLink{"z", link}) {
				t.Errorf("%+v, %v, want tree %s", got, err, tree)
			}
			before, entries := git("ls-files", "-s"), strings.Count(git("ls-files", "--debug"), "uid:")
			raw, _ := os.ReadFile(index)
			owned, err := ownedInside(raw, len(blob)/2)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(index, owned, 0o600); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(git("ls-files", "--debug"), "uid: 1000\tgid: 1000"); n != entries || n == 0 {
				t.Errorf("%d of %d entries have the owner inside", n, entries)
			}
			git("fsck") // which looks whether the index is whole
			if after := git("ls-files", "-s"); after != before {
				t.Errorf("the index has\n%s, not\n%s", after, before)
			}
			git("update-index", "--index-version", "4")
			if got, err := read(); err == nil {
				t.Errorf("read of version 4: %+v", got)
			}
			raw, _ = os.ReadFile(index)
			raw[7] = 2 // it says another version than it has: no read goes beyond it
			for n := range len(raw) {
				_, _ = parseFreshIndex(raw[:n], len(blob)/2)
			}
		})
	}
}
