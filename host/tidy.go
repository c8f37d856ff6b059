package host

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
	"github.com/caisson-run/caisson/process"
)

// tidier is an engine that can tell what is left of boxes that no record names.
type tidier interface {
	Tidy(ctx context.Context) error
}

// tidyBound bounds a look at what was left, which every command begins with.
const tidyBound = 10 * time.Second

// tidy removes what killed processes of ours left: boxes, workspaces that were
// being made, their locks. It returns what could not be removed; that is no
// reason for a command not to do its work, and the next one tries again.
func (h *Host) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tidyBound)
	defer cancel()
	errs := []error{h.tidyBoxes(ctx), h.tidySessions(ctx), h.workspaces.Tidy(ctx)}
	for _, engine := range h.engines {
		if e, can := engine.(tidier); can {
			errs = append(errs, e.Tidy(ctx))
		}
	}
	return errors.Join(append(errs, h.tidyInstances(ctx))...)
}

// unremoved are the sandboxes of which something may be left.
func unremoved() []caisson.SandboxState {
	return []caisson.SandboxState{caisson.SandboxCreating, caisson.SandboxRunning, caisson.SandboxStopped, caisson.SandboxLost}
}

// tidyBoxes ends the recorded boxes of processes that have ended.
func (h *Host) tidyBoxes(ctx context.Context) error {
	left, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{States: unremoved()})
	if err != nil {
		return err
	}
	var errs []error
	for _, record := range left {
		holder, err := h.Ledger.Instance(ctx, record.Instance)
		if err != nil || process.InstanceLiveness(holder) != caisson.Dead {
			continue // not known to have ended
		}
		errs = append(errs, h.sweepOne(ctx, record))
	}
	return errors.Join(errs...)
}

// tidyInstances removes the locks of processes that have ended, but for those
// that somebody may still ask about: of runs that go on and of boxes that are left.
func (h *Host) tidyInstances(ctx context.Context) error {
	dir := filepath.Join(h.Paths.Runtime, "instances")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	asked, err := h.askedInstances(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		raw, err := lockfile.Note(path)
		var inst caisson.Instance
		if err != nil || json.Unmarshal(raw, &inst) != nil || inst.Lock != path || asked[inst.ID] {
			continue // another's, or being written
		}
		if process.InstanceLiveness(inst) == caisson.Dead {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
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
	asked := map[caisson.InstanceID]bool{}
	for _, r := range runs {
		asked[r.Lease.Instance] = true
	}
	for _, record := range left {
		asked[record.Instance] = true
	}
	return asked, nil
}
