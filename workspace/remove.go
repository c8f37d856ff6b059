package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// A workspace is removed in two halves. The first takes it out of everybody's
// reach and looks again: until that has shown what the permit says, all of it
// goes back. The second keeps it in the trash, and only goes on. A note on disk
// tells in which half a killed process was.

// backBound bounds going back, which must not end with the caller's patience.
const backBound = time.Minute

// stage is how far a workspace is on its way to the trash or from it.
type stage string

const (
	stageTaking    stage = "taking"    // goes back
	stageKeeping   stage = "keeping"   // goes on
	stageKept      stage = "kept"      // in the trash
	stageRestoring stage = "restoring" // goes on
	stagePruning   stage = "pruning"   // goes on
)

// Trashed is a workspace in the trash.
type Trashed struct {
	Version   int               `json:"version"`
	Stage     stage             `json:"stage"`
	Workspace caisson.Workspace `json:"workspace"`
	At        time.Time         `json:"at"` // when it was removed
	By        string            `json:"by"`
	Mode      Mode              `json:"mode"`
	Permit    caisson.Digest    `json:"permit"`
	Losses    []Loss            `json:"losses"` // what it holds that is nowhere else
	Pins      []Pin             `json:"pins"`
	Size      int64             `json:"size"` // on disk, in bytes
	Tip       string            `json:"tip,omitempty"`
	// BranchDeleted: the branch is deleted, as its commits are on another.
	BranchDeleted bool `json:"branch_deleted"`
	TreeMode      int  `json:"tree_mode"`
	// Restoring is the workspace that it becomes while it is being restored.
	Restoring *caisson.Workspace `json:"restoring,omitempty"`
}

// trashVersion is the version of the form of a note.
const trashVersion = 1

// maxTrashNote bounds a note; pins are most of it.
const maxTrashNote = 64 << 20

func (w *Workspaces) trash(id caisson.WorkspaceID) string {
	return filepath.Join(w.opts.StateDir, "trash", string(id))
}

// trashPin is the name of a reference that keeps an object of the trash.
func trashPin(id caisson.WorkspaceID, p Pin) string {
	return trashRefs + string(id) + "/" + p.Kind + "/" + p.ID
}

// lockTrash keeps others from the trash of one workspace.
func (w *Workspaces) lockTrash(ctx context.Context, id caisson.WorkspaceID) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(w.trash(id)), 0o700); err != nil {
		return nil, failed("make the trash", err)
	}
	lock, err := lockfile.Acquire(ctx, w.trash(id)+".lock", nil)
	if err != nil {
		return nil, failed("wait for the trash", err)
	}
	return func() { _ = lock.Close() }, nil
}

func (w *Workspaces) readTrashed(id caisson.WorkspaceID) (Trashed, error) {
	var t Trashed
	raw, err := readInside(w.trash(id), "note", maxTrashNote)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err == nil && (t.Version != trashVersion || t.Workspace.ID != id) {
		err = errors.New("it is of another version, or of another workspace")
	}
	if err != nil {
		return t, fmt.Errorf("read the trash's note of %s: %w", id, err)
	}
	return t, nil
}

func (w *Workspaces) writeTrashed(t Trashed) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(w.trash(t.Workspace.ID), "note"), raw, 0o600)
}

