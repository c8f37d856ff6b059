package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/capture"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/localsocket"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/terminal"
)

// terminalsDir holds the sockets of sessions, named by run and instance: no name
// is used twice, so that one that is left can be removed without a doubt.
func terminalsDir(runtime string) string { return filepath.Join(runtime, "terminals") }

// socketOf is where a session's terminal is served, as the record of its holder
// tells.
func socketOf(run caisson.RunID, inst caisson.Instance) string {
	return filepath.Join(terminalsDir(process.DirOf(inst)), string(run)+"."+string(inst.ID))
}

// ServeOptions say how a session is held.
type ServeOptions struct {
	Size caisson.Winsize // to begin with
	// Expect waits, where the program ends at once, for the viewer that is about to come.
	Expect bool

	within *session // of a session in a served sandbox
	env    []string // KEY=value, over the sandbox's
	taken  func()
}

// expected bounds how long a program's last words wait for a viewer.
const expected = 10 * time.Second

// Serve drives a session and serves its terminal until its program has ended.
func (h *Host) Serve(ctx context.Context, id caisson.RunID, opts ServeOptions) (caisson.Run, error) {
	size := opts.Size
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return r, err
	}
	if r.Spec.Session != caisson.SessionTerminal || r.State.Terminal() {
		return r, caisson.Errorf(caisson.CodeStateInvalid, "run %s has no terminal that could be served", id)
	}
	me, err := h.register(ctx)
	if err != nil {
		return r, err
	}
	recording, err := h.newRecording(r, me, size)
	if err != nil {
		return r, err
	}
	holder := &holder{host: h, run: id, recording: recording}
	server := terminal.New(terminal.Options{
		Path: socketOf(id, h.instance.Instance), Size: size, Record: recording, Attached: holder.attached, Detached: holder.detached,
	})
	// The socket is there before the lease is: who sees the lease finds it.
	if err := server.Open(); err != nil {
		_, closeErr := recording.Close()
		return r, errors.Join(err, closeErr, os.Remove(recording.Path()))
	}
	serving, enough := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- server.Run(serving) }() // ended below
	r, err = h.Drive(ctx, id, DriveOptions{
		ParkAtOnce: true, PTY: true, within: opts.within, taken: opts.taken,
		Agent: &agent.Options{Stdin: server, Stdout: server, Size: size, Resize: server.Sizes(), Env: opts.env},
		Settled: func(ctx context.Context, drive caisson.Drive) error {
			server.Ended()
			if opts.Expect {
				select {
				case <-server.Seen():
				case <-time.After(expected):
				}
			}
			return holder.record(ctx, drive)
		},
	})
	enough()
	err = errors.Join(err, <-served, server.Close())
	if holder.recorded {
		return r, err
	}
	_, _ = recording.Close() // of nothing: no program began
	err = errors.Join(err, os.Remove(recording.Path()))
	_ = os.Remove(filepath.Dir(recording.Path())) // there may be other things in it
	return r, err
}

// newRecording makes the file that a session's terminal is recorded in. It has the
// bounds of long outputs, and its place is among those of its run; where there is
// no room for it, the session goes on and the recording says why it holds nothing.
func (h *Host) newRecording(r caisson.Run, me caisson.InstanceID, size caisson.Winsize) (*terminal.Recording, error) {
	dir := filepath.Join(h.Paths.Spill(), string(r.ID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "make the directory of the recording: %w", err)
	}
	words := make([]string, len(r.Spec.Argv))
	for i, arg := range r.Spec.Argv {
		words[i] = string(arg)
	}
	if isShell(r.Spec) {
		words = []string{"shell"}
	}
	why := ""
	room, err := capture.RoomIn(dir, 0, h.Config.Floors.Disk)
	if err != nil {
		why = "the terminal is not recorded: " + err.Error()
	}
	return terminal.NewRecording(terminal.RecordingOptions{
		Path: filepath.Join(dir, string(me)+".cast"), Cap: min(capture.DefaultSpillCap, room), Why: why, Size: size,
		Command: strings.Join(words, " "), Term: h.env("TERM"),
	})
}

// holder is the process that holds a session, as the record sees it.
type holder struct {
	host      *Host
	run       caisson.RunID
	recording *terminal.Recording
	recorded  bool
}

// attached records who came to look, and so may type; who cannot be recorded is
// not let in.
func (s *holder) attached(v terminal.Viewer) error {
	return s.append(caisson.EventViewerAttached, map[string]any{"viewer": v, "by": Person()})
}

