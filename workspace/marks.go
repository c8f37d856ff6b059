package workspace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

const (
	// maxTreeDepth bounds how deep a tree is looked at; no path that a program
	// can name is deeper than half of it.
	maxTreeDepth = 1024
	// maxTreeFiles bounds how many files are looked at in a tree.
	maxTreeFiles = 8_000_000
	// maxContents bounds how much is read of files that would be lost, to know
	// them again. Beyond it their times, sizes and inodes have to do.
	maxContents = 1 << 30
)

// walk takes the marks of a directory without following anything in it.
type walk struct {
	sum   hash.Hash
	size  int64 // on disk, in bytes
	files int
	// skip leaves out what is below a directory.
	skip func(rel string) bool
}

// markTree returns a digest of names, modes, sizes, times and inodes of all
// that is in dir, and what it takes on disk. Renaming dir does not change it.
func markTree(dir string, skip func(rel string) bool) (caisson.Digest, int64, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	w := &walk{sum: sha256.New(), skip: skip}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return "", 0, err
	}
	w.record(".", &unix.Stat_t{Mode: st.Mode, Dev: st.Dev, Ino: st.Ino})
	if err := w.dir(fd, "", 0); err != nil {
		return "", 0, err
	}
	return caisson.Digest("sha256:" + hex.EncodeToString(w.sum.Sum(nil))), w.size, nil
}

// dir looks at an open directory, and closes it.
func (w *walk) dir(fd int, rel string, depth int) error {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	if depth > maxTreeDepth {
		return errors.New("there are directories too deep to be looked at")
	}
	var names []string
	for {
		some, err := f.Readdirnames(4096)
		names = append(names, some...)
		if w.files += len(some); w.files > maxTreeFiles {
			return fmt.Errorf("there are more than %d files", maxTreeFiles)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		path := name
		if rel != "" {
			path = rel + "/" + name
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "look at", Path: path, Err: err}
		}
		directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if directory && w.skip != nil && w.skip(path) {
			continue
		}
		w.record(path, &st)
		if !directory {
			continue
		}
		child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if err := w.dir(child, path, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) record(path string, st *unix.Stat_t) {
	w.size += st.Blocks * 512
	fmt.Fprintf(w.sum, "%s\x00", path)
	for _, n := range []int64{
		int64(st.Mode), int64(st.Dev), int64(st.Ino), int64(st.Rdev), st.Size, //nolint:gosec,unconvert // only compared
		int64(st.Mtim.Sec), int64(st.Mtim.Nsec), int64(st.Ctim.Sec), int64(st.Ctim.Nsec), //nolint:unconvert // narrower on other systems
	} {
		_ = binary.Write(w.sum, binary.LittleEndian, n) // a hash takes everything
	}
}

// markContents returns a digest of the content of files below dir. What cannot
// be read is marked as that.
func markContents(dir string, paths []caisson.Bytes) (caisson.Digest, error) {
	sum := sha256.New()
	is, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return caisson.DigestOf(nil), nil
	}
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if opened, err := root.Stat("."); err != nil || !os.SameFile(is, opened) {
		return "", errors.Join(err, fmt.Errorf("%s is a link, or was exchanged", dir))
	}
	left := int64(maxContents)
	for _, path := range paths {
		fmt.Fprintf(sum, "%d:%s\x00", len(path), path)
		n, err := contentInto(sum, root, string(path), left)
		if left -= n; err != nil {
			fmt.Fprintf(sum, "unread\x00")
		}
		fmt.Fprintf(sum, "%d\x00", n)
	}
	return caisson.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil))), nil
}

func contentInto(sum io.Writer, root *os.Root, path string, limit int64) (int64, error) {
	info, err := root.Lstat(path)
	if err != nil {
		return 0, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := root.Readlink(path)
		n, _ := io.WriteString(sum, to)
		return int64(n), err
	}
	if !info.Mode().IsRegular() { // a pipe or a device is never opened
		return 0, nil
	}
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0, errors.New("not a regular file any more")
	}
	return io.Copy(sum, io.LimitReader(f, limit))
}
