package host

import (
	"context"
	"encoding/json"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
)

// RunView is a run with all that belongs to it.
type RunView struct {
	Run       caisson.Run          `json:"run"`
	Workspace *caisson.Workspace   `json:"workspace,omitempty"`
	Isolation caisson.Isolation    `json:"isolation"`
	Pool      caisson.Pool         `json:"pool"`
	Calls     []caisson.CallRecord `json:"calls"`
	Open      []caisson.Review     `json:"open_reviews"`
	Grants    []caisson.Grant      `json:"grants"`
	// Sandboxes are the boundaries that it had, one a life.
	Sandboxes []caisson.SandboxRecord `json:"sandboxes"`
	// Recordings are what the terminals of a session showed, one a life.
	Recordings []caisson.Spill `json:"recordings,omitempty"`
}

// ShowRun returns a run with all that belongs to it.
func (h *Host) ShowRun(ctx context.Context, id caisson.RunID) (RunView, error) {
	var v RunView
	var err error
	if v.Run, err = h.Ledger.Run(ctx, id); err != nil {
		return v, err
	}
	if v.Run.Spec.Workspace != "" {
		ws, err := h.Ledger.Workspace(ctx, v.Run.Spec.Workspace)
		if err != nil {
			return v, err
		}
		v.Workspace = &ws
	}
	if v.Pool, err = h.Ledger.Pool(ctx, id); err != nil {
		return v, err
	}
	if v.Calls, err = h.Ledger.Calls(ctx, id); err != nil {
		return v, err
	}
	if v.Open, err = h.Ledger.Reviews(ctx, caisson.ReviewFilter{Run: id, States: []caisson.ReviewState{caisson.ReviewOpen}}); err != nil {
		return v, err
	}
	if v.Grants, err = h.Ledger.Grants(ctx, id); err != nil {
		return v, err
	}
	if v.Sandboxes, err = h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: id}); err != nil {
		return v, err
	}
	v.Isolation = lastIsolation(v.Sandboxes)
	if v.Run.Spec.Session == caisson.SessionTerminal {
		v.Recordings, err = h.Recordings(ctx, id)
	}
	return v, err
}

// lastIsolation is the isolation of the last boundary, as it was recorded.
func lastIsolation(boxes []caisson.SandboxRecord) caisson.Isolation {
	var last caisson.SandboxRecord
	for _, box := range boxes {
		if !box.At.Before(last.At) && len(box.Isolation.Controls) > 0 {
			last = box
		}
	}
	return last.Isolation
}

// Setting is one setting in force.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"` // a file, or "default"
}

// Settings returns every setting in force where the person stands, the
// repository's at HEAD included.
func (h *Host) Settings(ctx context.Context) ([]Setting, error) {
	repo, err := h.repository(ctx, h.dir, "")
	if err != nil {
		return nil, err
	}
	c, err := h.configWith(repo)
	if err != nil {
		return nil, err
	}
	var list []Setting
	for _, row := range config.Reference() {
		value := c.Value(row.Key)
		switch {
		case row.Key == "state_dir":
			value = h.Paths.State
		case value == "":
			value = row.Default
		}
		list = append(list, Setting{Key: row.Key, Value: value, From: c.Origin(row.Key)})
	}
	return list, nil
}

// PolicyQuestion is a call to be judged without being made.
type PolicyQuestion struct {
	Tool   string
	Input  json.RawMessage
	Preset string
}
