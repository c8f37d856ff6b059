//go:build linux

package mask

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxWatches bounds the watches: a user's are some 200,000 on most machines, and
// editors want them too. maxNames bounds the memory that they take here: a program
// inside says how long the paths are.
const (
	maxWatches = 32 << 10
	maxNames   = 16 << 20
)

// finder finds what matches in a tree, the first time and what is new then.
type finder struct {
	top      string
	at       int // descriptor of top
	patterns patterns

	watch   int              // inotify descriptor; -1: there are no watches, and all is read each time
	watched map[int32]string // directories by watch
	names   int              // bytes of their paths
	fresh   bool             // all must be read
	links   map[string]bool  // links that match; what they lead to can change anywhere
	found   []string
	seen    int
	buf     []byte // of events
}

func newFinder(top string, patterns []string) (*finder, error) {
	compiled, err := compile(patterns)
	if err != nil {
		return nil, err
	}
	f := &finder{top: top, patterns: compiled, watch: -1, at: -1, buf: make([]byte, 16<<10), links: map[string]bool{}}
	at, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errLook(top, err)
	}
	f.at = at
	f.restart()
	return f, nil
}

func (f *finder) close() {
	f.unwatch()
	_ = unix.Close(f.at)
}

func (f *finder) unwatch() {
	if f.watch >= 0 {
		_ = unix.Close(f.watch)
	}
	f.watch, f.watched, f.names = -1, nil, 0
}

// restart begins anew, with watches if there are any to be had.
func (f *finder) restart() {
	f.unwatch()
	f.fresh, f.links = true, map[string]bool{}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		f.watch, f.watched = fd, map[int32]string{}
	}
}

// find returns what matches and may not be hidden yet. After an error, the next
// call looks at all again.
func (f *finder) find(ctx context.Context) ([]string, error) {
	f.found, f.seen = nil, 0
	changed, err := f.events(ctx)
	if err == nil && (f.fresh || f.watch < 0) {
		changed, err = true, f.walk(ctx, ".", 0)
	}
	if err != nil {
		f.restart()
		return nil, err
	}
	f.fresh = false
	if changed {
		f.found = append(f.found, behind(f.top, f.links)...)
	}
	if most := max(len(f.found), len(f.links)); most > maxFound {
		f.restart()
		return nil, errFound(most)
	}
	return f.found, nil
}

// visit looks at one entry. kind is its type, or 0 where it is not known.
func (f *finder) visit(ctx context.Context, path string, kind fs.FileMode, depth int) error {
	// What is called .git stays for git. What is in it is looked through as all
	// else is: a program inside can give a directory that name.
	if filepath.Base(path) != ".git" && f.patterns.match(path) {
		if kind&fs.ModeSymlink != 0 {
			f.links[path] = true
		}
		return f.hit(path)
	}
	if kind.IsDir() {
		return f.walk(ctx, path, depth)
	}
	return nil
}

// hit takes down what is to be hidden. No more is looked for than can be: how
// much there is, is for programs inside to say.
func (f *finder) hit(path string) error {
	if f.found = append(f.found, path); len(f.found) > maxFound {
		return errFound(len(f.found))
	}
	return nil
}

// walk watches a directory and looks at what is in it. The watch comes first, so
// that nothing is missed between.
func (f *finder) walk(ctx context.Context, dir string, depth int) error {
	if ctx.Err() != nil {
		return errLook(dir, context.Cause(ctx))
	}
	fd, err := unix.Openat2(f.at, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.EACCES) {
		return f.closed(dir, err)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // gone meanwhile
	}
	if err != nil {
		return errLook(dir, err)
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(fd, ".", &st, 0); errors.Is(err, unix.EACCES) { // it can be listed and not entered
		return f.closed(dir, err)
	}
	f.add(fd, dir)
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if f.seen++; f.seen > maxEntries {
				return errTooMany("has many files to look through", maxEntries)
			}
			if depth >= maxDepth && e.IsDir() {
				return errTooMany("has directories to look through that are deep", maxDepth)
			}
			if err := f.visit(ctx, filepath.Join(dir, e.Name()), e.Type(), depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return errLook(dir, err)
		}
	}
}

// closed takes a directory that cannot be looked through. Its owner inside can
// open it later, and then read what is in it: it is hidden as a whole.
func (f *finder) closed(dir string, err error) error {
	if dir == "." {
		return errLook(f.top, err)
	}
	return f.hit(dir)
}

// add watches an open directory. Where no watch is to be had, none is used.
func (f *finder) add(fd int, dir string) {
	if f.watch < 0 {
		return
	}
	wd, err := unix.InotifyAddWatch(f.watch, fmt.Sprintf("/proc/self/fd/%d", fd), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	if f.names += len(dir); err != nil || len(f.watched) >= maxWatches || f.names > maxNames {
		f.unwatch()
		return
	}
	f.names -= len(f.watched[int32(wd)]) // one that was moved has its watch still
	f.watched[int32(wd)] = dir
}

// events takes what happened since, and looks at it.
func (f *finder) events(ctx context.Context) (changed bool, err error) {
	if f.watch < 0 || f.fresh {
		return false, nil
	}
	for {
		n, err := unix.Read(f.watch, f.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return changed, nil
		}
		if err != nil {
			return changed, errLook(f.top, err)
		}
		changed = true
		for rest := f.buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd, mask, size := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:]), int(binary.NativeEndian.Uint32(rest[12:]))
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
			rest = rest[unix.SizeofInotifyEvent+size:]
			if err := f.event(ctx, wd, mask, name); err != nil {
				return changed, err
			}
			if f.watch < 0 || f.fresh {
				return changed, nil
			}
		}
	}
}

func (f *finder) event(ctx context.Context, wd int32, mask uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		f.restart() // what happened is not known
		return nil
	}
	dir, known := f.watched[wd]
	if mask&unix.IN_IGNORED != 0 {
		f.names -= len(dir)
		delete(f.watched, wd)
		return nil
	}
	if !known || name == "" {
		return nil
	}
	path := filepath.Join(dir, name)
	var kind fs.FileMode
	if mask&unix.IN_ISDIR != 0 {
		kind = fs.ModeDir
	} else if f.patterns.match(path) {
		if _, err := os.Readlink(filepath.Join(f.top, path)); err == nil {
			kind = fs.ModeSymlink
		}
	}
	return f.visit(ctx, path, kind, strings.Count(path, "/")+1)
}
