package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/sandbox"
)

// channelDir is where the files of a sandbox's control channel are.
func (h *Host) channelDir(id caisson.SandboxID) string {
	return filepath.Join(h.Paths.Sandboxes(), string(id))
}

// dropChannel removes the channel of a sandbox that is gone, as far as it can be
// in a moment. What is left is no fault of a run: it is listed, and every command
// tries it again.
func (h *Host) dropChannel(ctx context.Context, id caisson.SandboxID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), placeBound)
	defer cancel()
	_ = channel.Remove(ctx, h.channelDir(id)) // as above
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
			r.remove = func(ctx context.Context) error { return channel.Remove(ctx, path) }
		}
		found = append(found, r)
	}
	return found, nil
}

// programRemains lists the guest programs of earlier builds that no sandbox is lent
// any more.
func (h *Host) programRemains(context.Context) ([]remain, error) {
	old, err := sandbox.OldPrograms(h.Paths.Programs())
	var found []remain
	for _, path := range old {
		found = append(found, remain{
			Remnant: caisson.Remnant{Kind: "directory", Name: path, Why: "no sandbox uses this guest program, and there is a newer one"},
			remove:  func(context.Context) error { return sandbox.RemovePrograms(path) },
		})
	}
	return found, err
}