// Remove moves a workspace to the trash, if it is still as the permit says when
// nobody can reach it any more; else it is put back, and CodeWorkspaceDirty is
// returned. When another error is returned, the workspace is either where it
// was or on its way to the trash, and the next process brings it the rest of
// the way. The caller sees to it that no run works in it.
func (w *Workspaces) Remove(ctx context.Context, permit Permit, by string) (Trashed, error) {
	id := permit.Inspection.Workspace.ID
	if !permit.valid() {
		return Trashed{}, caisson.Errorf(caisson.CodeStateInvalid, "there is no permit to remove workspace %s", id)
	}
	release, err := w.lockTrash(ctx, id)
	if err != nil {
		return Trashed{}, err
	}
	defer release()
	if err := w.resumeTrash(ctx, id); err != nil {
		return Trashed{}, failed("end what was begun before with workspace "+string(id), err)
	}
	ws, err := w.opts.Ledger.Workspace(ctx, id)
	if err != nil {
		return Trashed{}, err
	}
	if ws.Removed {
		return Trashed{}, caisson.Errorf(caisson.CodeNotFound, "workspace %s was removed before", ws.Name).WithHint("`caisson workspace trash ls` shows it.")
	}
	if ws.Binding != permit.Inspection.Workspace.Binding || ws.Path != permit.Inspection.Workspace.Path {
		return Trashed{}, changedSince(ws, "it is bound otherwise")
	}
	r := &removal{w: w, permit: permit, t: Trashed{
		Version: trashVersion, Stage: stageTaking, Workspace: ws, At: time.Now().UTC(), By: by, Mode: permit.Mode, Permit: permit.Digest,
		Losses: permit.Inspection.Losses, Pins: permit.Inspection.Pins, Size: permit.Inspection.Size, Tip: permit.Inspection.Tip,
	}}
	if err := r.take(ctx); err != nil {
		return Trashed{}, errors.Join(err, r.back(ctx))
	}
	if err := r.keep(ctx); err != nil {
		return r.t, failed("bring workspace "+ws.Name+" the rest of the way to the trash", err)
	}
	return r.t, nil
}

func changedSince(ws caisson.Workspace, what string) error {
	return caisson.Errorf(caisson.CodeWorkspaceDirty, "workspace %s was changed since it was looked at (%s); it is where it was", ws.Name, what).
		WithHint("End what works in it, then try again.")
}

// removal is one workspace on its way to the trash.
type removal struct {
	w      *Workspaces
	permit Permit
	t      Trashed
}

// step is where a test kills, or lets the disk be full.
func step() error { return fault.Point("workspace.trash.step") }

// take is the first half.
func (r *removal) take(ctx context.Context) error {
	w, ws := r.w, r.t.Workspace
	if _, _, err := directoryID(w.private(ws.ID)); err == nil {
		release, err := w.lock(ctx, ws) // nobody imports from it meanwhile
		if err != nil {
			return err
		}
		defer release()
	}
	if info, err := os.Lstat(ws.Path); err == nil {
		r.t.TreeMode = int(info.Mode().Perm())
	}
	if err := os.MkdirAll(w.trash(ws.ID), 0o700); err != nil {
		return failed("make the trash", err)
	}
	if err := w.writeTrashed(r.t); err != nil {
		return failed("note the removal", err)
	}
	for _, do := range []func() error{
		func() error { return r.pin(ctx) },
		func() error { return w.moveAside(ws, "tree", ws.Path, r.t.TreeMode) },
		func() error { return w.moveAside(ws, "private", w.private(ws.ID), 0o700) },
		func() error { return r.recheck(ctx) },
		func() error { r.t.Stage = stageKeeping; return w.writeTrashed(r.t) },
	} {
		if err := errors.Join(step(), ctx.Err()); err != nil {
			return failed("take workspace "+ws.Name+" away", err)
		}
		if err := do(); err != nil {
			return failed("take workspace "+ws.Name+" away", err)
		}
	}
	return nil
}

// pin keeps what the workspace names in the repository.
func (r *removal) pin(ctx context.Context) error {
	repo, err := r.w.boundRepository(ctx, r.t.Workspace)
	if err != nil || repo == nil {
		return err
	}
	var updates []refUpdate
	for _, p := range r.t.Pins {
		updates = append(updates, refUpdate{trashPin(r.t.Workspace.ID, p), p.ID, ""})
	}
	return r.w.updateRefs(ctx, repo, "", updates...)
}

// boundRepository returns the repository of a workspace; nil where it is gone,
// or another is in its place.
func (w *Workspaces) boundRepository(ctx context.Context, ws caisson.Workspace) (*repository, error) {
	b := ws.Binding
	if dev, ino, err := directoryID(b.CommonDir); err != nil || dev != b.Device || ino != b.Inode {
		return nil, nil //nolint:nilerr,nilnil // there is none
	}
	return w.repository(ctx, b.CommonDir, false)
}

// recheck takes the marks again, where nobody else can write.
func (r *removal) recheck(ctx context.Context) error {
	found := r.permit.Inspection
	at := spot{r.w.aside(found.Workspace, "tree"), r.w.aside(found.Workspace, "private")}
	found.Marks, _, _ = r.w.mark(ctx, found, at) // what cannot be marked has a mark of its own
	if permitDigest(found, r.permit.Mode) != r.permit.Digest {
		return changedSince(found.Workspace, found.Marks.since(r.permit.Inspection.Marks))
	}
	return nil
}

