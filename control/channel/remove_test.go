package channel_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

func made(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A channel is removed also where the sandbox took the rights to it away, and
// nothing outside is touched.
func TestRemove(t *testing.T) {
	f, dir := open(t)
	outside := t.TempDir()
	locked, kept := filepath.Join(outside, "locked"), filepath.Join(outside, "kept")
	made(t, os.Mkdir(locked, 0o500), os.WriteFile(kept, nil, 0o400))
	requests := f.Requests()
	for _, name := range []string{"x/y/z", "shut/in", "wide"} {
		made(t, os.MkdirAll(filepath.Join(requests, name), 0o700))
	}
	made(t,
		os.Symlink(outside, filepath.Join(requests, "x/y/away")), os.Symlink(outside, filepath.Join(requests, "away")),
		os.Link(kept, filepath.Join(requests, "x/y/kept")), unix.Mkfifo(filepath.Join(requests, "shut/in/pipe"), 0))
	for n := range 1500 {
		made(t, os.Mkdir(filepath.Join(requests, "wide", strconv.Itoa(n)), 0))
	}
	deep, err := os.Open(requests)
	made(t, err)
	for range 1000 { // deeper than a path can name
		made(t, unix.Mkdirat(int(deep.Fd()), "deep", 0o700))
		fd, err := unix.Openat(int(deep.Fd()), "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		made(t, err, deep.Close())
		deep = os.NewFile(uintptr(fd), "deep") //nolint:gosec // a descriptor
	}
	made(t, deep.Close())
	for _, name := range []string{"x/y", "x", "shut/in", "shut", "wide", "."} {
		made(t, os.Chmod(filepath.Join(requests, name), 0))
	}
	made(t, f.Close())
	ended, end := context.WithCancel(t.Context())
	end()
	if err := channel.Remove(ended, dir); caisson.CodeOf(err) != caisson.CodeWriteFailed {
		t.Errorf("without time for it: %v", err)
	}
	for range 2 { // there is nothing at the second
		if err := channel.Remove(t.Context(), dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	for path, mode := range map[string]os.FileMode{locked: 0o500, kept: 0o400} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What cannot be removed is told, once all else is gone.
func TestRemoveStuck(t *testing.T) {
	f, dir := open(t)
	stuck := filepath.Join(f.Requests(), "a/stuck")
	made(t, os.MkdirAll(stuck, 0o700), os.MkdirAll(filepath.Join(f.Requests(), "b/c"), 0o700), f.Close())
	d, err := os.Open(stuck)
	made(t, err)
	defer d.Close()
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	if err := set(unix.STATX_ATTR_IMMUTABLE); err != nil { // the flag has the same number
		t.Skipf("no directory can be made immutable: %v", err)
	}
	t.Cleanup(func() { _ = set(0) })
	if err := channel.Remove(t.Context(), dir); caisson.CodeOf(err) != caisson.CodeWriteFailed {
		t.Errorf("what cannot be removed: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(f.Requests(), "b")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the rest was left")
	}
	made(t, set(0))
	if err := channel.Remove(t.Context(), dir); err != nil {
		t.Error(err)
	}
}
