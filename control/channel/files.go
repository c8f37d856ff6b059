// Package channel is the host's side of a control channel's files: requests come
// in through one directory that a sandbox may write to, answers go out through
// another that it may only read.
//
// Who writes requests is hostile: it may make anything there that the kernel
// lets it make, and change it while it is looked at. What this package promises
// against that:
//
//   - nothing is followed, opened or read but a regular file of one name that was
//     moved out of the sandbox's reach before;
//   - no call waits for anybody inside, and each does a bounded amount of work,
//     however much is there;
//   - nothing of a request's content, and no path of the host, is in an error
//     that is meant for inside;
//   - an answer is there whole or not at all, and once there it is never replaced;
//   - who opens a channel takes it from whoever had it: he can publish nothing more;
//   - a request that was claimed is found again until it is released, whoever dies.
//
// What it does not promise: that the sandbox does not fill the disk, and
// anything about the channel's directory where others than its owner can write
// to it. An answer is not synced: it is a projection of the ledger, and one that
// a power cut has torn is removed when the channel is made again.
package channel

import (
	"container/list"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

const (
	dirMode  = 0o700
	fileMode = 0o600

	requestSuffix  = ".json"
	acceptedSuffix = ".accepted.json"
	payloadSuffix  = ".payload"

	// newPrefix is of a file in private that is about to be published, and
	// gonePrefix of what is being removed.
	newPrefix  = "new."
	gonePrefix = "gone."
)

// Files are the files of one channel. Safe for concurrent use. Of several that
// are made for one directory, in this or in another process, the latest has it:
// the others claim and publish nothing more, though they were stopped in the
// middle of it.
type Files struct {
	dir                                  string
	requests, public, responses, private *os.File
	ours                                 ours

	life  string // in names in private: others that are open there have another
	count atomic.Int64

	scan   scanner
	claims claims
	trash  trash

	mu    sync.Mutex
	kept  *list.List // of *kept, by the time of their last file, but where unweighed
	index map[caisson.RequestID]*list.Element
	bytes int64
	// unweighed: some of kept were only found by name.
	unweighed bool

	trimAt atomic.Int64 // when there is something to trim, in Unix nanoseconds
}

// Make opens the channel below dir, and makes what of it is not there; what is
// there stays, also what others have claimed: see Left. Errors are CodeDiskFull
// and CodeWriteFailed.
func Make(dir string) (*Files, error) {
	f := &Files{dir: dir, life: rand.Text()[:10], kept: list.New(), index: map[caisson.RequestID]*list.Element{}}
	f.scan.stuck = map[caisson.RequestID]struct{}{}
	f.claims.names, f.claims.left = map[caisson.RequestID][]string{}, map[caisson.RequestID]bool{}
	err := os.MkdirAll(dir, dirMode)
	if err == nil {
		err = f.open()
	}
	if err == nil {
		err = f.settle()
	}
	if err == nil {
		err = f.read()
	}
	if err != nil {
		_ = f.Close() // always nil
		return nil, failed("make the control channel", err)
	}
	return f, nil
}

func (f *Files) open() error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := f.displace(dir); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		file **os.File
	}{
		{caisson.ControlRequests, &f.requests},
		{caisson.ControlPublic, &f.public},
		{caisson.ControlResponses, &f.responses},
		{caisson.ControlTasks, nil},
	} {
		if err := root.MkdirAll(d.name, dirMode); err != nil {
			return err
		}
		// It was the sandbox's to change, which may have locked us out.
		if err := root.Chmod(d.name, dirMode); err != nil {
			return err
		}
		if d.file == nil {
			continue
		}
		if *d.file, err = root.OpenFile(d.name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
			return err
		}
	}
	return f.inherit(dir)
}

// Due tells whether Scan or Trim has something to do though nothing has come:
// what could not be removed, what is still being written, and answers that have
// been kept long enough. It asks no disk and waits for nobody.
func (f *Files) Due(now time.Time) bool {
	return f.scan.rest.Load() || f.trash.any() || now.UnixNano() >= f.trimAt.Load()
}

// settle deals with what an earlier life left in private.
func (f *Files) settle() error {
	names, err := listed(f.private)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, _, _ := strings.Cut(name, ".")
		switch {
		case name == bootName:
		case strings.HasPrefix(name, gonePrefix):
			f.trash.add(name)
		case caisson.RequestID(id).Valid():
			// It stays out of its client's reach, who would think that nobody took it.
			f.claims.leave(caisson.RequestID(id), name)
		default:
			f.trash.add(name)
		}
	}
	return nil
}

// Requests returns the path of the directory that the sandbox writes to. It is
// never replaced for as long as the channel is there.
func (f *Files) Requests() string { return filepath.Join(f.dir, caisson.ControlRequests) }

// Public returns the path of the directory that the sandbox may read. It is
// never replaced either.
func (f *Files) Public() string { return filepath.Join(f.dir, caisson.ControlPublic) }

// Close releases the descriptors; the files stay. The error is nil.
func (f *Files) Close() error {
	for _, d := range []*os.File{f.requests, f.public, f.responses, f.private} {
		if d != nil {
			d.Close()
		}
	}
	return nil
}

// name returns a name in private that nothing has.
func (f *Files) name(prefix string) string {
	return prefix + f.life + "." + strconv.FormatInt(f.count.Add(1), 10)
}

// at is the descriptor of a directory that is held for the life of the channel.
func at(dir *os.File) int { return int(dir.Fd()) }

// listed returns all names in a directory of ours.
func listed(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, 0); err != nil {
		return nil, err
	}
	return dir.Readdirnames(0)
}

// failed is the error of a write that did not succeed.
func failed(what string, err error) *caisson.Error {
	code := caisson.CodeWriteFailed
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		code = caisson.CodeDiskFull
	}
	return caisson.Errorf(code, "%s: %w", what, err)
}

func remove(dir *os.File, name string) error {
	if err := unix.Unlinkat(at(dir), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}
