package lockfile_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
