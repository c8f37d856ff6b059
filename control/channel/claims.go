package channel

import (
	"errors"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// claims are the requests that were claimed and not released, each by the names
// that its files have in private.
type claims struct {
	mu    sync.Mutex
	names map[caisson.RequestID][]string
	left  map[caisson.RequestID]bool // claimed by another, and not by us yet
}

func (c *claims) add(id caisson.RequestID, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[id] = append(c.names[id], name)
}

// leave notes a file that another has left.
func (c *claims) leave(id caisson.RequestID, name string) {
	c.add(id, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[id] = true
}

// inherit makes a request that another has left ours, and returns the name of its file.
func (c *claims) inherit(id caisson.RequestID) (name string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left[id] {
		return "", false
	}
	delete(c.left, id)
	return c.names[id][0], true
}

func (c *claims) drop(id caisson.RequestID) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names[id]
	delete(c.names, id)
	delete(c.left, id)
	return names
}

// Left lists the requests that somebody claimed who has not released them and
// has the channel no more. Claim gives them as it gives any other.
func (f *Files) Left() []caisson.RequestID {
	f.claims.mu.Lock()
	defer f.claims.mu.Unlock()
	var ids []caisson.RequestID
	for id := range f.claims.left {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Release forgets a request, claimed or left: what becomes of it is on record,
// and nobody shall find it again. Of one that is neither it does nothing.
func (f *Files) Release(id caisson.RequestID) {
	for _, name := range f.claims.drop(id) {
		err := unix.Unlinkat(at(f.private), name, 0)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// A directory, or a disk that does not do as it is told. By another name,
		// so that whoever opens the channel next does not take it for a request.
		gone := f.name(gonePrefix)
		if unix.Renameat(at(f.private), name, at(f.private), gone) == nil {
			name = gone
		}
		f.trash.add(name)
	}
}
