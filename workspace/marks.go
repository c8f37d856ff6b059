package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

// indexPart is the name of the part of an index that git does not write again: it
// is called by its content. Each git that reads the index sets its time, so that
// none removes it for its age; that is no change.
var indexPart = regexp.MustCompile(`^sharedindex\.([0-9a-f]{40}|[0-9a-f]{64})$`)

// walk takes the marks of a directory without following anything in it. One more
// directory is looked at side by side than there are processors, so that none of
// them idles while one hand waits for another.
type walk struct {
	size  atomic.Int64 // on disk, in bytes
	files atomic.Int64
	// skip leaves out what is below a directory.
	skip  func(rel string) bool
	hands chan struct{} // one for each directory beside the first
}

// mark is the digest of a directory: of the records of what is in it, by name,
// then of the marks of the directories among them.
type mark [sha256.Size]byte

// markTree returns a digest of names, modes, sizes, times and inodes of all
// that is in dir, and what it takes on disk. Renaming dir does not change it.
func markTree(ctx context.Context, dir string, skip func(rel string) bool) (caisson.Digest, int64, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	w := &walk{skip: skip, hands: make(chan struct{}, runtime.GOMAXPROCS(0))}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return "", 0, err
	}
	root := w.record(nil, ".", &unix.Stat_t{Mode: st.Mode, Dev: st.Dev, Ino: st.Ino})
	in, err := w.dir(ctx, fd, "", 0)
	if err != nil {
		return "", 0, err
	}
	sum := sha256.Sum256(append(root, in[:]...))
	return caisson.Digest("sha256:" + hex.EncodeToString(sum[:])), w.size.Load(), nil
}

// dir looks at an open directory, and closes it.
func (w *walk) dir(ctx context.Context, fd int, rel string, depth int) (is mark, err error) {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	if depth > maxTreeDepth {
		return is, errors.New("there are directories too deep to be looked at")
	}
	names, err := w.names(ctx, f)
	if err != nil {
		return is, err
	}
	sum := sha256.New()
	records := make([]byte, 0, min(len(names)*recordSize, maxRecords+maxRecord))
	in := level{walk: w, depth: depth + 1}
	for _, name := range names {
		var st unix.Stat_t
		if err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			err = &fs.PathError{Op: "look at", Path: path.Join(rel, name), Err: err}
			break
		}
		if indexPart.MatchString(name) {
			st.Mtim, st.Ctim = unix.Timespec{}, unix.Timespec{}
		}
		directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if directory && w.skip != nil && w.skip(path.Join(rel, name)) {
			continue
		}
		if records = w.record(records, name, &st); len(records) > maxRecords {
			sum.Write(records) // a hash takes everything
			records = records[:0]
		}
		if !directory {
			continue
		}
		if err = in.look(ctx, fd, name, path.Join(rel, name)); err != nil {
			break
		}
	}
	marks, belowErr := in.wait()
	if err := cmp.Or(err, belowErr); err != nil {
		return is, err
	}
	sum.Write(records)
	for _, m := range marks {
		sum.Write(m[:])
	}
	return mark(sum.Sum(nil)), nil
}

const (
	recordSize = 112 // of one with a name as names are
	maxRecord  = 512 // of one with the longest name
	maxRecords = 64 << 10
)

// names lists a directory.
func (w *walk) names(ctx context.Context, f *os.File) ([]string, error) {
	var names []string
	for {
		some, err := f.Readdirnames(4096)
		if names == nil {
			names = some // all of nearly every directory
		} else {
			names = append(names, some...)
		}
		if w.files.Add(int64(len(some))) > maxTreeFiles {
			return nil, fmt.Errorf("there are more than %d files", maxTreeFiles)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// level are the directories in one directory.
type level struct {
	*walk
	depth int
	begun []*lookedAt
	hands sync.WaitGroup
}

type lookedAt struct {
	mark mark
	err  error
}

// look looks at a directory, beside the others where a hand is free.
func (b *level) look(ctx context.Context, fd int, name, path string) error {
	child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	at := &lookedAt{}
	b.begun = append(b.begun, at)
	select {
	case b.walk.hands <- struct{}{}:
		b.hands.Go(func() { // ends with the directory, which is waited for
			at.mark, at.err = b.dir(ctx, child, path, b.depth)
			<-b.walk.hands
		})
		return nil
	default:
		at.mark, at.err = b.dir(ctx, child, path, b.depth)
		return at.err
	}
}

// wait returns the marks in the order in which they were begun.
func (b *level) wait() ([]mark, error) {
	b.hands.Wait()
	marks := make([]mark, 0, len(b.begun))
	for _, at := range b.begun {
		if at.err != nil {
			return nil, at.err
		}
		marks = append(marks, at.mark)
	}
	return marks, nil
}

// record appends what is known of one file.
func (w *walk) record(to []byte, name string, st *unix.Stat_t) []byte {
	w.size.Add(st.Blocks * 512)
	to = append(append(to, name...), 0)
	for _, n := range [...]int64{
		int64(st.Mode), int64(st.Dev), int64(st.Ino), int64(st.Rdev), st.Size, //nolint:gosec,unconvert // only compared
		int64(st.Mtim.Sec), int64(st.Mtim.Nsec), int64(st.Ctim.Sec), int64(st.Ctim.Nsec), //nolint:unconvert // narrower on other systems
	} {
		to = binary.LittleEndian.AppendUint64(to, uint64(n)) //nolint:gosec // only compared
	}
	return to
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
