package lockfile_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/lockfile"
)

const holdPath = "CAISSON_TEST_HOLD"

func TestMain(m *testing.M) {
	path := os.Getenv(holdPath)
	if path == "" {
		os.Exit(m.Run())
	}
	if _, _, err := lockfile.Try(path, []byte("child")); err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("held\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// Who only looks is no holder: who wants the lock has it after that.
func TestTakenWhileLookedAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	looker, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(looker.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	looked := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { looked <- looker.Close() })
	lock, held, err := lockfile.Try(path, []byte("me"))
	if err := <-looked; err != nil {
		t.Fatal(err)
	}
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := lockfile.Held(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	first, held, err := lockfile.Try(path, []byte("me"))
	if err != nil || held {
		t.Fatalf("%v, %v", held, err)
	}
	if _, held, err := lockfile.Try(path, []byte("you")); err != nil || !held {
		t.Errorf("a second holder: %v, %v", held, err)
	}
	if note, err := lockfile.Note(path); string(note) != "me" || err != nil {
		t.Errorf("note %q, %v", note, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := lockfile.Acquire(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for it: %v", err)
	}
	if held, err := lockfile.Held(path); !held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := lockfile.Held(path); held || err != nil {
		t.Errorf("held after it was closed: %v, %v", held, err)
	}
	again, err := lockfile.Acquire(context.Background(), path, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if note, _ := lockfile.Note(path); string(note) != "x" {
		t.Errorf("note %q", note)
	}
}

func TestKilledHolderLetsGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), holdPath+"="+path)
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if held, err := lockfile.Held(path); !held || err != nil {
		t.Errorf("held by a child: %v, %v", held, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if held, err := lockfile.Held(path); held || err != nil {
		t.Errorf("held by nobody: %v, %v", held, err)
	}
}

func TestALinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := lockfile.Try(filepath.Join(dir, "link"), nil); err == nil {
		t.Error("the link was followed")
	}
	if local, err := lockfile.Local(dir); !local || err != nil {
		t.Errorf("the test's directory is not local: %v", err)
	}
}

func TestExistingAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, _, err := lockfile.TryExisting(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	first, err := lockfile.Create(path, []byte("me"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockfile.Create(path, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	if _, held, err := lockfile.TryExisting(path); err != nil || !held {
		t.Errorf("a second holder: %v, %v", held, err)
	}
	// Who inherits the file holds it when its maker is gone.
	child := exec.Command("/bin/cat")
	child.ExtraFiles = []*os.File{first.File}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, held, err := lockfile.TryExisting(path); err != nil || !held {
		t.Errorf("held by a child: %v, %v", held, err)
	}
	_ = stdin.Close()
	_ = child.Wait()
	second, held, err := lockfile.TryExisting(path)
	if err != nil || held {
		t.Fatalf("held by nobody: %v, %v", held, err)
	}
	if note, err := lockfile.Note(path); string(note) != "me" || err != nil {
		t.Errorf("note %q, %v", note, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// A lock that is closed is free, also while a program is being started that has its
// file open still.
func TestClosedIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, held, err := lockfile.Try(path, nil)
	if err != nil || held {
		t.Fatalf("%v, %v", held, err)
	}
	inherited := inherit(t, path)
	if err := errors.Join(lock.Close(), lock.Close()); err != nil {
		t.Error(err)
	}
	if held, err := lockfile.Held(path); err != nil || held {
		t.Errorf("held %v, %v", held, err)
	}
	if err := unix.Close(inherited); err != nil {
		t.Error(err)
	}
}

// inherit has the file at a path that is open here open once more, as a child has
// it that was forked.
func inherit(t *testing.T, path string) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + entry.Name()); to == path {
			fd, err := strconv.Atoi(entry.Name())
			if err == nil {
				fd, err = unix.Dup(fd)
			}
			if err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatalf("%s is not open", path)
	return -1
}

// Who looks at a lock is no holder of it, however long the machine takes to let
// it look: who wants it waits.
func TestLookersAreWaitedFor(t *testing.T) {
	for name, try := range map[string]func(path string) (io.Closer, bool, error){
		"try":          func(path string) (io.Closer, bool, error) { return lockfile.Try(path, nil) },
		"try existing": func(path string) (io.Closer, bool, error) { return lockfile.TryExisting(path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				look, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := unix.Flock(int(look.Fd()), unix.LOCK_SH); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(50*time.Millisecond, func() { look.Close() })
			}
			lock, held, err := try(path)
			if err != nil || held {
				t.Fatalf("looked at: held %v, %v", held, err)
			}
			if held, err := lockfile.Held(path); err != nil || !held {
				t.Errorf("it was not taken: %v, %v", held, err)
			}
			if _, held, err := try(path); err != nil || !held {
				t.Errorf("a second holder: %v, %v", held, err)
			}
			if err := lock.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file that is removed while its lock is waited for is no lock any more: the one
// that is at its name then is taken.
func TestRemovedWhileWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	looker, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(looker.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { gone <- errors.Join(os.Remove(path), looker.Close()) })
	lock, held, err := lockfile.Try(path, []byte("me"))
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	if _, held, err := lockfile.Try(path, nil); err != nil || !held {
		t.Errorf("two have it: held %v, %v", held, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}
