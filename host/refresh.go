package host

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/login"
)

const (
	// loginsIn and loginsOut bound what the logins of agents may add to the
	// opening and to the closing of a sandbox.
	loginsIn  = 20 * time.Second
	loginsOut = 5 * time.Second
)

// Refreshed is what became of the logins of agents in one workspace.
type Refreshed struct {
	Workspace caisson.WorkspaceID `json:"workspace"`
	Branch    string              `json:"branch"`
	Files     []login.Moved       `json:"files"`
	// Error is why the workspace's home could not be looked at.
	Error *caisson.Error `json:"error,omitempty"`
}

// Trouble tells whether there is something for a person to look at.
func (r Refreshed) Trouble() bool {
	for _, f := range r.Files {
		if f.Problem {
			return true
		}
	}
	return r.Error != nil
}

// logins carries those that the user's settings name.
func (h *Host) logins(c config.Config) *login.Logins {
	opts := login.Options{Home: h.env("HOME"), Locks: filepath.Join(h.Paths.State, "logins"), Now: h.Ledger.Now}
	for _, l := range c.Logins {
		opts.Files = append(opts.Files, login.File{Path: l.File, Expires: l.Expires, Keys: l.Keys})
	}
	return login.New(opts)
}

// shareable returns an error where there are no logins to carry.
func (h *Host) shareable(c config.Config) error {
	if len(c.Logins) == 0 {
		return caisson.Errorf(caisson.CodeNotFound, "your config names no file of an agent's login").
			WithHint("Name them under agents.credentials in %s.", h.Paths.UserConfig())
	}
	if !filepath.IsAbs(h.env("HOME")) {
		return caisson.Errorf(caisson.CodeNotFound, "there is no home: HOME is not set to a directory")
	}
	return nil
}

// Refresh carries the logins of agents between the person's home and that of the
// workspace that ref means: of a sandbox, or a workspace by itself. Whether
// something works in it makes no difference: it is reached through a box of its own.
func (h *Host) Refresh(ctx context.Context, ref string) (Refreshed, error) {
	if err := h.shareable(h.Config); err != nil {
		return Refreshed{}, err
	}
	ws, err := h.homeOf(ctx, ref)
	if err != nil {
		return Refreshed{}, err
	}
	return h.refresh(ctx, ws, login.Both)
}

// RefreshAll does it for every workspace. A login that one of them had renewed
// reaches those before it, too. What cannot be reached does not keep the others
// from it.
func (h *Host) RefreshAll(ctx context.Context) ([]Refreshed, error) {
	if err := h.shareable(h.Config); err != nil {
		return nil, err
	}
	list, err := h.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{})
	if err != nil {
		return nil, err
	}
	all, renewed := make([]Refreshed, len(list)), 0
	for i, ws := range list {
		if all[i], err = h.refreshOne(ctx, ws, login.Both); err != nil {
			return nil, err
		}
		for _, f := range all[i].Files {
			if f.Moved == "out" {
				renewed = i
			}
		}
	}
	for i, ws := range list[:renewed] {
		again, err := h.refreshOne(ctx, ws, login.In)
		if err != nil {
			return nil, err
		}
		if again.Error != nil {
			all[i].Error = again.Error
		}
		for j, f := range again.Files {
			if f.Moved != "" && j < len(all[i].Files) {
				all[i].Files[j] = f
			}
		}
	}
	return all, nil
}

// refreshOne is refresh whose errors are of the one workspace alone, unless
// nothing can be done any more.
func (h *Host) refreshOne(ctx context.Context, ws caisson.Workspace, way login.Way) (Refreshed, error) {
	r, err := h.refresh(ctx, ws, way)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil {
		r.Error = caisson.AsError(err)
	}
	return r, nil
}

func (h *Host) refresh(ctx context.Context, ws caisson.Workspace, way login.Way) (r Refreshed, err error) {
	r = Refreshed{Workspace: ws.ID, Branch: ws.Branch, Files: []login.Moved{}}
	box, err := h.boxFor(ctx, ws)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	r.Files = h.logins(h.Config).Sync(ctx, box, way)
	for _, f := range r.Files {
		if f.Moved == "" {
			continue
		}
		err = errors.Join(err, h.Ledger.Note(context.WithoutCancel(ctx), ws.Run, map[string]any{
			"text": f.Says(), "workspace": ws.ID, "by": Person(),
		}))
	}
	return r, err
}

// homeOf returns the workspace whose home ref means. Without one it is that in
// which the person stands.
func (h *Host) homeOf(ctx context.Context, ref string) (caisson.Workspace, error) {
	if ref == "" {
		return h.workspaceOf(ctx, "")
	}
	list, err := h.ListBoxes(ctx, false)
	if err != nil {
		return caisson.Workspace{}, err
	}
	v, err := chooseBox(list, ref, false)
	if err != nil {
		ws, none := h.placeOf(ctx, ref)
		if none == nil || caisson.CodeOf(err) != caisson.CodeNotFound {
			return ws, none
		}
		if v, err = h.FindBox(ctx, ref); err != nil {
			return ws, err
		}
	}
	if v.Workspace == "" {
		return caisson.Workspace{}, caisson.Errorf(caisson.CodeUnsupported, "sandbox %s has no workspace: its home is its own, and ends with it", v.ID)
	}
	ws, err := h.Ledger.Workspace(ctx, v.Workspace)
	if err == nil && ws.Removed {
		err = caisson.Errorf(caisson.CodeNotFound, "workspace %s was removed", ws.Name)
	}
	return ws, err
}

// shareLogins carries logins in before the agent begins, and out when it has
// ended. What keeps one from it is noted, and is no reason for the run not to go
// on: the agent, or the person, can see to it.
func (s *session) shareLogins(ctx context.Context, way login.Way, bound time.Duration) error {
	if s.ws == nil || s.host.shareable(s.config) != nil {
		return nil
	}
	select {
	case <-s.box.Done():
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for _, f := range s.host.logins(s.config).Sync(ctx, s.box, way) {
		if f.Moved == "" && !f.Problem {
			continue
		}
		if err := s.note(ctx, f.Says()); err != nil {
			return err
		}
	}
	return nil
}
