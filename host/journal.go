package host

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// journalOp is what is done to a sandbox in several steps.
type journalOp string

const (
	journalReplace journalOp = "replace" // its boundary is made anew
	journalRemove  journalOp = "remove"
)

// journal is the note of what is being done to the sandbox of a run, written
// before its first step and removed after its last. Each step can be done again,
// so that after a crash whoever comes next begins at the first.
type journal struct {
	Run      caisson.RunID      `json:"run"`
	Op       journalOp          `json:"op"`
	Instance caisson.InstanceID `json:"instance"` // who does it
	By       string             `json:"by"`
	At       time.Time          `json:"at"`
	// Generation is that of the boundary which is to be made, and Tree the commit
	// of the workspace's tree as the one before left it.
	Generation int64  `json:"generation,omitempty"`
	Tree       string `json:"tree,omitempty"`
	// Purge: the workspace goes too, where nothing is lost with it.
	Purge bool `json:"purge,omitempty"`
}

func (h *Host) journals() notes[journal] {
	return notes[journal]{
		dir: filepath.Join(h.Paths.State, "journals"), noun: "journal", about: func(j journal) string { return string(j.Run) },
		hint: "Remove the file. Then `caisson sandbox start` or `caisson sandbox rm` begins anew.",
	}
}

// noteJournal writes what is about to be done, in the name of this process.
func (h *Host) noteJournal(ctx context.Context, j journal) error {
	me, err := h.register(ctx)
	if err != nil {
		return err
	}
	j.Instance, j.By, j.At = me, Person(), time.Now().UTC()
	return h.journals().write(j)
}

// journalRemains lists what is under way. What a process began that was killed is
// brought to its end; but a boundary that is to be made anew is made by the next
// start, and is no residue until its run has ended.
func (h *Host) journalRemains(ctx context.Context) ([]remain, error) {
	all, err := h.journals().all()
	var found []remain
	for _, j := range all {
		r := remain{Remnant: caisson.Remnant{Kind: "file", Name: h.journals().path(string(j.Run)), Live: true}, remove: func(ctx context.Context) error { return h.finishJournal(ctx, j) }}
		ended, readErr := h.endedRun(ctx, j.Run)
		inst, instErr := h.Ledger.Instance(ctx, j.Instance)
		switch alive := process.InstanceLiveness(inst); {
		case readErr != nil || instErr != nil:
			r.Why = "its run, or who does it, cannot be read"
		case alive == caisson.Alive:
			r.Why = "who does it lives"
		case alive == caisson.LivenessUnknown:
			r.Why = "whether who does it lives cannot be told here"
		case j.Op == journalReplace && !ended:
			r.Why = "the next start makes the boundary of run " + string(j.Run) + " anew"
		case j.Op == journalReplace:
			r.Live, r.Why = false, "its run has ended"
		default:
			r.Live, r.Why = false, "who removed the sandbox of run "+string(j.Run)+" was ended before it was done"
		}
		found = append(found, r)
	}
	return found, err
}

func (h *Host) endedRun(ctx context.Context, id caisson.RunID) (bool, error) {
	r, err := h.Ledger.Run(ctx, id)
	if caisson.CodeOf(err) == caisson.CodeNotFound {
		return true, nil
	}
	return r.State.Terminal(), err
}

// finishJournal brings what a killed process began to its end.
func (h *Host) finishJournal(ctx context.Context, j journal) error {
	if j.Op == journalRemove {
		_, err := h.removeSteps(ctx, j)
		return err
	}
	return h.journals().drop(string(j.Run))
}

// notedInstances are the processes that holds and journals name: who looks at
// those asks whether they live.
func (h *Host) notedInstances() (map[caisson.InstanceID]bool, error) {
	asked := map[caisson.InstanceID]bool{}
	holds, err := h.holds().all()
	journals, journalErr := h.journals().all()
	for _, hold := range holds {
		asked[hold.Instance] = true
	}
	for _, j := range journals {
		asked[j.Instance] = true
	}
	return asked, errors.Join(err, journalErr)
}
