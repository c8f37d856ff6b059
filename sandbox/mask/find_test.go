//go:build linux

package mask

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/glob"
)

func newTest(t testing.TB, top string, patterns ...string) *finder {
	t.Helper()
	f, err := newFinder(top, patterns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func find(t rapid.TB, f *finder) []string {
	t.Helper()
	found, err := f.find(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// With and without watches the same is found, whatever is done to the tree.
func TestFindsWhatAWalkFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, err := os.MkdirTemp("", "caisson-mask-") //nolint:usetesting // one a check: rapid's T has none
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(top)
		f, err := newFinder(top, []string{"**/.env", "**/k/**"})
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		name := rapid.SampledFrom([]string{"a", "b", "k", ".env", "a/b", "a/.env", "b/k", "a/k/x", "b/a/.env", "a/b/a/b", "b/a/k/.env"})
		known := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			from, to := filepath.Join(top, name.Draw(t, "from")), filepath.Join(top, name.Draw(t, "to"))
			switch rapid.SampledFrom([]string{"file", "dir", "move", "remove", "look"}).Draw(t, "what") {
			case "file":
				if os.MkdirAll(filepath.Dir(to), 0o755) == nil {
					_ = os.WriteFile(to, nil, 0o644) // a directory may be there
				}
			case "dir":
				_ = os.MkdirAll(to, 0o755) // a file may be there
			case "move":
				_ = os.Rename(from, to) // into itself, or over what is not empty
			case "remove":
				_ = os.RemoveAll(to)
			case "look":
				for _, path := range find(t, f) {
					known[path] = true
				}
			}
		}
		for _, path := range find(t, f) {
			known[path] = true
		}
		whole, err := newFinder(top, []string{"**/.env", "**/k/**"})
		if err != nil {
			t.Fatal(err)
		}
		defer whole.close()
		whole.unwatch()
		for _, path := range find(t, whole) {
			// A directory that was hidden and moved to where its name does not
			// match is hidden still, and so is what is in it.
			if !known[path] && !underKnown(known, path) {
				t.Fatalf("%s was not found; known %v", path, known)
			}
		}
	})
}

func underKnown(known map[string]bool, path string) bool {
	for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
		if known[dir] {
			return true
		}
	}
	return false
}

// The quick way matches what the whole expression does.
func TestPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{
			"**/.env", "**/*.pem", "**/{a,b}", "**/[ab]*", "a", "*.pem", "a/**", "**/a/b", "**/a**b", `**/a\*`, "**/k?", "a/**/b", "**/**/a",
		}).Draw(t, "pattern")
		re, err := glob.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", ".env", "x.pem", "a*", "kk", "ab", "a\nb", "\xff"}), 1, 4).Draw(t, "path"), "/")
		all := patterns{newPattern(text, re)}
		if got, want := all.match(path), re.MatchString(path); got != want {
			t.Errorf("%q on %q: %v, want %v", text, path, got, want)
		}
	})
}

func TestNothingNewCostsNothing(t *testing.T) {
	top := t.TempDir()
	put(t, filepath.Join(top, "a/.env"))
	f := newTest(t, top, "**/.env")
	if got := find(t, f); !slices.Equal(got, []string{"a/.env"}) {
		t.Errorf("found %v", got)
	}
	f.seen = 0
	if got := find(t, f); len(got) != 0 || f.seen != 0 {
		t.Errorf("found %v, looked at %d entries; nothing was changed", got, f.seen)
	}
	put(t, filepath.Join(top, "a/b/c/.env"))
	if got := find(t, f); !slices.Equal(got, []string{"a/b/c/.env"}) {
		t.Errorf("found %v", got)
	}
}

// More events than the kernel keeps, and no watches at all.
func TestLooksAtAllWhereEventsAreLost(t *testing.T) {
	top := t.TempDir()
	f := newTest(t, top, "**/.env")
	find(t, f)
	for i := range 20_000 {
		put(t, filepath.Join(top, fmt.Sprint("f", i)))
	}
	put(t, filepath.Join(top, "x/.env"))
	if got := find(t, f); !slices.Equal(got, []string{"x/.env"}) {
		t.Errorf("after an overflow: %v", got)
	}
	f.unwatch()
	put(t, filepath.Join(top, "y/.env"))
	if got := find(t, f); !slices.Equal(got, []string{"x/.env", "y/.env"}) {
		t.Errorf("without watches: %v", got)
	}
}

