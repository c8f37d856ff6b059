package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/atomicfile"
)

const (
	// littleOnDisk is what is not worth a workspace: to remove one that takes less
	// brings no disk back above its floor.
	littleOnDisk = 1 << 20
	// unhelpedFor is how long nothing more is removed early after a removal that
	// made nothing free. What fills the disk is something else, or fills it faster.
	unhelpedFor = time.Hour
)

// tidyTrash removes from the trash what has been there for its time, and while
// less than the floor is free on its disk also the oldest of what has not, as long
// as that helps; what was removed, why, and what that made free is told in the
// trash's log. What cannot be removed keeps no other there.
func (h *Host) tidyTrash(ctx context.Context, free func() (bytes int64, known bool)) error {
	list, err := h.ListTrash(ctx, true)
	errs := []error{err}
	for i := len(list) - 1; i >= 0; i-- { // oldest first
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		t := list[i]
		before, known := free()
		early := t.Until.After(time.Now())
		why := "its time is over"
		if early {
			if h.keepTrash || !known || before >= h.Config.Floors.Disk || h.unhelped() {
				break
			}
			if onDisk(filepath.Join(h.trashDir(), string(t.Workspace.ID))) < littleOnDisk {
				continue
			}
			why = fmt.Sprintf("%s were free on the disk, and %s must stay free", amount(before), amount(h.Config.Floors.Disk))
		}
		if err := errors.Join(h.logTrash("removed workspace %s (%s, branch %s, removed at %s) from the trash: %s", t.Workspace.ID, t.Workspace.Name, t.Workspace.Branch, t.At.Format(time.RFC3339), why), h.PruneTrash(ctx, []Trash{t})); err != nil {
			errs = append(errs, err)
			continue
		}
		after, measured := free()
		if !known || !measured {
			continue
		}
		freed := max(after-before, 0)
		errs = append(errs, h.logTrash("%s more are free without workspace %s", amount(freed), t.Workspace.ID))
		if early && freed == 0 {
			errs = append(errs, atomicfile.Write(h.unhelpedPath(), nil, 0o600))
			break
		}
	}
	return errors.Join(errs...)
}

func (h *Host) trashDir() string { return filepath.Join(h.Paths.State, "trash") }

func (h *Host) unhelpedPath() string { return filepath.Join(h.trashDir(), "unhelped") }

// unhelped tells whether the last early removal made nothing free, a short time
// ago.
func (h *Host) unhelped() bool {
	info, err := os.Lstat(h.unhelpedPath())
	return err == nil && time.Since(info.ModTime()) < unhelpedFor
}

// onDisk is how many bytes of the disk are given back with a directory. Where that
// cannot be told it may be all of it. What lies on other file systems does not
// count, nor what has a name elsewhere.
func onDisk(dir string) (bytes int64) {
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if st, is := info.Sys().(*syscall.Stat_t); is && (st.Nlink == 1 || info.IsDir()) {
			bytes += st.Blocks * 512
		}
		if bytes >= littleOnDisk {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return littleOnDisk
	}
	return bytes
}

// logTrash adds a line to the trash's log.
func (h *Host) logTrash(format string, args ...any) error {
	f, err := os.OpenFile(filepath.Join(h.trashDir(), "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.RFC3339)}, args...)...)
	return errors.Join(err, f.Close())
}

// tidyWorkspaces ends what killed processes had begun with workspaces, then
// looks at the trash.
func (h *Host) tidyWorkspaces(ctx context.Context) error {
	return errors.Join(h.workspaces.Tidy(ctx), h.tidyTrash(ctx, func() (int64, bool) { return freeOn(h.trashDir()) }))
}
