package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
)

// pass is a point at which a test may end the process.
func pass(point string) { _ = fault.Point(point) }

// holdStep is how far a hold has come.
type holdStep string

const (
	holdTaken    holdStep = "taken"    // the sandbox is being stopped
	holdWorking  holdStep = "working"  // the command may have begun
	holdRestored holdStep = "restored" // the workspace is fit to be worked in; the sandbox is being started
)

// Hold says that a person, or a program of theirs, has a workspace alone: no
// sandbox is open around it, and none is opened.
type Hold struct {
	Workspace caisson.WorkspaceID `json:"workspace"`
	Run       caisson.RunID       `json:"run"` // of the sandbox that is kept open around it
	Branch    string              `json:"branch"`
	Instance  caisson.InstanceID  `json:"instance"` // of the holder
	By        string              `json:"by"`
	Reason    string              `json:"reason"`
	Since     time.Time           `json:"since"`
	Until     time.Time           `json:"until"` // for people: as the clock on the wall was set then
	// Ends is when its time is over, as time since the holder's boot: a clock that is
	// set neither ends a hold nor makes it last. Who is of another boot is dead.
	Ends   time.Duration `json:"ends"`
	Step   holdStep      `json:"step"`
	Before string        `json:"before,omitempty"` // commit of the branch
	// Command is what runs, on record before it begins.
	Command *caisson.ProcessIdentity `json:"command,omitempty"`
	// Left is what a person has to do before it can end, where that is something.
	Left string `json:"left,omitempty"`
}

const (
	// holdLate is how long after its time a holder that lives may take to end its
	// command and to restore the workspace. After that it is ended.
	holdLate = 30 * time.Second
	// restoring bounds that; it opens a box, which may need a moment on a loaded
	// machine.
	restoring = 25 * time.Second
)

func (h *Host) holds() notes[Hold] {
	return notes[Hold]{
		dir: filepath.Join(h.Paths.State, "holds"), noun: "hold", about: func(hold Hold) string { return string(hold.Workspace) },
		hint: "If nobody works in the workspace, remove the file.",
	}
}

// wayOut says what to do about a hold that is over and waits for a person.
func (hold Hold) wayOut() string {
	return fmt.Sprintf("Put that right; the next command sees it. Then `caisson sandbox start %s`. To give the sandbox up, as the workspace is: `caisson sandbox rm %s`.", hold.Run, hold.Run)
}

// waits tells whether a hold is over, and only waits for a person to put the
// workspace right: nobody works in it.
func (h *Host) waits(ctx context.Context, hold Hold) bool {
	return hold.Left != "" && hold.Step == holdWorking && h.holderOf(ctx, hold) == caisson.Dead
}

// late tells whether a hold's time is over, and that of its holder to end it.
func (hold Hold) late(now time.Duration) bool { return now >= hold.Ends+holdLate }

// newHold puts a hold on a workspace; CodeHandoffActive where there is one.
func (h *Host) newHold(ctx context.Context, hold Hold) error {
	if err := os.MkdirAll(h.holds().dir, 0o700); err != nil {
		return caisson.Errorf(caisson.CodeWriteFailed, "make the directory of holds: %w", err)
	}
	release, err := h.lockHolds(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = h.holds().make(hold)
	if errors.Is(err, fs.ErrExist) {
		if err = h.unheld(ctx, hold.Workspace); err == nil {
			err = caisson.Errorf(caisson.CodeHandoffActive, "somebody else had the workspace just now").WithHint("Try again.")
		}
	}
	return err
}

// lockHolds keeps holds from being made and broken at once.
func (h *Host) lockHolds(ctx context.Context) (release func(), err error) {
	lock, err := lockfile.Acquire(ctx, filepath.Join(h.holds().dir, "lock"), nil)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "lock the holds: %w", err)
	}
	return func() { _ = lock.Close() }, nil // the kernel lets go of it at the latest with this process
}

// HoldOn returns the hold on a workspace, if there is one.
func (h *Host) HoldOn(ws caisson.WorkspaceID) (hold Hold, there bool, err error) {
	if ws == "" {
		return hold, false, nil
	}
	return h.holds().read(string(ws))
}

// unheld returns CodeHandoffActive while somebody has the workspace for himself.
// One whose sandbox is just being started again is no hindrance to that.
func (h *Host) unheld(ctx context.Context, ws caisson.WorkspaceID) error {
	hold, there, err := h.HoldOn(ws)
	if err != nil || !there || hold.Step == holdRestored {
		return err
	}
	e := caisson.Errorf(caisson.CodeHandoffActive, "%s holds the workspace on branch %s until %s: %s", hold.By, hold.Branch, hold.Until.Local().Format(time.DateTime), hold.Reason).With("hold", hold)
	switch alive := h.holderOf(ctx, hold); {
	case hold.Left != "":
		e = caisson.Errorf(caisson.CodeHandoffActive, "%s held the workspace on branch %s, and it is not fit to be worked in yet: %s", hold.By, hold.Branch, hold.Left).With("hold", hold).
			WithHint("%s", hold.wayOut())
	case alive == caisson.LivenessUnknown:
		e = e.WithHint("Whether that process lives cannot be told here, and so the hold is kept. If it is gone for certain, remove %s.", h.holds().path(string(ws)))
	case alive == caisson.Alive:
		e = e.WithHint("Wait for it. When its time is over it is ended.")
	}
	return e
}

