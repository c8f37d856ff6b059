package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// programName is what the guest program is called inside.
const programName = "caisson-guest"

// Programs is a directory for a spec's Programs, in use until it is closed, or its
// process ends.
type Programs struct {
	Dir string
	use *os.File // its lock, which others may share
}

// Close says that no sandbox of this process uses it any more. Nil is none.
func (p *Programs) Close() error {
	if p == nil {
		return nil
	}
	return p.use.Close()
}

// KeepPrograms returns a directory below dir for a spec's Programs: it holds the
// guest program, which is the client of the control channel, as it is now. One
// that is in use is never changed: another guest has another directory.
func KeepPrograms(dir string, guest func() ([]byte, error)) (*Programs, error) {
	program, err := guest()
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeGuestMissing, "read guest program: %w", err)
	}
	digest := caisson.DigestOf(program)
	kept, err := usePrograms(filepath.Join(dir, strings.ReplaceAll(string(digest), ":", "-")))
	if err == nil {
		path := filepath.Join(kept.Dir, programName)
		if there, readErr := os.ReadFile(path); readErr != nil || caisson.DigestOf(there) != digest {
			err = atomicfile.Write(path, program, 0o555)
		}
		now := time.Now()
		if err = errors.Join(err, os.Chtimes(kept.Dir, now, now)); err != nil {
			err = errors.Join(err, kept.Close())
		}
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "keep guest program: %w", err)
	}
	return kept, nil
}

// usePrograms says that a directory of programs is in use, and makes it if it is
// missing.
func usePrograms(dir string) (*Programs, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	use, err := lockPrograms(dir, unix.LOCK_SH) // who removes it holds it for a moment
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errors.Join(err, use.Close())
	}
	return &Programs{dir, use}, nil
}

// lockPrograms takes the lock of a directory of programs. Its file lies beside the
// directory, and is never removed: what is lent to a sandbox can be locked there
// too, and whoever waits for that waits for as long as a program inside likes.
func lockPrograms(dir string, how int) (*os.File, error) {
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), how) //nolint:gosec // a descriptor
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// OldPrograms are the directories of programs below dir which no sandbox uses and
// the next one will not either, as far as can be told: all but the one that was
// used last.
func OldPrograms(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) < 2 {
		return nil, ignoreMissing(err)
	}
	var old []string
	newest, last := "", time.Time{}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !entry.IsDir() {
			continue // gone meanwhile, or not ours
		}
		path := filepath.Join(dir, entry.Name())
		if info.ModTime().After(last) {
			newest, last = path, info.ModTime()
		}
		old = append(old, path)
	}
	return slices.DeleteFunc(old, func(path string) bool { return path == newest || !unused(path, func() error { return nil }) }), nil
}

// RemovePrograms removes a directory of programs, unless a sandbox uses it now.
func RemovePrograms(path string) (err error) {
	unused(path, func() error {
		err = os.RemoveAll(path)
		return err
	})
	return err
}

// unused calls do while no sandbox can begin to use a directory of programs, and
// tells whether that is so: not where one uses it.
func unused(path string, do func() error) bool {
	lock, err := lockPrograms(path, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return false
	}
	defer lock.Close()
	return do() == nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ProgramsAt is where a spec's Programs are inside, for engines with a file tree
// of their own; empty where there are none.
func ProgramsAt(spec caisson.SandboxSpec) string {
	if spec.Programs == "" {
		return ""
	}
	return caisson.ProgramsDir
}

// WithPrograms adds a directory, if it is one, to the end of PATH, whoever has
// set that.
func WithPrograms(env []string, dir string) []string {
	for i, kv := range env {
		if dir != "" && strings.HasPrefix(kv, "PATH=") {
			env[i] = kv + ":" + dir
		}
	}
	return env
}
