package workspace

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// Git locks a file by making another of its name with ".lock" behind it. A
// killed git leaves that, and how old it is proves nothing. One of a reference is
// removed only where all of this holds: a note of ours says that a command of
// ours was to write this value to this reference; nobody holds the note, which
// that command has held too, so that it has ended; and the value is in the lock,
// or nothing yet is, and it is no other git's (abandoned). All others stay, and
// are named.

const (
	// refLockWait is how long git waits for a reference that another git is
	// writing, which takes it moments, however many wait.
	refLockWait = 5 * time.Second
	// packedRefsWait is how long it waits for one that packs all references.
	packedRefsWait = 30 * time.Second
	// indexLockWait is how long an index is waited for, which is held for as long
	// as a checkout takes.
	indexLockWait = 5 * time.Second
	// packingTakes is longer than git has a reference locked to pack it.
	packingTakes = time.Second
	// lockPoll is how often one looks again.
	lockPoll = 20 * time.Millisecond
)

// waiting makes git wait for locks that another git is about to give back.
func waiting() []string {
	return []string{
		fmt.Sprint("core.filesRefLockTimeout=", refLockWait.Milliseconds()),
		fmt.Sprint("core.packedRefsTimeout=", packedRefsWait.Milliseconds()),
	}
}

var lockedFile = regexp.MustCompile(`Unable to create '(.+\.lock)': File exists`)

// lockIn returns the lock that a git command could not have, or "".
func lockIn(err error) string {
	var exit *exitError
	if !errors.As(err, &exit) {
		return ""
	}
	found := lockedFile.FindStringSubmatch(exit.complaint)
	if found == nil {
		return ""
	}
	// Git names it as it found it, through the view.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(found[1])); err == nil {
		return filepath.Join(dir, filepath.Base(found[1]))
	}
	return found[1]
}

// heldLock is the error of a lock that nobody gave back in time.
func heldLock(doing, lock string, err error) error {
	return caisson.Errorf(caisson.CodeRepositoryBusy, "%s: another git holds %s: %w", doing, printable(lock), err).
		WithHint("If no git is at work in this repository, one was killed: remove %s. Then try again.", printable(lock)).With("file", printable(lock))
}

// pause waits; false where ctx has ended.
func pause(ctx context.Context, long time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(long):
		return true
	}
}

// update is what a command is to write to references of a repository.
type update struct {
	Common string            `json:"common"`
	Refs   map[string]string `json:"refs"` // name → value
	// Made is the name in the repository under which a lock of ours was written
	// before it got its own.
	Made string `json:"made,omitempty"`
}

func (w *Workspaces) updates() string { return filepath.Join(w.opts.StateDir, "updates") }

// noteUpdate notes what is about to be written. Whoever is given the note's file
// holds it too; it is forgotten when all is done.
func (w *Workspaces) noteUpdate(repo *repository, updates []refUpdate) (*lockfile.Shared, error) {
	u := update{Common: repo.common, Refs: map[string]string{}}
	for _, r := range updates {
		if r.to != absent {
			u.Refs[r.name] = r.to
		}
	}
	return w.writeUpdate(u)
}

func (w *Workspaces) writeUpdate(u update) (*lockfile.Shared, error) {
	if err := os.MkdirAll(w.updates(), 0o700); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	return lockfile.Create(filepath.Join(w.updates(), rand.Text()), raw)
}

// updateRemains lists the notes of commands that were to write references.
func (w *Workspaces) updateRemains() []remain {
	entries, _ := os.ReadDir(w.updates()) // none before the first
	var found []remain
	for _, entry := range entries {
		path := filepath.Join(w.updates(), entry.Name())
		r, there := noteRemain(path, noteWords{
			young: "a git command that writes references holds it", held: "a git command that writes references holds it",
			left: "the git command that wrote references was killed",
		})
		if !there {
			continue // it is done
		}
		r.remove = func(ctx context.Context) error { return undoUpdate(ctx, path) }
		found = append(found, r)
	}
	return found
}

