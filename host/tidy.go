package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
)

const (
	// tidyBound bounds a look at what was left, which every command begins with.
	tidyBound = 10 * time.Second
	// placeBound bounds it for one place.
	placeBound = 5 * time.Second
	// young is what may still be in the making, where no lock tells.
	young = time.Minute
)

// tidy removes what killed processes of ours left. It returns what could not be
// removed; that is no reason for a command not to do its work, and the next one
// tries again. What is at an engine that does not answer is no fault: Residue
// says that it is not known.
func (h *Host) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tidyBound)
	defer cancel()
	errs := leaves(h.tidySessions(ctx))
	for _, s := range h.sources() {
		if s.tidy == nil {
			continue
		}
		bounded, done := context.WithTimeout(ctx, placeBound)
		errs = append(errs, leaves(s.tidy(bounded))...)
		done()
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		return err == nil || caisson.CodeOf(err) == caisson.CodeEngineUnavailable
	})...)
}

// leaves are the errors that were joined to err: each has its own code.
func leaves(err error) []error {
	joined, is := err.(interface{ Unwrap() []error }) // a cause deeper down does not part it
	if !is {
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, leaves(part)...)
	}
	return all
}

// removeDead removes those remains that nobody holds.
func removeDead(ctx context.Context, list func(context.Context) ([]remain, error)) error {
	remains, err := list(ctx)
	errs := []error{err}
	for _, r := range remains {
		if !r.Live || r.retry {
			errs = append(errs, r.remove(ctx))
		}
	}
	return errors.Join(errs...)
}

// unremoved are the sandboxes of which something may be left.
func unremoved() []caisson.SandboxState {
	return []caisson.SandboxState{caisson.SandboxCreating, caisson.SandboxRunning, caisson.SandboxStopped, caisson.SandboxLost}
}

// recordRemains lists the boxes that are on record as not removed.
func (h *Host) recordRemains(ctx context.Context) ([]remain, error) {
	left, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{States: unremoved()})
	if err != nil {
		return nil, err
	}
	var found []remain
	for _, record := range left {
		r := remain{Remnant: caisson.Remnant{Kind: "record", Name: "sandbox " + string(record.ID), Sandbox: record.ID, Live: true}}
		r.remove = func(ctx context.Context) error { return h.sweepOne(ctx, record) }
		kept, err := h.keptOpen(ctx, record)
		if err != nil {
			return found, err
		}
		holder, err := h.Ledger.Instance(ctx, record.Instance)
		switch alive := process.InstanceLiveness(holder); {
		case kept && record.State == caisson.SandboxStopped:
			r.Why = "it is stopped, and can be started again"
		case err != nil:
			r.Why = "who opened it is not on record"
		case alive == caisson.Alive:
			r.Why = fmt.Sprintf("process %d, which opened it, lives", holder.Process.PID)
		case alive == caisson.Dead:
			r.Live, r.Why = false, fmt.Sprintf("process %d, which opened it, has ended", holder.Process.PID)
		default:
			r.Why = fmt.Sprintf("whether process %d on %s, which opened it, lives cannot be told here", holder.Process.PID, holder.Process.Host)
		}
		found = append(found, r)
	}
	return found, nil
}

// instanceRemains lists the locks of processes. Those of ended ones that
// somebody may still ask about are kept: of runs that go on and of boxes that
// are left.
func (h *Host) instanceRemains(ctx context.Context) ([]remain, error) {
	dir := h.Paths.Instances()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	asked, err := h.askedInstances(ctx)
	if err != nil {
		return nil, err
	}
	var found []remain
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".tmp") {
			continue // a file that is being written
		}
		r, there := instanceRemain(filepath.Join(dir, entry.Name()), asked)
		if !there {
			continue
		}
		remove := r.remove
		r.remove = func(ctx context.Context) error {
			// It may have taken something before it ended, and after it was asked who has.
			asked, err := h.askedInstances(ctx)
			if err != nil || asked[caisson.InstanceID(strings.TrimSuffix(entry.Name(), ".lock"))] {
				return err
			}
			return remove(ctx)
		}
		found = append(found, r)
	}
	return found, nil
}

func instanceRemain(path string, asked map[caisson.InstanceID]bool) (remain, bool) {
	r := remain{Remnant: caisson.Remnant{Kind: "lock", Name: path, Live: true}, remove: func(context.Context) error { return atomicfile.RemoveIfThere(path) }}
	info, err := os.Lstat(path)
	if err != nil {
		return r, false
	}
	raw, noteErr := lockfile.Note(path)
	if noteErr == nil && len(raw) == 0 && time.Since(info.ModTime()) < young {
		r.Why = "it may be in the making" // to look at its lock could keep its maker from it
		return r, true
	}
	held, err := lockfile.Held(path)
	var inst caisson.Instance
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, false
	case err != nil || noteErr != nil:
		r.Why = "whether it is held cannot be told"
	case held && json.Unmarshal(raw, &inst) == nil && inst.Process.PID > 0:
		r.Why = fmt.Sprintf("process %d holds it", inst.Process.PID)
	case held:
		r.Why = "a process holds it"
	case len(raw) == 0:
		r.Live, r.Why = false, "its process was ended before it had written who it is"
	case json.Unmarshal(raw, &inst) != nil || inst.Lock != path:
		r.Why = "it is not known whose it is"
	case asked[inst.ID]:
		r.Why = fmt.Sprintf("process %d has ended; a run that goes on names it", inst.Process.PID)
	case process.InstanceLiveness(inst) == caisson.Dead:
		r.Live, r.Why = false, fmt.Sprintf("process %d has ended", inst.Process.PID)
	default:
		r.Why = fmt.Sprintf("whether process %d on %s lives cannot be told here", inst.Process.PID, inst.Process.Host)
	}
	return r, true
}

func (h *Host) askedInstances(ctx context.Context) (map[caisson.InstanceID]bool, error) {
	runs, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	left, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{States: unremoved()})
	if err != nil {
		return nil, err
	}
	asked, err := h.notedInstances()
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		asked[r.Lease.Instance] = true
	}
	for _, record := range left {
		if record.State != caisson.SandboxStopped { // what is stopped is held by nobody
			asked[record.Instance] = true
		}
	}
	return asked, nil
}
