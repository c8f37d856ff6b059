package workspace

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Watched looks at the binding of one workspace again and again. A look reads the
// files of the binding only if one of them has changed since they were last read:
// there may be many workspaces, and each reads the whole list of references of a
// repository that has packed them. Safe for concurrent use.
type Watched struct {
	w *Workspaces

	mu      sync.Mutex
	of      caisson.Workspace
	marks   []boundMark // of when all was well; nil: it must be read
	trusted int         // looks since then
	reads   int
	settled time.Duration
}

// settled is how long a file must have been as it is when it is read for a later
// change to show in its times, which some systems keep in steps.
const settled = 2 * time.Second

// trustedAtMost is how many looks in a row trust the marks: what is written through
// a page that is mapped shows in no time of the file for a while.
const trustedAtMost = 11

// Watch returns a [Watched].
func (w *Workspaces) Watch() *Watched { return &Watched{w: w, settled: settled} }

// Check is [Workspaces.Check].
func (b *Watched) Check(ctx context.Context, ws caisson.Workspace) error {
	if isClone(ws) {
		return b.w.Check(ctx, ws)
	}
	now := time.Now()
	marks := marksOf(ws)
	b.mu.Lock()
	same := b.marks != nil && b.trusted < trustedAtMost && slices.Equal(b.marks, marks) && reflect.DeepEqual(b.of, ws)
	b.trusted++
	b.mu.Unlock()
	if same {
		return nil
	}
	err := b.w.Check(ctx, ws)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of, b.marks, b.trusted, b.reads = ws, nil, 0, b.reads+1
	until := now.Add(-b.settled).UnixNano()
	doubtful := func(m boundMark) bool { return m.changed >= until || m.kind == unix.S_IFLNK } // the mark is of the link
	if err == nil && !slices.ContainsFunc(marks, doubtful) {
		b.marks = marks // they were taken before the look: what came between shows next time
	}
	return err
}

// boundMark tells one state of a file or a directory of a binding from another. No
// program sets the time of its last change.
type boundMark struct {
	why              syscall.Errno // it cannot be looked at
	device, inode    uint64
	kind             uint32
	size             int64
	written, changed int64 // in ns since 1970; 0 of a directory, in which others work
}

// marksOf takes the marks of all that Check looks at of a workspace with a worktree.
func marksOf(ws caisson.Workspace) []boundMark {
	b := ws.Binding
	marks := make([]boundMark, 0, 16)
	for _, path := range []string{
		b.CommonDir, filepath.Join(b.CommonDir, pin(ws.ID, "base")), filepath.Join(b.CommonDir, "packed-refs"),
		ws.Path, filepath.Join(ws.Path, ".git"),
		filepath.Dir(b.AdminDir), b.AdminDir, filepath.Join(b.AdminDir, "locked"), filepath.Join(b.AdminDir, "gitdir"),
		filepath.Join(b.AdminDir, "commondir"), filepath.Join(b.AdminDir, "HEAD"),
		filepath.Dir(ws.Shadow), ws.Shadow, ws.Home, ws.Cover,
	} {
		marks = append(marks, boundMarkOf(path))
	}
	for _, dir := range ws.Objects {
		marks = append(marks, boundMarkOf(dir))
	}
	return marks
}

func boundMarkOf(path string) boundMark {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		why, _ := err.(syscall.Errno) //nolint:errorlint // it is given bare
		return boundMark{why: why}
	}
	m := boundMark{device: st.Dev, inode: st.Ino, kind: st.Mode & unix.S_IFMT}
	if m.kind != unix.S_IFDIR {
		m.size, m.written, m.changed = st.Size, st.Mtim.Nano(), st.Ctim.Nano()
	}
	return m
}
