package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory becomes a link while it is opened up: what the link leads to
// keeps its mode.
func TestOpenUpFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, tree := filepath.Join(dir, "victim"), filepath.Join(dir, "tree")
	closed, link := filepath.Join(tree, "closed"), filepath.Join(dir, "link")
	for path, mode := range map[string]os.FileMode{victim: 0o500, closed: 0o500} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	var swaps sync.WaitGroup
	end := make(chan struct{})
	swaps.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, closed, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	defer func() { close(end); swaps.Wait() }()
	for range 5_000 {
		_ = openUp(unix.AT_FDCWD, tree, 0) // a directory that is not there any more is an error
		for _, path := range []string{closed, link} {
			if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
				_ = unix.Fchmod(fd, 0o500)
				_ = unix.Close(fd)
			}
		}
		if info, err := os.Lstat(victim); err != nil || info.Mode().Perm() != 0o500 {
			t.Fatalf("%v, %v", info.Mode(), err)
		}
	}
}

// ending is a context that ends when it was asked some times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// A removal ends with its context, and goes on from there when it is called again.
func TestRemoveTreeInParts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	for n := range 20 {
		if err := os.MkdirAll(filepath.Join(dir, "sub", fmt.Sprint(n), "deep/deeper/deepest/still"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "sub/7/deep"), 0); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for last := 20; last > 0; rounds++ {
		err := removeTree(&ending{t.Context(), 12}, dir)
		left, _ := os.ReadDir(filepath.Join(dir, "sub"))
		if len(left) == last || err == nil && len(left) > 0 || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("%d of %d are left: %v", len(left), last, err)
		}
		last = len(left)
	}
	if rounds < 3 {
		t.Errorf("it ended %d times", rounds)
	}
	if err := removeTree(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}
