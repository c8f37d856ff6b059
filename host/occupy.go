package host

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// occupyBound is how long a workspace may look taken because somebody looks
// whether it is.
const occupyBound = 300 * time.Millisecond

// usePath is the lock of who works in a workspace. It goes with the workspace.
func usePath(ws caisson.Workspace) string { return filepath.Join(filepath.Dir(ws.Home), "use") }

// occupy makes a run the only one that works in a workspace: in two sandboxes
// over one tree, neither could tell whose changes it brings home. The kernel
// lets go of it when this process ends. Without an error there is a lock.
func (h *Host) occupy(ctx context.Context, ws caisson.Workspace, run caisson.RunID) (*lockfile.Lock, error) {
	bound, cancel := context.WithTimeout(ctx, occupyBound)
	defer cancel()
	lock, err := lockfile.Acquire(bound, usePath(ws), []byte(run))
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, fs.ErrNotExist): // it went when it was looked for
		return nil, caisson.Errorf(caisson.CodeNotFound, "the workspace on branch %s was removed", ws.Branch).
			WithHint("Bring it back, if it is in the trash still: `caisson workspace trash restore %s`.", ws.ID)
	case bound.Err() == nil || ctx.Err() != nil:
		return nil, err
	}
	if err := h.occupied(ctx, ws); err != nil {
		return nil, err
	}
	// Whoever it was has ended just now, or only looks.
	lock, held, err := lockfile.Try(usePath(ws), []byte(run))
	if held {
		err = caisson.Errorf(caisson.CodeLeaseHeld, "the workspace on branch %s was in use just now", ws.Branch).WithHint("Try again.")
	}
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// occupied returns CodeLeaseHeld, and how to get to it, if a run works in the workspace.
func (h *Host) occupied(ctx context.Context, ws caisson.Workspace) error {
	if err := h.unheld(ctx, ws.ID); err != nil {
		return err
	}
	r, taken, err := h.occupant(ctx, ws)
	if err != nil || !taken {
		return err
	}
	e := caisson.Errorf(caisson.CodeLeaseHeld, "run %s works in the workspace on branch %s", r.ID, ws.Branch).With("run", r.ID)
	switch r.Spec.Session {
	case caisson.SessionTerminal:
		return e.WithHint("Join it: `caisson sandbox attach %s`. End it: `caisson sandbox stop %s`.", r.ID, r.ID)
	case caisson.SessionServed:
		return e.WithHint("Its sandbox is kept open: run in it with `caisson sandbox exec %s`, or `caisson sandbox stop %s`.", r.ID, r.ID)
	case caisson.SessionStreams:
		return e.WithHint("Wait for it, or `caisson sandbox stop %s`.", r.ID)
	}
	return e.WithHint("Watch it: `caisson runs attach %s`.", r.ID)
}

// occupant returns the run that works in a workspace, if one does.
func (h *Host) occupant(ctx context.Context, ws caisson.Workspace) (r caisson.Run, taken bool, err error) {
	taken, err = lockfile.Held(usePath(ws))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !taken {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	note, err := lockfile.Note(usePath(ws))
	if err != nil {
		return r, false, err
	}
	if r, err = h.Ledger.Run(ctx, caisson.RunID(note)); caisson.CodeOf(err) == caisson.CodeNotFound {
		return caisson.Run{ID: "(being made)"}, true, nil // its holder is about to say who it is
	}
	return r, true, err
}
