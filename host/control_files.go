package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson"
)

// channelDir is where the files of a sandbox's control channel are.
func (h *Host) channelDir(id caisson.SandboxID) string {
	return filepath.Join(h.Paths.Sandboxes(), string(id))
}

// dropChannel removes the channel of a sandbox that is gone.
func (h *Host) dropChannel(id caisson.SandboxID) error {
	if err := os.RemoveAll(h.channelDir(id)); err != nil {
		return caisson.Errorf(caisson.CodeWriteFailed, "remove the channel of sandbox %s: %w", id, err)
	}
	return nil
}

// channelRemains lists the channels of sandboxes that are gone. One is made when
// its sandbox is on record.
func (h *Host) channelRemains(ctx context.Context) ([]remain, error) {
	entries, err := os.ReadDir(h.Paths.Sandboxes())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{States: unremoved()})
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, record := range there {
		known[string(record.ID)] = true
	}
	var found []remain
	for _, entry := range entries {
		path := filepath.Join(h.Paths.Sandboxes(), entry.Name())
		r := remain{Remnant: caisson.Remnant{Kind: "directory", Name: path, Sandbox: caisson.SandboxID(entry.Name()), Live: true, Why: "its sandbox is on record"}}
		if !known[entry.Name()] {
			r.Live, r.Why = false, "its sandbox is gone"
			r.remove = func(context.Context) error { return os.RemoveAll(path) }
		}
		found = append(found, r)
	}
	return found, nil
}
