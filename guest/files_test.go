package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A link in the workspace leads to /etc/passwd. Origin: class of CVE-2026-39861.
func TestCase_S17(t *testing.T) {
	b := open(t)
	ctx := context.Background()
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "secret text")
	for link, target := range map[string]string{
		"passwd": "/etc/passwd", "abs": secret, "dir": filepath.Dir(secret), "up": "../..", "chain": "abs",
		"rel": "../../../../../../../../../../etc/passwd", "dangling": "/nothing/there", "proc": "/proc/self/root/etc/passwd",
	} {
		if err := os.Symlink(target, filepath.Join(b.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	files := b.Files()
	for _, path := range []string{"passwd", "abs", "chain", "rel", "dir/secret", "up/etc/passwd", "/etc/passwd", "../x", "proc", "dangling", "a/../../x"} {
		if got, err := files.Read(ctx, path, 0, 0); caisson.CodeOf(err) != caisson.CodePathOutside {
			t.Errorf("read %s: %v, %d bytes", path, err, len(got.Data))
		}
		if _, err := files.Write(ctx, path, []byte("bad"), caisson.WriteOptions{}); caisson.CodeOf(err) != caisson.CodePathOutside {
			t.Errorf("write %s: %v", path, err)
		}
	}
	for _, path := range []string{"dir/secret", "/etc/passwd", "../x"} {
		if _, err := files.Stat(ctx, path); caisson.CodeOf(err) != caisson.CodePathOutside {
			t.Errorf("stat %s: %v", path, err)
		}
		if _, err := files.Grep(ctx, caisson.GrepQuery{Dir: path, Pattern: "."}); caisson.CodeOf(err) != caisson.CodePathOutside {
			t.Errorf("grep %s: %v", path, err)
		}
		if _, err := files.Glob(ctx, path, "**", 0); caisson.CodeOf(err) != caisson.CodePathOutside {
			t.Errorf("glob %s: %v", path, err)
		}
	}
	found, err := files.Grep(ctx, caisson.GrepQuery{Pattern: "secret text"})
	if err != nil || found.Total != 0 {
		t.Errorf("grep followed a link: %+v, %v", found, err)
	}
	if info, err := files.Stat(ctx, "passwd"); err != nil || info.Kind != "link" || info.Digest != "" {
		t.Errorf("the link itself: %+v, %v", info, err)
	}
	if got, _ := os.ReadFile(secret); string(got) != "secret text" {
		t.Errorf("the file outside is %q", got)
	}
}

func TestLinksInsideAreFollowedToReadAndNamedToWrite(t *testing.T) {
	b := open(t)
	ctx := context.Background()
	put(t, filepath.Join(b.dir, "real/file"), "text")
	for link, target := range map[string]string{"rel": "real/file", "abs": b.dir + "/real/file", "dir": b.dir + "/real", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(b.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"rel", "abs", "dir/file", b.dir + "/dir/file"} {
		if got, err := b.Files().Read(ctx, path, 0, 0); err != nil || string(got.Data) != "text" {
			t.Errorf("read %s: %q, %v", path, got.Data, err)
		}
	}
	for _, path := range []string{"rel", "abs"} {
		if _, err := b.Files().Write(ctx, path, []byte("x"), caisson.WriteOptions{}); caisson.CodeOf(err) != caisson.CodePathInvalid {
			t.Errorf("write %s: %v", path, err)
		}
	}
	if _, err := b.Files().Write(ctx, "dir/file", []byte("new"), caisson.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(filepath.Join(b.dir, "real/file")); string(got) != "new" {
		t.Errorf("%q", got)
	}
	if _, err := b.Files().Read(ctx, "loop", 0, 0); err == nil {
		t.Error("a loop was read")
	}
}

func TestReadAndWrite(t *testing.T) {
	b := open(t)
	ctx := context.Background()
	files := b.Files()
	large := bytes.Repeat([]byte("0123456789abcdef"), 300_000) // more than one window
	for _, name := range []string{"a", "b \xff\n", "deep/er/c"} {
		info, err := files.Write(ctx, name, large, caisson.WriteOptions{Parents: true, Mode: 0o640})
		if err != nil {
			t.Fatal(err)
		}
		if info.Digest != caisson.DigestOf(large) || info.Size != int64(len(large)) || info.Mode != 0o640 || info.Path != name {
			t.Errorf("%+v", info)
		}
		got, err := files.Read(ctx, name, 0, 0)
		if err != nil || !bytes.Equal(got.Data, large) || got.Info.Digest != info.Digest {
			t.Errorf("read back %d bytes, %v", len(got.Data), err)
		}
		if disk, _ := os.ReadFile(filepath.Join(b.dir, name)); !bytes.Equal(disk, large) {
			t.Errorf("%d bytes on disk", len(disk))
		}
	}
	got, err := files.Read(ctx, "a", 10, 10)
	if err != nil || string(got.Data) != "abcdef0123" || got.Info.Digest != caisson.DigestOf(large) {
		t.Errorf("%q, %+v, %v", got.Data, got.Info, err)
	}
	if got, err := files.Read(ctx, "a", 1<<40, 10); err != nil || len(got.Data) != 0 {
		t.Errorf("%q, %v", got.Data, err)
	}
	left, _ := filepath.Glob(filepath.Join(b.dir, ".caisson-*"))
	if len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestWriteConditions(t *testing.T) {
	b := open(t)
	ctx := context.Background()
	files := b.Files()
	put(t, filepath.Join(b.dir, "f"), "one")
	if err := os.Chmod(filepath.Join(b.dir, "f"), 0o755); err != nil { //nolint:gosec // the mode is what is tested
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		path string
		opts caisson.WriteOptions
		want caisson.Code
	}{
		"changed":   {"f", caisson.WriteOptions{Expect: caisson.DigestOf([]byte("other"))}, caisson.CodeFileChanged},
		"gone":      {"g", caisson.WriteOptions{Expect: caisson.DigestOf([]byte("other"))}, caisson.CodeFileChanged},
		"exists":    {"f", caisson.WriteOptions{Create: true}, caisson.CodeAlreadyExists},
		"no parent": {"no/f", caisson.WriteOptions{}, caisson.CodeNotFound},
		"directory": {".", caisson.WriteOptions{}, caisson.CodePathInvalid},
		"NUL":       {"a\x00", caisson.WriteOptions{}, caisson.CodePathInvalid},
	} {
		if _, err := files.Write(ctx, of.path, []byte("two"), of.opts); caisson.CodeOf(err) != of.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(b.dir, "f")); string(got) != "one" {
		t.Errorf("it was written: %q", got)
	}
	info, err := files.Write(ctx, "f", []byte("two"), caisson.WriteOptions{Expect: caisson.DigestOf([]byte("one"))})
	if err != nil || info.Mode != 0o755 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := files.Write(ctx, "new", nil, caisson.WriteOptions{Create: true}); err != nil {
		t.Error(err)
	}
}

func TestSpecialFilesDoNotBlock(t *testing.T) {
	b := open(t)
	if err := unix.Mkfifo(filepath.Join(b.dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), prompt)
	defer cancel()
	if _, err := b.Files().Read(ctx, "fifo", 0, 0); caisson.CodeOf(err) != caisson.CodePathInvalid {
		t.Errorf("read: %v", err)
	}
	if _, err := b.Files().Write(ctx, "fifo", nil, caisson.WriteOptions{}); caisson.CodeOf(err) != caisson.CodePathInvalid {
		t.Errorf("write: %v", err)
	}
	if got, err := b.Files().Grep(ctx, caisson.GrepQuery{Pattern: "x"}); err != nil || got.Total != 0 {
		t.Errorf("grep: %+v, %v", got, err)
	}
	if info, err := b.Files().Stat(ctx, "fifo"); err != nil || info.Kind != "other" {
		t.Errorf("stat: %+v, %v", info, err)
	}
}

func TestGlob(t *testing.T) {
	b := open(t)
	now := time.Now()
	for i, name := range []string{"a.go", "b/c.go", "b/d/e.go", "b/f.ts", "g\xff.go", ".git/h.go", "b/.git/i.go", ".hidden/j.go"} {
		put(t, filepath.Join(b.dir, name), "x")
		at := now.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(filepath.Join(b.dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, of := range []struct {
		dir, pattern string
		limit        int
		want         []string
		total        int
	}{
		{"", "*.go", 0, []string{"g\xff.go", "a.go"}, 2},
		{"", "**/*.go", 0, []string{".hidden/j.go", "g\xff.go", "b/d/e.go", "b/c.go", "a.go"}, 5},
		{"", "**/*.{go,ts}", 2, []string{".hidden/j.go", "g\xff.go"}, 6},
		{"b", "*.go", 0, []string{"b/c.go"}, 1},
		{"b", "**", 0, []string{"b/f.ts", "b/d/e.go", "b/c.go"}, 3},
		{"", "?.[a-g]o", 0, []string{"a.go"}, 1},
		{"", "b/**/e.go", 0, []string{"b/d/e.go"}, 1},
		{"", "nothing", 0, []string{}, 0},
	} {
		got, err := b.Files().Glob(context.Background(), of.dir, of.pattern, of.limit)
		if err != nil || !slices.Equal(got.Paths, of.want) || got.Total != of.total {
			t.Errorf("%q in %q: %+v, %v; want %q", of.pattern, of.dir, got, err, of.want)
		}
	}
}

func TestGrep(t *testing.T) {
	b := open(t)
	put(t, filepath.Join(b.dir, "a.txt"), "one\r\ntwo\nthree\nfour two\nfive\n")
	put(t, filepath.Join(b.dir, "d/b.go"), "two\n")
	put(t, filepath.Join(b.dir, ".git/c"), "two\n")
	put(t, filepath.Join(b.dir, "binary"), "two\x00")
	put(t, filepath.Join(b.dir, "odd"), "\xfftwo\n")
	got, err := b.Files().Grep(context.Background(), caisson.GrepQuery{Pattern: `\btwo$`, Context: 1})
	want := caisson.GrepResult{Total: 4, Skipped: 1, Matches: []caisson.GrepMatch{
		{Path: "a.txt", Line: 1, Text: "one", Context: true},
		{Path: "a.txt", Line: 2, Text: "two"},
		{Path: "a.txt", Line: 3, Text: "three", Context: true},
		{Path: "a.txt", Line: 4, Text: "four two"},
		{Path: "a.txt", Line: 5, Text: "five", Context: true},
		{Path: "d/b.go", Line: 1, Text: "two"},
		{Path: "odd", Line: 1, Text: "\xfftwo"},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	got, err = b.Files().Grep(context.Background(), caisson.GrepQuery{Pattern: "two", Include: "*.txt", Limit: 1})
	if err != nil || got.Total != 2 || len(got.Matches) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = b.Files().Grep(context.Background(), caisson.GrepQuery{Dir: "d/b.go", Pattern: "two"}); err != nil || got.Total != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := b.Files().Grep(context.Background(), caisson.GrepQuery{Pattern: "("}); caisson.CodeOf(err) != caisson.CodeCallInvalid {
		t.Errorf("%v", err)
	}
}

func TestFileOperationsAreCancelled(t *testing.T) {
	b := open(t)
	for i := range 200 {
		put(t, filepath.Join(b.dir, fmt.Sprintf("%d/file", i)), "x")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Files().Grep(ctx, caisson.GrepQuery{Pattern: "x"}); caisson.CodeOf(err) != caisson.CodeCancelled {
		t.Errorf("%v", err)
	}
	if got, err := b.Files().Read(context.Background(), "7/file", 0, 0); err != nil || string(got.Data) != "x" {
		t.Errorf("%q, %v", got.Data, err)
	}
}
