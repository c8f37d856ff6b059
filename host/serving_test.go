package host

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
)

// serves makes a served run, and a process that serves and takes up nothing by itself.
func serves(t *testing.T) (*Serving, caisson.Run) {
	t.Helper()
	return servesOn(t, opened(t, "", nil))
}

func servesOn(t *testing.T, h *Host) (*Serving, caisson.Run) {
	t.Helper()
	run, err := h.NewRun(t.Context(), RunRequest{Served: true, NoWorkspace: true})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := NewServing(h, ServingOptions{})
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		s.end(&caisson.CauseError{Cause: caisson.CauseShutdown, Text: "the test ends"})
		s.driving.Wait()
		s.answered.Wait()
	})
	return s, run
}

func (s *Serving) is(t *testing.T, run caisson.RunID) caisson.Run {
	t.Helper()
	r, err := s.host.Ledger.Run(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Who has read that a sandbox is open does not open one that a person has
// stopped since; a person does.
func TestStoppedSinceRead(t *testing.T) {
	s, run := serves(t)
	if _, err := s.opened(t.Context(), run.ID, servingRequest{}); err != nil {
		t.Fatal(err)
	}
	read := s.is(t, run.ID)
	if read.State == caisson.RunPaused {
		t.Fatal("it is not open")
	}
	if _, err := s.doStop(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	v := s.takeWanted(read)
	if err := v.await(t.Context()); caisson.CodeOf(err) != caisson.CodeStateInvalid {
		t.Fatalf("it is opened again: %v", err)
	}
	<-v.done
	if now := s.is(t, run.ID); now.State != caisson.RunPaused || now.Lease.Fence != read.Lease.Fence {
		t.Errorf("it was %+v, and is %+v", read.Lease, now.Lease)
	}
	// At the same time as one that must not, a person may.
	s.takeWanted(read)
	if _, err := s.opened(t.Context(), run.ID, servingRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := s.takeWanted(read).await(t.Context()); err != nil {
		t.Errorf("what is open is not found: %v", err)
	}
}

// stuckEngine opens no box until it is told to end, and then none either.
type stuckEngine struct {
	caisson.Engine
	opening chan struct{}
}

func (e stuckEngine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	close(e.opening)
	<-ctx.Done()
	return e.Engine.Open(ctx, spec)
}

// A sandbox that is stopped while it is being opened is stopped, which is what was
// asked for; who waits for it to be open hears by whom.
func TestStoppedWhileOpened(t *testing.T) {
	s, run := serves(t)
	opening := make(chan struct{})
	for i, engine := range s.host.engines {
		if engine.Name() == run.Spec.Engine {
			s.host.engines[i] = stuckEngine{engine, opening}
			defer func() { s.host.engines[i] = engine }()
		}
	}
	waits := make(chan error)
	go func() {
		_, err := s.opened(t.Context(), run.ID, servingRequest{})
		waits <- err
	}()
	<-opening
	if _, err := s.doStop(t.Context(), run); err != nil {
		t.Errorf("it was not stopped: %v", err)
	}
	if err := <-waits; caisson.CodeOf(err) != caisson.CodeStateInvalid || !strings.Contains(err.Error(), "was stopped: a person stopped it") {
		t.Errorf("who waits hears %v", err)
	}
	now := s.is(t, run.ID)
	if now.State != caisson.RunPaused || now.Cause != caisson.CauseUser || now.Text != "a person stopped it" {
		t.Errorf("it is %s, %s: %s", now.State, now.Cause, now.Text)
	}
	boxes, err := s.host.Ledger.Sandboxes(t.Context(), caisson.SandboxFilter{Run: run.ID})
	if err != nil || len(boxes) != 1 || boxes[0].State != caisson.SandboxRemoved { // it never was
		t.Errorf("its boxes are %+v, %v", boxes, err)
	}
}

// Nobody comes between the end of a boundary and the one in its place, which has
// what its person asked for.
func TestTakenWhileReplaced(t *testing.T) {
	s, run := serves(t)
	first, err := s.opened(t.Context(), run.ID, servingRequest{Env: []string{"A=1"}})
	if err != nil {
		t.Fatal(err)
	}
	read := s.is(t, run.ID)
	found := map[*served]bool{}
	ctx, end := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			found[s.takeWanted(read)] = true
			runtime.Gosched()
		}
	})
	second, err := s.opened(t.Context(), run.ID, servingRequest{Env: []string{"A=2"}, Recreate: true})
	end()
	others.Wait()
	if err != nil || second == first || !second.fresh || len(second.env) != 1 || second.env[0] != "A=2" {
		t.Errorf("made anew: %v, %v", second.env, err)
	}
	delete(found, first)
	delete(found, second)
	if len(found) > 0 {
		t.Errorf("%d others were begun", len(found))
	}
}

// A session whose both outputs are a pipe that nobody reads ends at its deadline,
// and is in nobody's way when its sandbox is stopped.
func TestServedSharedOutput(t *testing.T) {
	s, run := serves(t)
	v, err := s.opened(t.Context(), run.ID, servingRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, deadline := range []time.Duration{2 * time.Second, 0} {
		guest, err := s.host.newGuest(t.Context(), ExecRequest{Argv: []string{"sh", "-c", "yes & yes >&2"}, Session: caisson.SessionStreams, Deadline: deadline}, s.is(t, run.ID))
		if err != nil {
			t.Fatal(err)
		}
		in, _ := pipe(t)
		r, w := pipe(t)
		streams := begun(t, in, dup(t, w), w)
		streams.out.d.plain, streams.err.d.plain = true, true
		box, leave, err := v.enter(guest.ID)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			defer leave()
			_, err := s.host.Drive(context.WithoutCancel(s.life), guest.ID, DriveOptions{
				within:  box,
				Agent:   &agent.Options{Stdin: streams.in, Stdout: streams.out, Stderr: streams.err},
				Settled: func(context.Context, caisson.Drive) error { streams.close(); return nil },
			})
			streams.close()
			ended <- err
		}()
		if deadline == 0 {
			eventually(t, "the pipe does not fill", func() bool { // both writers are held up then
				n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
				return err == nil && n > 15*atOnce
			})
			streams.used(t, streams.out.d, 1)
			streams.used(t, streams.err.d, 1)
			s.end(&caisson.CauseError{Cause: caisson.CauseShutdown, Text: "SIGTERM"})
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(never):
			t.Error("it does not end")
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-v.done:
	case <-time.After(never):
		t.Fatal("the sandbox does not end")
	}
	if v.err != nil {
		t.Error(v.err)
	}
}