// undoUpdates removes the locks of references that killed commands left. A note
// that cannot be read stops nobody: it is listed, and told where all are removed.
func (w *Workspaces) undoUpdates(ctx context.Context) error {
	var errs []error
	for _, r := range w.updateRemains() {
		if r.Live {
			continue
		}
		if err := r.remove(ctx); !errors.Is(err, errUnread) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// madeLock are the names of locks that were not in their place yet.
var madeLock = regexp.MustCompile(`^caisson-\w+\.lock$`)

// maxUpdate bounds what is read of a note: one import may write as many
// references as there may be inside.
const maxUpdate = 64 << 20

var errUnread = errors.New("what a killed command was to write cannot be read")

// undoUpdate removes what the command of a note left, and the note.
func undoUpdate(ctx context.Context, path string) error {
	note, held, err := lockfile.TryExisting(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another has done it
	}
	if err != nil || held {
		return err
	}
	var u update
	raw, err := io.ReadAll(io.LimitReader(note, maxUpdate))
	if err == nil && len(raw) > 0 { // else nothing was done before it was written
		err = json.Unmarshal(raw, &u)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %s: %w; remove it where no *.lock is left in a repository's refs", errUnread, printable(path), err), note.Close())
	}
	if filepath.IsAbs(u.Common) {
		if root, err := os.OpenRoot(u.Common); err == nil {
			defer root.Close()
			if madeLock.MatchString(u.Made) {
				if err := root.Remove(u.Made); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return errors.Join(err, note.Close())
				}
			}
			for name, to := range u.Refs {
				if !isRefName(name) || !isObjectID(to) {
					continue
				}
				in, err := readRegular(root, name+".lock", 256)
				if err == nil && (string(in) == to+"\n" || len(in) == 0 && abandoned(ctx, root, name)) {
					if err := root.Remove(name + ".lock"); err != nil && !errors.Is(err, fs.ErrNotExist) {
						return errors.Join(err, note.Close())
					}
				}
			}
		}
	}
	return forget(note)
}

// abandoned says whether the empty lock of a reference is one of a git that was
// killed before it wrote the value. A git that writes has the lock open until the
// value is in it. One that only deletes does not; it deletes what is there, so
// that it is not at work on a reference that is missing, and on one that only
// Caisson writes it is for the moment of packing it, which a second look outlasts.
func abandoned(ctx context.Context, root *os.Root, name string) bool {
	before, err := unopened(root, name+".lock")
	if err != nil {
		return false
	}
	if strings.HasPrefix(name, ownRefs) {
		if !pause(ctx, packingTakes) {
			return false
		}
	} else if exists, err := isRef(root, name); exists || err != nil {
		return false
	}
	now, err := unopened(root, name+".lock")
	return err == nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime())
}

// unopened returns a lock that is empty and that no process has open.
func unopened(root *os.Root, lock string) (fs.FileInfo, error) {
	f, err := root.OpenFile(lock, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A lease is given only where no one else has the file open.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return nil, fmt.Errorf("look whether anyone has %s open: %w", printable(lock), err)
	}
	if !info.Mode().IsRegular() || info.Size() != 0 {
		return nil, fmt.Errorf("%s is no empty lock", printable(lock))
	}
	return info, nil
}

// isRef says whether a reference exists, also where it is packed.
func isRef(root *os.Root, name string) (bool, error) {
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	packed, err := root.Open("packed-refs")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer packed.Close()
	lines := bufio.NewScanner(packed)
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), " "+name) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// writeRefs runs a command that writes references, which may be killed.
func (w *Workspaces) writeRefs(ctx context.Context, repo *repository, inv invocation, updates []refUpdate) error {
	if err := w.undoUpdates(ctx); err != nil {
		return fmt.Errorf("remove what killed commands left locked: %w", err)
	}
	if !slices.ContainsFunc(updates, func(u refUpdate) bool { return u.to != absent }) {
		_, err := w.git.run(ctx, inv) // nothing to note, which a full disk would not take
		return err
	}
	note, err := w.noteUpdate(repo, updates)
	if err != nil {
		return fmt.Errorf("note what is to be written: %w", err)
	}
	inv.files = append(inv.files, note.File)
	_, err = w.git.run(ctx, inv)
	if err == nil || lockIn(err) != "" || statusOf(err) > 0 && statusOf(err) < signalled {
		return errors.Join(err, forget(note))
	}
	// It was killed: the next one looks what is left.
	return errors.Join(err, note.Close())
}

// signalled is the first exit status that says that a command was killed.
const signalled = 129

// shadowLocks are what git inside holds while it writes.
var shadowLocks = [...]string{"index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"}

// Unlock removes the locks of git that was killed inside: it would stop the next
// one. To be called where every box of the workspace's run has ended.
func (w *Workspaces) Unlock(ws caisson.Workspace) error {
	root, err := boundShadow(ws)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range shadowLocks {
		_ = root.Remove(name) // not there; else git inside says so
	}
	seen := 0
	unlockRefs(root, "refs", 0, &seen)
	return nil
}

// unlockRefs removes the locks of references below dir. What is beyond the
// bounds of what is looked at stays; git inside says so.
func unlockRefs(root *os.Root, dir string, depth int, seen *int) {
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	entries, _ := f.ReadDir(2 * maxRefs)
	_ = f.Close()
	for _, entry := range entries {
		if *seen++; *seen > 2*maxRefs {
			return
		}
		name := path.Join(dir, entry.Name())
		switch {
		case entry.IsDir() && depth < maxRefDepth:
			unlockRefs(root, name, depth+1, seen)
		case entry.Type().IsRegular() && strings.HasSuffix(name, ".lock"):
			_ = root.Remove(name)
		}
	}
}
