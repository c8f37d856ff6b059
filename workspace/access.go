package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Git says that it could not, and often not why. What keeps a person from a file
// is asked of the system here, after something has not succeeded.

// barred tells whether err is of a file that is there and may not be used.
func barred(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func unreadable(path string, err error) error {
	return caisson.Errorf(caisson.CodePathInvalid, "%s cannot be read: %w", printable(path), errors.Unwrap(err)).
		WithHint("Give yourself the right to read it, or work on a copy that is yours.")
}

// unmade is an error of something that could not be made at a path of ours.
func unmade(doing string, err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return failed(doing, err)
	}
	switch {
	case barred(err):
		return caisson.Errorf(caisson.CodeWriteFailed, "%s: %s: %w", doing, printable(at.Path), at.Err).
			WithHint("It has to be written: make it writable for you. Where workspaces are is `state_dir` of your config.")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return caisson.Errorf(caisson.CodeWriteFailed, "%s: %s: %w", doing, printable(at.Path), at.Err).
			WithHint("A file is in the way: move it.")
	}
	return failed(doing, err)
}

// unreadableNear returns why git could not read the repository that dir may be
// in; nil where nothing speaks against it.
func unreadableNear(dir string) error {
	if err := access(dir, unix.R_OK|unix.X_OK); barred(err) {
		return unreadable(dir, err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		git := filepath.Join(at, ".git")
		info, err := os.Lstat(git)
		switch {
		case barred(err):
			return unreadable(at, err)
		case err == nil && info.IsDir():
			return unreadableIn(git)
		case err == nil || at == filepath.Dir(at):
			return nil
		}
	}
}

// unreadableIn is unreadableNear for a git directory.
func unreadableIn(gitDir string) error {
	for _, name := range []string{".", "HEAD", "config", "packed-refs", "refs", "refs/heads", "objects", "objects/pack", "objects/info"} {
		path, how := filepath.Join(gitDir, name), uint32(unix.R_OK)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			how |= unix.X_OK
		}
		if err := access(path, how); barred(err) {
			return unreadable(path, err)
		}
	}
	return nil
}

// unwritable returns why a branch could not be made in the repository; nil where
// nothing speaks against it.
func (r *repository) unwritable(branch string) error {
	dirs := []string{".", "refs", ownRefs, workspaceRefs, "worktrees", "logs", "logs/refs", "logs/refs/heads"}
	for at := filepath.Join("refs/heads", filepath.Dir(branch)); at != "refs"; at = filepath.Dir(at) {
		dirs = append(dirs, at)
	}
	for _, name := range dirs {
		path := filepath.Join(r.common, name)
		if err := access(path, unix.W_OK|unix.X_OK); barred(err) {
			return caisson.Errorf(caisson.CodeWriteFailed, "%s cannot be written: %w", printable(path), errors.Unwrap(err)).
				WithHint("The branch of a workspace has to be written there: make it writable for you, or work on a copy of the repository.")
		}
	}
	return nil
}

func access(path string, how uint32) error {
	if err := unix.Access(path, how); err != nil {
		return &fs.PathError{Op: "access", Path: path, Err: err}
	}
	return nil
}

// entered returns a directory with links resolved.
func entered(dir string) (string, error) {
	asked, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(asked)
	}
	if barred(err) {
		return "", unreadable(asked, err)
	}
	if err != nil {
		return "", caisson.Errorf(caisson.CodeNoRepository, "%s cannot be entered: %w", printable(asked), err)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return "", caisson.Errorf(caisson.CodeNoRepository, "%s is no directory", printable(asked))
	}
	return dir, nil
}

// noRepository tells why git finds no repository in a directory.
func noRepository(dir string, err error) error {
	if barred := unreadableNear(dir); barred != nil {
		return barred
	}
	e := caisson.Errorf(caisson.CodeNoRepository, "%s is not in a git repository", dir)
	e.Err = err
	var exit *exitError
	if errors.As(err, &exit) && !strings.Contains(exit.complaint, "not a git repository") {
		e.Message = "git does not take " + dir + " for a repository: " + exit.complaint
		if strings.Contains(exit.complaint, "dubious ownership") {
			e.Message = "the repository of " + dir + " belongs to another user, whose configuration git does not trust"
			return e.WithHint("If you trust it: `git config --global --add safe.directory %s`, with the repository's directory.", dir)
		}
		if strings.Contains(exit.complaint, "extension") || strings.Contains(exit.complaint, "repo version") {
			e.Code = caisson.CodeRepositoryUnsupported
		}
	}
	return e
}
