//go:build linux

package bubblewrap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// places are where systems install bwrap. PATH plays no part: what it names may
// be anybody's.
var places = [...]string{"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap"}

// wrapperLimit bounds the program, which has less than 100 KiB.
const wrapperLimit = 16 << 20

// wrapper is a bwrap that was looked at.
type wrapper struct {
	path   string
	file   *os.File // the very file that was looked at; it is what is run
	stat   unix.Stat_t
	digest [sha256.Size]byte
	probe  layout.Probe // what it has shown
}

// pinned returns the wrapper that was found first. Where another file or
// another content has come into its place, that is looked at and probed anew.
func (e *Engine) pinned() (*wrapper, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wrapper != nil {
		if e.wrapper.same() {
			return e.wrapper, nil
		}
		e.wrapper.file.Close()
		e.wrapper = nil
	}
	w, err := e.find()
	if err != nil {
		return nil, err
	}
	e.wrapper = w
	return w, nil
}

// same tells whether the file at the path is the one that was looked at, with
// the content that it had.
func (w *wrapper) same() bool {
	var st unix.Stat_t
	if unix.Lstat(w.path, &st) != nil || st.Dev != w.stat.Dev || st.Ino != w.stat.Ino {
		return false
	}
	if st.Ctim == w.stat.Ctim && st.Size == w.stat.Size && st.Mode == w.stat.Mode && st.Uid == w.stat.Uid {
		return true
	}
	digest, err := digestOf(w.path)
	return err == nil && digest == w.digest && st.Mode == w.stat.Mode && st.Uid == w.stat.Uid
}

func (e *Engine) find() (*wrapper, error) {
	where := e.opts.places
	if where == nil {
		where = places[:]
	}
	var reasons []string
	for _, path := range where {
		w, err := e.inspect(path)
		if err == nil {
			return w, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			reasons = append(reasons, err.Error())
		}
	}
	if len(reasons) == 0 {
		return nil, caisson.Errorf(caisson.CodeIsolationUnavailable, "bwrap is not installed").
			WithHint("Install it (`apt install bubblewrap`, `dnf install bubblewrap`); it is looked for at %s.", strings.Join(where, ", "))
	}
	return nil, caisson.Errorf(caisson.CodeIsolationUnavailable, "there is no bwrap that can be trusted: %s", strings.Join(reasons, "; ")).
		WithHint("It must be a file of root's that nobody else can write, not set-uid, in directories of that kind.")
}

// inspect opens a wrapper and sees that only root could have made it what it is.
func (e *Engine) inspect(path string) (*wrapper, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if !e.opts.anyOwner {
		for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
			if err := rootsAlone(dir); err != nil {
				return nil, err
			}
			if dir == "/" {
				break
			}
		}
	}
	w := &wrapper{path: real}
	fd, err := unix.Openat2(unix.AT_FDCWD, real, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", real, err)
	}
	w.file = os.NewFile(uintptr(fd), real)
	if err = unix.Fstat(fd, &w.stat); err == nil {
		err = e.trusted(real, w.stat)
	}
	if err == nil {
		w.digest, err = digestOf(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

func (e *Engine) trusted(path string, st unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		return fmt.Errorf("%s is no program", path)
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		// It would begin as root, with whatever faults it has.
		return fmt.Errorf("%s is set-uid", path)
	case e.opts.anyOwner:
		return nil
	}
	return rootsAlone(path)
}

// rootsAlone says whether only root can change what is at a path.
func rootsAlone(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 && st.Gid != 0 || st.Mode&0o002 != 0 {
		return fmt.Errorf("%s can be changed by others than root", path)
	}
	return nil
}

func digestOf(path string) ([sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, wrapperLimit+1)); err != nil || n > wrapperLimit {
		return sum, fmt.Errorf("read %s: %d bytes: %w", path, n, err)
	}
	h.Sum(sum[:0])
	return sum, nil
}