// holderOf tells whether the holder lives, by the lock of its instance.
func (h *Host) holderOf(ctx context.Context, hold Hold) caisson.Liveness {
	inst, err := h.Ledger.Instance(ctx, hold.Instance)
	if err != nil {
		return caisson.LivenessUnknown
	}
	return process.InstanceLiveness(inst)
}

// holdRemains lists the holds. One whose holder is dead, or late, is nobody's.
func (h *Host) holdRemains(ctx context.Context) ([]remain, error) {
	all, err := h.holds().all()
	var found []remain
	for _, hold := range all {
		r := remain{Remnant: caisson.Remnant{Kind: "lock", Name: h.holds().path(string(hold.Workspace)), Live: true}, remove: func(ctx context.Context) error { return h.breakHold(ctx, hold) }}
		switch alive := h.holderOf(ctx, hold); {
		case alive == caisson.LivenessUnknown:
			r.Why = "whether its holder lives cannot be told here"
		case alive == caisson.Alive && (hold.Step == holdRestored || !hold.late(process.SinceBoot())):
			r.Why = hold.By + " holds the workspace: " + hold.Reason
		case alive == caisson.Alive:
			r.Live, r.Why = false, "its time is over, and its holder has not ended it"
		case hold.Left != "":
			r.Why, r.retry = "the workspace waits for a person: "+hold.Left, true // who may have put it right
		default:
			r.Live, r.Why = false, "its holder has ended"
		}
		found = append(found, r)
	}
	return found, err
}

// breakHold ends a hold whose holder is dead, or did not end it in its time.
func (h *Host) breakHold(ctx context.Context, hold Hold) error {
	if process.Marked(hold.Instance) || hold.Command != nil && process.From(*hold.Command) {
		return nil // it would be ended in the middle of it; who comes from elsewhere does it
	}
	inst, err := h.Ledger.Instance(ctx, hold.Instance)
	if err != nil {
		return err
	}
	if process.InstanceLiveness(inst) == caisson.Alive { // it may be stopped: it must not go on later
		if err := process.EndTree(ctx, inst.Process); err != nil {
			return err
		}
	}
	ws, err := h.Ledger.Workspace(ctx, hold.Workspace)
	if err != nil {
		return err
	}
	release, err := h.lockHolds(ctx)
	if err != nil {
		return err
	}
	defer release()
	if now, there, err := h.HoldOn(hold.Workspace); err != nil || !there || now.Instance != hold.Instance {
		return err // another has ended it
	}
	if ws.Removed || hold.Step != holdWorking { // nothing was done: the sandbox may be open still
		return h.holds().drop(string(hold.Workspace))
	}
	use, err := h.occupy(ctx, ws, hold.Run) // of several that look one does it
	if err != nil {
		if code := caisson.CodeOf(err); code == caisson.CodeLeaseHeld || code == caisson.CodeHandoffActive {
			return nil
		}
		return err
	}
	if err = process.EndMarked(ctx, hold.Instance); err != nil {
		return errors.Join(err, use.Close())
	}
	r, err := h.Ledger.Run(ctx, hold.Run)
	switch {
	case err != nil:
	case r.State.Terminal(), // nobody goes on in it
		h.restore(ctx, ws, &hold) == nil: // else it says itself what is left to do
		err = h.holds().drop(string(hold.Workspace))
	}
	return errors.Join(err, use.Close())
}

// restore makes a workspace fit to be worked in again: the command has ended,
// the binding is what is on record, and the branch inside is the one outside. An
// error keeps the hold, which says what is left to do. To be called with the
// workspace occupied; doing it again does no harm.
func (h *Host) restore(ctx context.Context, ws caisson.Workspace, hold *Hold) error {
	err := h.restoreNow(ctx, ws, hold)
	if err == nil {
		hold.Left, hold.Step = "", holdRestored
		return h.holds().write(*hold)
	}
	e, before := caisson.AsError(err), hold.Left
	hold.Left = e.Error()
	if hint := e.HintText(); hint != "" {
		hold.Left += ". " + hint
	}
	if hold.Left != before {
		if keepErr := h.holds().write(*hold); keepErr != nil {
			return errors.Join(err, keepErr)
		}
	}
	return caisson.Errorf(caisson.CodeHandoffActive, "the workspace on branch %s is still held, as it could not be restored: %s", ws.Branch, hold.Left).
		WithHint("%s", hold.wayOut()).With("hold", *hold)
}

func (h *Host) restoreNow(ctx context.Context, ws caisson.Workspace, hold *Hold) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoring)
	defer cancel()
	if hold.Command != nil {
		if err := process.EndTree(ctx, *hold.Command); err != nil {
			return err
		}
	}
	if hold.Step != holdWorking {
		return nil // nothing has begun
	}
	if err := h.workspaces.Check(ctx, ws); err != nil {
		return err
	}
	_, err := h.workspaces.Follow(ctx, ws, nil)
	return err
}
