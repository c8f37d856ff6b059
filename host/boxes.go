package host

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// BoxView is a sandbox with what it is for.
type BoxView struct {
	caisson.SandboxRecord
	Branch     string            `json:"branch,omitempty"` // of its workspace
	Tree       string            `json:"tree,omitempty"`   // path of its workspace
	Session    caisson.Session   `json:"session,omitempty"`
	Want       string            `json:"want,omitempty"` // what its run was asked to do
	RunState   caisson.RunState  `json:"run_state,omitempty"`
	Liveness   caisson.Liveness  `json:"liveness"`         // of the process that holds it
	Holder     *caisson.Instance `json:"holder,omitempty"` // while it is there
	Recordings []caisson.Spill   `json:"recordings,omitempty"`
	Served     *ServedView       `json:"served,omitempty"` // of one that is kept open
	Hold       *Hold             `json:"hold,omitempty"`   // of its workspace

	name string // of its workspace
}

// ListBoxes lists the sandboxes of which something may be there, newest first;
// with all also those that are gone.
func (h *Host) ListBoxes(ctx context.Context, all bool) ([]BoxView, error) {
	filter := caisson.SandboxFilter{}
	if !all {
		filter.States = unremoved()
	}
	records, err := h.Ledger.Sandboxes(ctx, filter)
	if err != nil {
		return nil, err
	}
	slices.Reverse(records) // the last made first: a stop and a start move no number
	views := make([]BoxView, len(records))
	for i, record := range records {
		if views[i], err = h.viewBox(ctx, record); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func (h *Host) viewBox(ctx context.Context, record caisson.SandboxRecord) (BoxView, error) {
	v := BoxView{SandboxRecord: record, Liveness: caisson.LivenessUnknown}
	if record.Run != "" {
		r, err := h.Ledger.Run(ctx, record.Run)
		if err != nil {
			return v, err
		}
		v.Session, v.RunState = r.Spec.Session, r.State
		v.Want = WantOf(r.Spec)
	}
	if record.Workspace != "" {
		ws, err := h.Ledger.Workspace(ctx, record.Workspace)
		if err != nil {
			return v, err
		}
		v.Branch, v.Tree, v.name = ws.Branch, ws.Path, ws.Name
		if hold, held, err := h.HoldOn(ws.ID); err == nil && held {
			v.Hold = &hold
		}
	}
	if v.Session == caisson.SessionServed {
		served, err := h.viewServed(ctx, record)
		if err != nil {
			return v, err
		}
		v.Served = &served
	}
	if record.State == caisson.SandboxRemoved || v.Served != nil && record.State == caisson.SandboxStopped {
		v.Liveness = caisson.Dead
		return v, nil
	}
	holder, err := h.Ledger.Instance(ctx, record.Instance)
	if err != nil {
		return v, err
	}
	v.Holder, v.Liveness = &holder, process.InstanceLiveness(holder)
	return v, nil
}

// WantOf is what a run was asked to do, in a line for people. Its text may be anything.
func WantOf(spec caisson.RunSpec) string {
	switch {
	case isShell(spec):
		return "shell"
	case spec.Session == caisson.SessionServed:
		return "(kept open)"
	case len(spec.Argv) == 0:
		return spec.Prompt
	}
	words := []string{"--"}
	if spec.Session != "" {
		words[0] = "$"
	}
	for _, arg := range spec.Argv {
		words = append(words, string(arg))
	}
	return strings.Join(words, " ")
}

// FindBox returns the sandbox that ref means: its id, its run's, or its
// workspace's branch or name; else its number in the listing; else the beginning
// of an id. What lives comes before what does not, and that before what is gone.
func (h *Host) FindBox(ctx context.Context, ref string) (BoxView, error) {
	var several error // workspaces of that name, where no sandbox has it
	for _, all := range []bool{false, true} {
		list, err := h.ListBoxes(ctx, all)
		if err != nil {
			return BoxView{}, err
		}
		v, err := chooseBox(list, ref, all)
		if caisson.CodeOf(err) == caisson.CodeAmbiguous {
			if ws, none := h.placeOf(ctx, ref); none == nil && (ws.Branch == ref || ws.Name == ref) {
				here := slices.DeleteFunc(slices.Clone(list), func(v BoxView) bool { return v.Workspace != ws.ID })
				if one, hereErr := chooseBox(here, ref, all); hereErr == nil {
					v, err = one, nil // that of the repository in which the person stands
				}
			}
		}
		if caisson.CodeOf(err) == caisson.CodeNotFound && ref != "" {
			// A run names the workspace that it made, too, and in that another may work now.
			ws, none := h.placeOf(ctx, ref)
			switch {
			case none == nil: // its branch may be another's name in another repository
				around := slices.DeleteFunc(list, func(v BoxView) bool { return v.Workspace != ws.ID })
				v, err = chooseBox(around, ws.Branch, all)
			case caisson.CodeOf(none) == caisson.CodeAmbiguous:
				several = none
			}
		}
		if caisson.CodeOf(err) == caisson.CodeNotFound {
			continue
		}
		if err == nil && v.Session == caisson.SessionTerminal {
			v.Recordings, err = h.Recordings(ctx, v.Run)
		}
		return v, err
	}
	if several != nil {
		return BoxView{}, several
	}
	return BoxView{}, caisson.Errorf(caisson.CodeNotFound, "no sandbox %q", ref).WithHint("`caisson sandbox ls --all` shows them.")
}

// chooseBox finds the one sandbox that ref means in a list, the newest first. A
// name that several have means the one that lives, and where none does the newest.
func chooseBox(list []BoxView, ref string, gone bool) (BoxView, error) {
	for _, way := range []struct {
		name bool // several can have it, one after the other
		fits func(int, BoxView) bool
	}{
		{true, func(_ int, v BoxView) bool {
			return string(v.ID) == ref || string(v.Run) == ref || v.Branch == ref || v.name == ref
		}},
		{false, func(i int, _ BoxView) bool { return !gone && strconv.Itoa(i+1) == ref }},
		{false, func(_ int, v BoxView) bool {
			return strings.HasPrefix(string(v.ID), ref) || strings.HasPrefix(string(v.Run), ref)
		}},
	} {
		var found []BoxView
		for i, v := range list {
			if ref != "" && way.fits(i, v) {
				found = append(found, v)
			}
		}
		if len(found) > 1 && (way.name || oneRun(found)) {
			found = foremost(found)
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			var names []string
			for _, v := range found {
				names = append(names, string(v.ID))
			}
			return BoxView{}, caisson.Errorf(caisson.CodeAmbiguous, "%q fits %d sandboxes: %s", ref, len(found), strings.Join(names, ", ")).With("candidates", names)
		}
	}
	return BoxView{}, caisson.Errorf(caisson.CodeNotFound, "no sandbox %q", ref)
}

// foremost are those of a list that live; where none does, the first.
func foremost(list []BoxView) []BoxView {
	living := slices.DeleteFunc(slices.Clone(list), func(v BoxView) bool { return !v.lives() })
	if len(living) == 0 {
		return list[:1]
	}
	return living
}

// lives tells whether the sandbox is there, or is to be opened again. One of which
// that cannot be told may.
func (v BoxView) lives() bool {
	if v.State == caisson.SandboxRemoved || v.RunState.Terminal() {
		return false
	}
	return v.Served != nil || v.Liveness != caisson.Dead
}

func oneRun(list []BoxView) bool {
	return !slices.ContainsFunc(list, func(v BoxView) bool { return v.Run != list[0].Run })
}

// StopBox ends a sandbox: a session with all that runs in it, or what a process
// that has ended left. That of a run of an agent is the run's to end.
func (h *Host) StopBox(ctx context.Context, v BoxView) (BoxView, error) {
	if v.State == caisson.SandboxRemoved {
		return v, caisson.Errorf(caisson.CodeStateInvalid, "sandbox %s is gone", v.ID).WithHint("`caisson sandbox ls` lists those that are there.")
	}
	var err error
	switch {
	case v.Session == caisson.SessionServed:
		_, err = h.StopServed(ctx, v.Run)
	case v.Session != "":
		_, err = h.Cancel(ctx, v.Run)
	case v.Liveness == caisson.Dead:
		err = h.sweepOne(ctx, v.SandboxRecord)
	default:
		err = caisson.Errorf(caisson.CodeLeaseHeld, "run %s works in it", v.Run).WithHint("End the run: `caisson runs cancel %s`.", v.Run)
	}
	if err != nil {
		return v, err
	}
	records, err := h.Ledger.Sandboxes(ctx, caisson.SandboxFilter{Run: v.Run})
	for _, record := range records {
		if record.ID == v.ID {
			again, viewErr := h.viewBox(ctx, record)
			return again, errors.Join(err, viewErr)
		}
	}
	return v, err
}
