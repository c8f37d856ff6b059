package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/capture"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/terminal"
)

// ending is a ledger in which a run is let go of before an event is added to it.
type ending struct {
	caisson.Ledger
	drive caisson.Drive
}

func (l ending) Append(ctx context.Context, drive caisson.Drive, kind caisson.EventKind, body any) error {
	if err := l.ReleaseLease(ctx, l.drive); err != nil {
		return err
	}
	return l.Ledger.Append(ctx, drive, kind, body)
}

// Who comes in the moment in which a session ends is told that it is not there,
// and so looks how it ended; and nothing of leases.
func TestAttachedAsItEnds(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	r, err := h.Ledger.CreateRun(t.Context(), caisson.NewRunID(), caisson.RunSpec{Session: caisson.SessionTerminal, Argv: []caisson.Bytes{"sh"}, Preset: "sandboxed"})
	if err != nil {
		t.Fatal(err)
	}
	drive, err := h.take(t.Context(), r, false)
	if err != nil {
		t.Fatal(err)
	}
	s := &holder{host: h, run: r.ID}
	if err := s.attached(terminal.Viewer{N: 1}); err != nil {
		t.Fatal(err)
	}
	h.Ledger = ending{h.Ledger, drive}
	if err := s.attached(terminal.Viewer{N: 2}); caisson.CodeOf(err) != caisson.CodeNotFound {
		t.Errorf("it is told %v", err)
	}
}

// listed is a ledger in which something is done right after the runs were listed.
type listed struct {
	caisson.Ledger
	then func()
}

func (l *listed) Runs(ctx context.Context, f caisson.RunFilter) ([]caisson.Run, error) {
	runs, err := l.Ledger.Runs(ctx, f)
	if then := l.then; then != nil {
		l.then = nil
		then()
	}
	return runs, err
}

// A session whose holder lets go of it, as it waits for a person, and then ends in
// order is not taken for one whose holder was killed: not either by who has read
// the record before that.
func TestSessionLetGoOf(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	r, drive, first := heldSession(t, h)
	killed, _, second := heldSession(t, h)
	real := h.Ledger
	h.Ledger = &listed{real, func() {
		if _, err := real.MoveRun(t.Context(), drive, caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting}); err != nil {
			t.Error(err)
		}
		if err := errors.Join(real.ReleaseLease(t.Context(), drive), first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	}}
	if err := h.tidySessions(t.Context()); err != nil {
		t.Error(err)
	}
	if now, err := real.Run(t.Context(), r.ID); err != nil || now.State != caisson.RunWaiting || now.CancelAsked != "" {
		t.Errorf("it is %s, asked to end for %q, %v", now.State, now.CancelAsked, err)
	}
	if now, err := real.Run(t.Context(), killed.ID); err != nil || now.State != caisson.RunCancelled {
		t.Errorf("one whose holder was killed is %s, %v", now.State, err)
	}
	// Who was at it and looks only now is told the same as who looked before that.
	if _, err := h.afterLoss(t.Context(), killed); caisson.CodeOf(err) != caisson.CodeOutcomeUnknown {
		t.Errorf("of one whose holder was killed is told %v", err)
	}
}

// A process takes a run and is killed while another looks whose locks are left: the
// lock stays, as nobody could tell without it that the run is not driven any more.
func TestKilledWhileLocksAreLookedAt(t *testing.T) {
	t.Parallel()
	h := opened(t, "", nil)
	killed, err := process.Register(h.Paths.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(killed.Instance.Lock) != h.Paths.Instances() {
		t.Fatalf("its lock is in %s", killed.Instance.Lock)
	}
	var r caisson.Run
	real := h.Ledger
	h.Ledger = &listed{real, func() {
		r, _ = drivenBy(t, &Host{Ledger: real}, killed.Instance, caisson.RunSpec{Argv: []caisson.Bytes{"true"}, Preset: "sandboxed"})
		if err := killed.Close(); err != nil {
			t.Error(err)
		}
	}}
	if err := removeDead(t.Context(), h.instanceRemains); err != nil {
		t.Error(err)
	}
	if _, driver, err := h.driver(t.Context(), r); err != nil || driver.Liveness != caisson.Dead {
		t.Errorf("its driver is %s, %v", driver.Liveness, err)
	}
}

// heldSession makes a session and the process that holds it.
func heldSession(t *testing.T, h *Host) (caisson.Run, caisson.Drive, *process.Registration) {
	t.Helper()
	holder, err := process.Register(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, drive := drivenBy(t, h, holder.Instance, caisson.RunSpec{Session: caisson.SessionTerminal, Argv: []caisson.Bytes{"sh"}, Preset: "sandboxed"})
	return r, drive, holder
}

// What a terminal shows takes its place among the long outputs of its run, and
// leaves of the disk what they leave; a session goes on without it.
func TestRecordingHasBounds(t *testing.T) {
	t.Parallel()
	shown := strings.Repeat("x", 64<<10)
	for name, c := range map[string]struct {
		config string
		others int64
		keeps  int64 // at most
		why    string
	}{
		"all of it":      {"floor: {disk: 0}", 0, 1 << 20, ""},
		"the disk":       {"floor: {disk: 1000TiB}", 0, 1024, "the terminal is not recorded: .* must stay free"},
		"no room":        {"floor: {disk: 0}", capture.DefaultSpillRoom, 1024, "the terminal is not recorded: the other spills have"},
		"not room of it": {"floor: {disk: 0}", capture.DefaultSpillRoom - 32<<10, 32 << 10, "the recording has reached its cap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := opened(t, c.config, nil)
			r := caisson.Run{ID: caisson.NewRunID(), Spec: caisson.RunSpec{Argv: []caisson.Bytes{"sh"}}}
			dir := filepath.Join(h.Paths.Spill(), string(r.ID))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(dir, "other")
			write(t, other, "")
			if err := os.Truncate(other, c.others); err != nil { // a hole takes nothing of the disk
				t.Fatal(err)
			}
			recording, err := h.newRecording(r, "i1", caisson.Winsize{Rows: 24, Cols: 80})
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				recording.Output([]byte(shown[:16<<10]))
			}
			spill, err := recording.Close()
			if spill.Total != int64(len(shown)) || spill.Bytes > c.keeps || c.why == "" && spill.Bytes < spill.Total {
				t.Errorf("%+v", spill)
			}
			raw, readErr := os.ReadFile(spill.Path)
			before, after, _ := strings.Cut(c.why, ".*")
			for _, text := range []string{before, after} {
				if readErr != nil || (err != nil) != (c.why != "") || err != nil && !strings.Contains(err.Error(), text) || !strings.Contains(string(raw), text) {
					t.Errorf("%v, %v; it does not say %q: %.400s", err, readErr, text, raw)
				}
			}
		})
	}
}