// A program inside can call any directory .git, as it can move one in which
// something is hidden.
func TestLooksThroughWhatIsCalledGit(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{".git/config", ".git/x/.env", "sub/.git/.env", "file/.git"} {
		put(t, filepath.Join(top, name))
	}
	f := newTest(t, top, "**/.*")
	want := []string{".git/x/.env", "sub/.git/.env"}
	if got := find(t, f); !slices.Equal(got, want) {
		t.Errorf("%q, want %q: nothing that is called .git itself", got, want)
	}
	put(t, filepath.Join(top, "late/.env"))
	if err := os.MkdirAll(filepath.Join(top, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(top, "late"), filepath.Join(top, "other/.git")); err != nil {
		t.Fatal(err)
	}
	if got := find(t, f); !slices.Contains(got, "other/.git/.env") {
		t.Errorf("after a directory was moved to another/.git: %q", got)
	}
}

// asNobody runs do as a user who may read what anybody may.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

// What may not be looked through now can be opened by its owner inside, once the
// first command runs.
func TestHidesWhatMayNotBeLookedThrough(t *testing.T) {
	top, err := os.MkdirTemp("/tmp", "caisson-mask-") //nolint:usetesting // another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	for _, name := range []string{"shut/.env", "listed/in/.env", "entered/.env", "a/.env", "a/deep/.env"} {
		put(t, filepath.Join(top, name))
	}
	modes := map[string]os.FileMode{"shut": 0, "listed": 0o444, "entered": 0o111, "a/deep": 0o200, ".": 0o755}
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(top, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for name := range modes {
			_ = os.Chmod(filepath.Join(top, name), 0o755)
		}
	})
	asNobody(t, func() {
		f, err := newFinder(top, []string{"**/.env"})
		if err != nil {
			t.Error(err)
			return
		}
		defer f.close()
		got, err := f.find(t.Context())
		slices.Sort(got)
		if want := []string{"a/.env", "a/deep", "entered", "listed", "shut"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}

// How many links match, and how long paths are, is for programs inside to say.
func TestLinksThatMatchAreBounded(t *testing.T) {
	top := t.TempDir()
	f := newTest(t, top, "**/.env")
	find(t, f)
	var err error
	for i := 0; err == nil && i < 3; i++ {
		for j := range maxFound / 2 {
			dir := filepath.Join(top, fmt.Sprint(i), fmt.Sprint(j))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("nowhere", filepath.Join(dir, ".env")); err != nil {
				t.Fatal(err)
			}
		}
		_, err = f.find(t.Context())
		if len(f.links) > maxFound {
			t.Fatalf("%d links are kept", len(f.links))
		}
	}
	if caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("%v, want isolation-unavailable", err)
	}
}

func TestTooManyIsAnError(t *testing.T) {
	top := t.TempDir()
	for i := range maxFound + 1 {
		put(t, filepath.Join(top, fmt.Sprint("k/", i)))
	}
	f := newTest(t, top, "k/*")
	if _, err := f.find(t.Context()); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("%v, want isolation-unavailable", err)
	}
	if _, err := f.find(t.Context()); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("the second time: %v", err)
	}
}

// A tree of 200,000 files: once it is known, looking again takes no time.
func BenchmarkFindAgain(b *testing.B) {
	top := b.TempDir()
	for i := range 2_000 {
		dir := filepath.Join(top, fmt.Sprintf("%d/%d", i%50, i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(j)))
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	}
	f := newTest(b, top, "**/.env", "**/*.pem", "**/secrets")
	start := time.Now()
	find(b, f)
	first := time.Since(start)
	for b.Loop() {
		find(b, f)
	}
	b.ReportMetric(float64(first.Milliseconds()), "ms-first")
}
