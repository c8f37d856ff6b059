package host

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// ServedView is what is to be told of a sandbox that is kept open.
type ServedView struct {
	Generation int64 `json:"generation"`
	// Sessions are those of people that have not ended in it.
	Sessions []caisson.RunID `json:"sessions"`
	// Broker is what its channel's status says, nil where it has none now.
	Broker *caisson.ControlStatusFile `json:"broker,omitempty"`
}

func (h *Host) viewServed(ctx context.Context, record caisson.SandboxRecord) (ServedView, error) {
	v := ServedView{Generation: record.Generation, Sessions: []caisson.RunID{}}
	if record.State != caisson.SandboxRunning {
		return v, nil
	}
	v.Broker = h.brokerStatus(record.ID)
	runs, err := h.Ledger.Runs(ctx, caisson.RunFilter{Parent: record.Run, States: unended()})
	for _, r := range runs {
		if r.Spec.Session != "" {
			v.Sessions = append(v.Sessions, r.ID)
		}
	}
	return v, err
}

// maxStatus bounds the file of a channel's status: it names reviews and no more.
const maxStatus = 64 << 10

// brokerStatus reads the status that a channel's broker has published. Only
// processes of this user can write there; what cannot be read is none.
func (h *Host) brokerStatus(id caisson.SandboxID) *caisson.ControlStatusFile {
	f, err := os.OpenFile(filepath.Join(h.channelDir(id), caisson.ControlStatus), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxStatus))
	var status caisson.ControlStatusFile
	if err != nil || json.Unmarshal(raw, &status) != nil {
		return nil
	}
	return &status
}

// LiveView is what only the process that has a sandbox open can tell of it.
type LiveView struct {
	Findings []Finding `json:"findings"`
}
