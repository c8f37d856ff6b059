package inside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// maxLinks is how many links are followed in one path, as in the kernel.
const maxLinks = 40

// relative makes a path relative to the workspace. It does not look at the disk.
func (s *server) relative(path string) (string, error) {
	if s.root == nil {
		return "", caisson.Errorf(caisson.CodePathOutside, "there is no workspace")
	}
	rel := filepath.Clean(path)
	if filepath.IsAbs(rel) {
		var err error
		if rel, err = filepath.Rel(s.hello.Workspace, rel); err != nil {
			return "", outside(path)
		}
	}
	if !filepath.IsLocal(rel) {
		return "", outside(path)
	}
	return rel, nil
}

func outside(path string) error {
	return caisson.Errorf(caisson.CodePathOutside, "the path %q leads outside the workspace", path)
}

// escapes tells whether os.Root refused a path that leads out. It has no
// exported error for that.
func escapes(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) && pe.Err.Error() == "path escapes from parent"
}

// openFile opens a file beneath the workspace, and never waits for the other
// end of a fifo.
func (s *server) openFile(path string, flag int) (*os.File, error) {
	rel, err := s.relative(path)
	if err != nil {
		return nil, err
	}
	f, err := s.root.OpenFile(rel, flag|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if escapes(err) {
		// os.Root refuses every absolute link; one to a place in the
		// workspace does not lead out.
		if in, resolved := s.resolve(rel); resolved {
			f, err = s.root.OpenFile(in, flag|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		}
	}
	if err != nil {
		return nil, pathError(path, err)
	}
	return f, nil
}

// resolve follows the links of a path as far as they stay in the workspace. What
// it returns is opened with os.Root again, so that a link that changes meanwhile
// leads nowhere else.
func (s *server) resolve(rel string) (string, bool) {
	done, rest := ".", rel
	for links := 0; rest != ""; {
		var head string
		head, rest, _ = strings.Cut(rest, "/")
		switch head {
		case "", ".":
			continue
		case "..":
			if done == "." {
				return "", false
			}
			done = filepath.Dir(done)
			continue
		}
		target, err := s.root.Readlink(filepath.Join(done, head))
		if err != nil { // no link, or not there: told by the open that follows
			done = filepath.Join(done, head)
			continue
		}
		if links++; links > maxLinks {
			return "", false
		}
		if filepath.IsAbs(target) {
			if target, err = s.relative(target); err != nil {
				return "", false
			}
			done = "."
		}
		rest = target + "/" + rest
	}
	return done, true
}

// pathError says what is wrong with a path.
func pathError(path string, err error) error {
	var known *caisson.Error
	if errors.As(err, &known) {
		return err
	}
	cause := err
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		cause = pe.Err
	case errors.As(err, &le):
		cause = le.Err
	}
	code := caisson.CodePathInvalid
	switch {
	case escapes(err):
		return outside(path)
	case errors.Is(cause, fs.ErrNotExist):
		code = caisson.CodeNotFound
	case errors.Is(cause, fs.ErrExist):
		code = caisson.CodeAlreadyExists
	case errors.Is(cause, unix.ENOSPC), errors.Is(cause, unix.EDQUOT):
		code = caisson.CodeDiskFull
	case errors.Is(cause, unix.EIO):
		code = caisson.CodeWriteFailed
	}
	return caisson.Errorf(code, "%q: %w", path, cause)
}
