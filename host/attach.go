package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/terminal"
)

// FindSession returns the session with a terminal that ref means: its run's id or
// the beginning of it, or the workspace that it works in. Without a ref it is the
// only one that goes on.
func (h *Host) FindSession(ctx context.Context, ref string) (caisson.Run, error) {
	runs, err := h.open(ctx)
	if err != nil {
		return caisson.Run{}, err
	}
	var ws caisson.Workspace
	if ref != "" {
		// What a workspace is called exactly comes before the beginning of a run's id.
		var none error
		ws, none = h.placeOf(ctx, ref)
		if none != nil && isNumber(ref) {
			v, err := h.numbered(ctx, ref)
			if err != nil {
				return caisson.Run{}, err
			}
			if v.Session != caisson.SessionTerminal {
				return caisson.Run{}, caisson.Errorf(caisson.CodeNotFound, "sandbox %s has no terminal to attach to", v.ID).WithHint("`caisson sandbox shell %s` opens one.", v.ID)
			}
			return h.Ledger.Run(ctx, v.Run)
		}
		called := none == nil && (ws.Branch == ref || ws.Name == ref || string(ws.ID) == ref)
		r, err := h.FindRun(ctx, ref)
		if err == nil && r.Spec.Session != "" && (!called || string(r.ID) == ref) || caisson.CodeOf(err) == caisson.CodeAmbiguous && !called {
			return r, err
		}
		if caisson.CodeOf(none) == caisson.CodeAmbiguous {
			return caisson.Run{}, none
		}
		if none != nil {
			return caisson.Run{}, caisson.Errorf(caisson.CodeNotFound, "there is no session %q, and no workspace either", ref).
				WithHint("`caisson sandbox ls` lists what is open.")
		}
	}
	var found []caisson.Run
	var names []string
	for _, r := range runs {
		if r.Spec.Session == caisson.SessionTerminal && (ref == "" || r.Spec.Workspace == ws.ID) {
			found, names = append(found, r), append(names, string(r.ID))
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return caisson.Run{}, caisson.Errorf(caisson.CodeAmbiguous, "%d sessions are open: %s", len(found), strings.Join(names, ", ")).
			WithHint("Name one.").With("candidates", names)
	case ref == "":
		return caisson.Run{}, caisson.Errorf(caisson.CodeNotFound, "no session is open").WithHint("`caisson sandbox shell` opens one.")
	}
	return caisson.Run{}, caisson.Errorf(caisson.CodeNotFound, "no session is open in the workspace on branch %s", ws.Branch).
		WithHint("`caisson sandbox shell %s` opens one.", ws.Branch)
}

// open returns the runs that have not ended.
func (h *Host) open(ctx context.Context) ([]caisson.Run, error) {
	return h.Ledger.Runs(ctx, caisson.RunFilter{States: unended()})
}

// unended are the states of runs that have not ended.
func unended() (states []caisson.RunState) {
	for _, s := range caisson.RunStates().States() {
		if state := caisson.RunState(s); !state.Terminal() {
			states = append(states, state)
		}
	}
	return states
}

// Hold starts a process that holds a session, unless one does.
func (h *Host) Hold(ctx context.Context, id caisson.RunID, opts ServeOptions) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil || r.State.Terminal() {
		return err
	}
	r, driven, err := h.Driven(ctx, r)
	if err != nil || driven || r.State.Terminal() {
		return err
	}
	if _, guest, err := h.isGuest(ctx, r); err != nil || guest {
		if err == nil {
			err = h.holdServed(ctx, r, opts)
		}
		return err
	}
	args := []string{"sandbox", "serve", "--size", fmt.Sprintf("%dx%d", opts.Size.Cols, opts.Size.Rows)}
	if opts.Expect {
		args = append(args, "--expect")
	}
	return h.detach(ctx, r, append(args, "--", string(id))...)
}

// attachBound is how long a holder that lives may take to let a viewer in.
const attachBound = 15 * time.Second

// Attach looks at a session's terminal. When it returns the run is as it was
// then; a session that has ended, or that waits for a review, is no error.
func (h *Host) Attach(ctx context.Context, id caisson.RunID, view terminal.View) (terminal.Went, caisson.Run, error) {
	for began := time.Now(); ; {
		r, err := h.Ledger.Run(ctx, id)
		if err != nil || r.State.Terminal() || r.Lease.Instance == "" {
			return terminal.WentEnded, r, err
		}
		holder, err := h.Ledger.Instance(ctx, r.Lease.Instance)
		if err != nil {
			return terminal.WentLost, r, err
		}
		went, err := terminal.Attach(ctx, socketOf(id, holder), view)
		alive := process.InstanceLiveness(holder)
		switch {
		case err == nil && went == terminal.WentEnded:
			r, err = h.Await(ctx, id) // its work is brought home
			return went, r, err
		case err == nil:
			return went, r, nil
		case caisson.CodeOf(err) == caisson.CodeNotFound && alive == caisson.Dead:
			// One that went in order has let go of the run before it ended.
			now, err := h.Ledger.Run(ctx, id)
			if err != nil || !now.State.Terminal() && now.Lease.Instance == holder.ID {
				return terminal.WentLost, now, err
			}
			continue
		case caisson.CodeOf(err) != caisson.CodeNotFound:
			return went, r, err
		case alive == caisson.LivenessUnknown:
			return went, r, driverUnknown(holder, id)
		case time.Since(began) > attachBound:
			return went, r, notAnswering(holder.Process, id)
		}
		// Its holder is about to go, or does not answer.
		waiting, done := context.WithTimeout(ctx, time.Second)
		_, err = h.Ledger.Wait(waiting, id, r.Events)
		done()
		if err != nil && (ctx.Err() != nil || waiting.Err() == nil) {
			return terminal.WentLost, r, err
		}
	}
}