// back puts everything where it was.
func (r *removal) back(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backBound)
	defer cancel()
	w, ws := r.w, r.t.Workspace
	if err := errors.Join(
		w.moveBack(ws, "private", w.private(ws.ID), 0o700), w.moveBack(ws, "tree", ws.Path, r.t.TreeMode), w.unpin(ctx, ws, trashRefs),
	); err != nil {
		return failed("put workspace "+ws.Name+" back", err)
	}
	return w.dropTrash(ctx, ws.ID)
}

// asides are the two places that a part of a workspace in the trash can be at:
// the trash, or beside where it was if that is another file system.
func (w *Workspaces) asides(ws caisson.Workspace, what string) (within, beside string) {
	from := ws.Path
	if what == "private" {
		from = w.private(ws.ID)
	}
	return filepath.Join(w.trash(ws.ID), what), filepath.Join(filepath.Dir(from), ".trash-"+string(ws.ID)+"-"+what)
}

// aside returns where a part of a workspace in the trash is.
func (w *Workspaces) aside(ws caisson.Workspace, what string) string {
	within, beside := w.asides(ws, what)
	if _, err := os.Lstat(beside); err == nil {
		return beside
	}
	return within
}

func (w *Workspaces) moveAside(ws caisson.Workspace, what, from string, mode int) error {
	within, beside := w.asides(ws, what)
	err := renameDir(from, within, mode)
	if errors.Is(err, unix.EXDEV) {
		err = renameDir(from, beside, mode)
	}
	return err
}

func (w *Workspaces) moveBack(ws caisson.Workspace, what, to string, mode int) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return renameDir(w.aside(ws, what), to, mode)
}

// asIs leaves a directory's mode as it is.
const asIs = -1

// renameDir moves a directory to a place where nothing is, durably; there it has
// mode. One that is not there has been moved. A directory that its owner may not
// write cannot be moved by an ordinary user, who gives himself the right first.
func renameDir(from, to string, mode int) error {
	if _, err := os.Lstat(from); err == nil {
		if err := renameNew(from, to); errors.Is(err, unix.EACCES) && mode != asIs {
			if err := os.Chmod(from, 0o700); err != nil {
				return err
			}
			if err := renameNew(from, to); err != nil {
				return errors.Join(err, os.Chmod(from, fs.FileMode(mode)))
			}
		} else if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, err := os.Lstat(to); mode != asIs && err == nil && info.IsDir() && int(info.Mode().Perm()) != mode {
		if err := os.Chmod(to, fs.FileMode(mode)); err != nil {
			return err
		}
	}
	return errors.Join(atomicfile.SyncDir(filepath.Dir(from)), atomicfile.SyncDir(filepath.Dir(to)))
}

// renameNew renames, and replaces nothing.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system that cannot tell
		if _, there := os.Lstat(to); there == nil {
			err = unix.EEXIST
		} else {
			return os.Rename(from, to)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// unpin deletes our references of a workspace below prefixes, also in the
// repositories of its submodules.
func (w *Workspaces) unpin(ctx context.Context, ws caisson.Workspace, prefixes ...string) error {
	return w.dropFrom(ctx, ws, every, ofWorkspace(ws.ID, prefixes...)...)
}

// dropTrash removes what is left of a workspace's trash.
func (w *Workspaces) dropTrash(ctx context.Context, id caisson.WorkspaceID) error {
	dir := w.trash(id)
	if err := w.emptyTrash(ctx, id); err != nil {
		return err
	}
	return errors.Join(atomicfile.RemoveIfThere(dir), atomicfile.SyncDir(filepath.Dir(dir)))
}

// emptyTrash removes what is in a workspace's trash; the note goes last.
func (w *Workspaces) emptyTrash(ctx context.Context, id caisson.WorkspaceID) error {
	dir := w.trash(id)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "note" {
			continue
		}
		if err := removeTree(ctx, filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return atomicfile.RemoveIfThere(filepath.Join(dir, "note"))
}