// detached records who went. Where the record refuses, the lease is lost or the
// run has ended, and nobody is let in any more.
func (s *holder) detached(v terminal.Viewer, why string) {
	_ = s.append(caisson.EventViewerDetached, map[string]any{"viewer": v.N, "why": why})
}

func (s *holder) append(kind caisson.EventKind, body any) error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	r, err := s.host.Ledger.Run(ctx, s.run)
	if err != nil {
		return err
	}
	if r.Lease.Instance != s.host.instance.Instance.ID {
		return caisson.Errorf(caisson.CodeNotFound, "the session is not there yet, or not any more")
	}
	err = s.host.Ledger.Append(ctx, caisson.Drive{Run: s.run, Fence: r.Lease.Fence}, kind, body)
	if caisson.CodeOf(err) == caisson.CodeLeaseLost { // it ended between the two
		err = caisson.Errorf(caisson.CodeNotFound, "the session is not there any more")
	}
	return err
}

// record records what the terminal showed.
func (s *holder) record(ctx context.Context, drive caisson.Drive) error {
	spill, err := s.recording.Close()
	if spill.Total == 0 {
		return nil
	}
	s.recorded = true
	body := map[string]any{"recording": spill}
	if err != nil {
		body["why"] = err.Error() // not all of it was kept
	}
	return s.host.Ledger.Append(context.WithoutCancel(ctx), drive, caisson.EventRecorded, body)
}

// Recordings returns what was recorded of a session's terminals, one a life.
func (h *Host) Recordings(ctx context.Context, id caisson.RunID) ([]caisson.Spill, error) {
	events, err := h.Ledger.Events(ctx, id, 0, 0)
	if err != nil {
		return nil, err
	}
	var found []caisson.Spill
	for _, e := range events {
		var body struct {
			Recording caisson.Spill `json:"recording"`
		}
		if e.Kind == caisson.EventRecorded && json.Unmarshal(e.Body, &body) == nil {
			found = append(found, body.Recording)
		}
	}
	return found, nil
}

// tidySessions ends the sessions whose holder was killed, or whose box has ended:
// their program has ended with it, and there is nothing to go on with.
func (h *Host) tidySessions(ctx context.Context) error {
	var errs []error
	runs, err := h.open(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.Spec.Session == "" || isServed(r) {
			continue
		}
		r, driver, err := h.driver(ctx, r) // as it is since its holder has ended: that may have let go of it before
		if err != nil || driver.Liveness != caisson.Dead || r.State.Terminal() {
			continue
		}
		if r.Lease.Instance == "" {
			if left, err := h.endless(ctx, r); err != nil || !left {
				errs = append(errs, err)
				continue
			}
		}
		_, err = h.Ledger.AskCancel(ctx, r.ID, caisson.CauseUnknown, "caisson")
		if err == nil {
			_, err = h.Drive(ctx, r.ID, DriveOptions{})
		}
		if err != nil && caisson.CodeOf(err) != caisson.CodeLeaseHeld { // another command does it
			errs = append(errs, fmt.Errorf("end session %s: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}

// terminalRemains lists the sockets of sessions' terminals.
func (h *Host) terminalRemains(ctx context.Context) ([]remain, error) {
	return h.socketRemains(ctx, terminalsDir(h.Paths.Runtime), func(name string) (caisson.InstanceID, string) {
		run, inst, _ := strings.Cut(name, ".")
		return caisson.InstanceID(inst), "the process that held session " + run
	}, localsocket.Stream)
}

// socketRemains lists the sockets in a directory. holder tells from a name which
// process made it, and what that is called; one without an instance is not looked at.
func (h *Host) socketRemains(ctx context.Context, dir string, holder func(name string) (caisson.InstanceID, string), kind string) ([]remain, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []remain
	for _, entry := range entries {
		name, what := holder(entry.Name())
		if name == "" {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		r := remain{Remnant: caisson.Remnant{Kind: "socket", Name: path, Live: true}, remove: func(context.Context) error { return atomicfile.RemoveIfThere(path) }}
		inst, err := h.Ledger.Instance(ctx, name)
		alive := process.InstanceLiveness(inst)
		switch {
		case err != nil:
			r.Why = "who made it is not on record"
		case alive == caisson.Dead || alive == caisson.LivenessUnknown && !localsocket.Answers(ctx, kind, path):
			r.Live, r.Why = false, what+" has ended"
		default:
			r.Why = what + " lives"
		}
		found = append(found, r)
	}
	return found, err
}
