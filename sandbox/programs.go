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
	use *os.File // Dir, with a lock that others may share
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

// usePrograms makes a directory of programs if it is missing, and says that it is
// in use. It may be removed until that is said.
func usePrograms(dir string) (*Programs, error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		use, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for err = unix.EINTR; errors.Is(err, unix.EINTR); { // who removes it holds it for a moment
			err = unix.Flock(int(use.Fd()), unix.LOCK_SH) //nolint:gosec // a descriptor
		}
		if err != nil {
			return nil, errors.Join(err, use.Close())
		}
		if same(use, dir) {
			return &Programs{dir, use}, nil
		}
		_ = use.Close() // of one that is gone
	}
}

// same tells whether what is open is what is there by that name.
func same(open *os.File, path string) bool {
	ours, err := open.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(ours, now)
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
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !same(dir, path) { //nolint:gosec // a descriptor
		return false
	}
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
