package channel

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Bounds of one call of Scan, each a few milliseconds of work.
const (
	scanEntries = 4096
	scanRemoved = 512
	// maxStuck bounds what is remembered of a directory that cannot be cleared.
	maxStuck = 4096
	// temporaryAge is how long a client may take to write a request: it writes
	// at most 64 KiB.
	temporaryAge = 10 * time.Second
)

// Counts tell what Scan has met.
type Counts struct {
	// Swept are the entries that were no requests and were removed.
	Swept int64
	// Stuck are those that could not be moved or removed, each time that they
	// were met.
	Stuck int64
	// More: the bounds of the last call were reached. Call it again soon.
	More bool
}

// scanner is the state of Scan between calls.
type scanner struct {
	mu     sync.Mutex
	within bool // the directory was not read to its end
	left   bool // something in it that could be swept was left
	counts Counts
	// rest: something is left that another call may sweep, now or in a while.
	rest atomic.Bool

	stuckMu sync.Mutex
	stuck   map[caisson.RequestID]struct{}
}

func (s *scanner) leaveOut(id caisson.RequestID) {
	s.stuckMu.Lock()
	defer s.stuckMu.Unlock()
	if len(s.stuck) < maxStuck {
		s.stuck[id] = struct{}{}
	}
}

func (s *scanner) leftOut(id caisson.RequestID) bool {
	s.stuckMu.Lock()
	defer s.stuckMu.Unlock()
	_, is := s.stuck[id]
	return is
}

// Unmovable is how many requests could not be moved since the channel was opened, and
// are left where they are.
func (f *Files) Unmovable() int {
	f.scan.stuckMu.Lock()
	defer f.scan.stuckMu.Unlock()
	return len(f.scan.stuck)
}

// Counts returns what Scan has met so far.
func (f *Files) Counts() Counts {
	f.scan.mu.Lock()
	defer f.scan.mu.Unlock()
	return f.scan.counts
}

// found is a request that Scan has found.
type found struct {
	id caisson.RequestID
	at int64 // when it got its name, by the kernel: nobody inside can set that
}

// Scan lists requests that wait to be claimed, oldest first, and sweeps what is
// no request. Of a directory with more entries than it looks at in one call it
// gives some, and the others in calls that follow (see Counts). An entry by the
// name of a request is listed whatever it is: Claim tells.
//
// It must also be called within seconds where something came that is no request
// (see [Watcher.Add]), and for as long as Due says so.
func (f *Files) Scan(now time.Time) ([]caisson.RequestID, error) {
	f.scan.mu.Lock()
	defer f.scan.mu.Unlock()
	if err := f.regain(); err != nil {
		return nil, failed("look at the requests", err)
	}
	budget := scanRemoved
	rest := f.empty(&budget)
	names, err := f.next()
	if err != nil {
		return nil, failed("list the requests", err)
	}
	var all []found
	later := false
	for _, name := range names {
		id, is := requestOf(name)
		if is {
			if at, ok := f.named(name); ok && !f.scan.leftOut(id) {
				all = append(all, found{id, at})
			}
			continue
		}
		if f.young(name, now) {
			later = true
			continue
		}
		if budget <= 0 {
			f.scan.left = true
			continue
		}
		budget--
		if !f.sweep(name) {
			later = true
		}
	}
	f.scan.counts.More = rest || f.scan.left || f.scan.within
	f.scan.rest.Store(later || f.scan.counts.More)
	slices.SortFunc(all, func(a, b found) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return strings.Compare(string(a.id), string(b.id))
	})
	ids := make([]caisson.RequestID, len(all))
	for i, r := range all {
		ids[i] = r.id
	}
	return ids, nil
}

// next returns the names of the next entries, from the first on where the last
// call has come to the end.
func (f *Files) next() ([]string, error) {
	for range 2 {
		fresh := !f.scan.within
		if fresh {
			if _, err := f.requests.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			f.scan.left = false
		}
		names, err := f.requests.Readdirnames(scanEntries)
		f.scan.within = len(names) == scanEntries
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case len(names) > 0 || fresh:
			return names, nil
		}
	}
	return nil, nil
}

// requestOf returns the id of the request whose file has that name.
func requestOf(name string) (caisson.RequestID, bool) {
	id, is := strings.CutSuffix(name, requestSuffix)
	return caisson.RequestID(id), is && caisson.RequestID(id).Valid()
}

// named tells when an entry got its name; false where it has gone.
func (f *Files) named(name string) (int64, bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(at(f.requests), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, !errors.Is(err, fs.ErrNotExist)
	}
	return st.Ctim.Nano(), true
}

// young tells whether an entry is a request that is still being written.
func (f *Files) young(name string, now time.Time) bool {
	id, is := strings.CutSuffix(name, ".tmp")
	if !is || !strings.HasPrefix(id, ".") || !caisson.RequestID(id[1:]).Valid() {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at(f.requests), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true // it has gone
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size <= caisson.ControlBody && now.Sub(time.Unix(st.Ctim.Unix())) <= temporaryAge
}

// sweep removes an entry that is no request, and tells whether it is gone. What
// is no file is moved out of the sandbox's reach first.
func (f *Files) sweep(name string) bool {
	err := unix.Unlinkat(at(f.requests), name, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		gone := f.name(gonePrefix)
		if err = f.moveIn(name, gone); err == nil {
			f.trash.add(gone)
		}
	}
	switch {
	case err == nil:
		f.scan.counts.Swept++
	case errors.Is(err, fs.ErrNotExist):
	default:
		f.scan.counts.Stuck++
		return false
	}
	return true
}
