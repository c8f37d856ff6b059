package channel_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

// What was claimed is found by whoever opens the channel next, whatever it is
// and however often that happens, until it is released. Its client cannot take
// it back, and another by its name is another.
func TestAClaimOfTheDeadIsLeft(t *testing.T) {
	f, dir := open(t)
	for n, body := range map[int]string{1: "one", 2: "two", 4: "four"} {
		send(t, f, id(n), body)
	}
	if err := os.MkdirAll(filepath.Join(request(f, id(3)), "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		_, _ = f.Claim(id(n + 1)) // what that gives is told below
	}
	f.Release(id(2))
	if err := os.WriteFile(filepath.Join(dir, "private", "new.X.1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if left := f.Left(); len(left) > 0 {
		t.Errorf("left by nobody: %v", left)
	}
	var again *channel.Files
	for range 3 {
		again = reopen(t, dir)
		if got := again.Left(); !slices.Equal(got, []caisson.RequestID{id(1), id(3)}) {
			t.Fatalf("left are %v", got)
		}
		if _, err := os.Lstat(request(f, id(1))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its client could take it back: %v", err)
		}
	}
	send(t, again, id(1), "other")
	if got := scan(t, again); !slices.Equal(got, []caisson.RequestID{id(4), id(1)}) {
		t.Errorf("listed %v", got)
	}
	if body, err := again.Claim(id(1)); err != nil || string(body) != "one" {
		t.Errorf("%q, %v", body, err)
	}
	if _, err := again.Claim(id(3)); caisson.CodeOf(err) != caisson.CodeRequestInvalid {
		t.Errorf("a directory: %v", err)
	}
	if left := again.Left(); len(left) > 0 {
		t.Errorf("left after they were claimed: %v", left)
	}
	again.Release(id(1))
	again.Release(id(3))
	if body, err := again.Claim(id(1)); err != nil || string(body) != "other" {
		t.Errorf("the other: %q, %v", body, err)
	}
	again.Release(id(1))
	f.Release(id(1)) // whoever had it before changes nothing
	for range 2 {
		scan(t, again)
	}
	if got := private(t, dir); len(got) > 0 {
		t.Errorf("left in private: %v", got)
	}
}

// A directory that cannot be removed at once is no request for whoever opens the
// channel next.
func TestAReleasedDirectoryIsNoRequest(t *testing.T) {
	f, dir := open(t)
	if err := os.MkdirAll(filepath.Join(request(f, id(1)), "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(id(1)); caisson.CodeOf(err) != caisson.CodeRequestInvalid {
		t.Fatal(err)
	}
	f.Release(id(1))
	if got := private(t, dir); len(got) != 1 || !strings.HasPrefix(got[0], "gone.") {
		t.Errorf("in private is %v", got)
	}
	again := reopen(t, dir)
	if left := again.Left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	for range 2 {
		if _, err := again.Scan(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if got := private(t, dir); len(got) > 0 {
		t.Errorf("left in private: %v", got)
	}
}
