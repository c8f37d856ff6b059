//go:build linux

package mask

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Options say what to hide, and where.
type Options struct {
	// Workspace is the tree, at the same absolute path on the host and inside.
	Workspace string
	// Patterns are matched against paths relative to it, as internal/glob reads them.
	Patterns []string
	// Guest is the pid of the first process of the box. It must not have been
	// waited for. The user namespace that owns its mounts was made by this user.
	Guest int
	// File and Dir are paths inside of an empty file and an empty directory
	// that nobody may read.
	File, Dir string
}

// Mask hides files of one workspace from one box. Safe for concurrent use.
type Mask struct {
	opts  Options
	guest int // pidfd

	mu     sync.Mutex
	finder *finder
	again  []string // what could not be hidden
	closed bool
}

// Open prepares to hide; Renew does it.
func Open(opts Options) (*Mask, error) {
	f, err := newFinder(opts.Workspace, opts.Patterns)
	if err != nil {
		return nil, err
	}
	guest, err := unix.PidfdOpen(opts.Guest, 0)
	if err != nil {
		f.close()
		return nil, caisson.Errorf(caisson.CodeSandboxLost, "open the guest: %w", err)
	}
	return &Mask{opts: opts, guest: guest, finder: f}, nil
}

// Renew hides what matches, and later what has come since the last time, and
// returns it. After an error nothing may run or be read inside.
func (m *Mask) Renew(ctx context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errEnded()
	}
	var hidden []string
	for range rounds {
		found, err := m.finder.find(ctx)
		found = append(found, m.again...)
		slices.Sort(found)
		found = slices.Compact(found)
		m.again = found // until they are hidden
		if err != nil {
			return nil, err
		}
		gone, err := m.coverAll(found)
		if err != nil {
			return nil, err
		}
		m.again = nil
		hidden = append(hidden, found...)
		if !gone {
			return hidden, nil
		}
		// What was moved meanwhile is found where it is now.
	}
	return nil, errMoved()
}

// coverAll hides what was found, and tells whether some of it has gone.
func (m *Mask) coverAll(found []string) (gone bool, err error) {
	if len(found) == 0 {
		return false, nil
	}
	for i, errno := range m.cover(found) {
		switch errno {
		case 0:
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // ELOOP: a directory on the way is a link now
			gone = true
		default:
			return gone, caisson.Errorf(caisson.CodeIsolationUnavailable, "%q cannot be hidden: %w", found[i], errno).
				WithHint("Nothing runs while what `hide` names can be read. Correct the pattern, or move the file out of the workspace.")
		}
	}
	return gone, nil
}

// Close releases what Open opened; a nil one has nothing. What is hidden stays so
// for as long as the box.
func (m *Mask) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.finder.close()
		_ = unix.Close(m.guest)
	}
}
