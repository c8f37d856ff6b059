package host

import (
	"errors"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// Who has read that a box was left by a process which ended does not end what
// another has opened in its place since.
func TestSweptSinceRead(t *testing.T) {
	s, run := serves(t)
	if _, err := s.opened(t.Context(), run.ID, servingRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.doStop(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	// As if the process that had it open had been killed.
	dead, err := process.Register(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.host.Ledger.PutInstance(t.Context(), dead.Instance), dead.Close()); err != nil {
		t.Fatal(err)
	}
	record := s.box(t, run.ID)
	record.Instance, record.State = dead.Instance.ID, caisson.SandboxRunning
	if err := s.host.Ledger.PutSandbox(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	left, err := s.host.recordRemains(t.Context())
	if err != nil || len(left) != 1 || left[0].Live {
		t.Fatalf("what is left is %+v, %v", left, err)
	}
	v, err := s.opened(t.Context(), run.ID, servingRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := left[0].remove(t.Context()); err != nil {
		t.Error(err)
	}
	if now := s.box(t, run.ID); now.State != caisson.SandboxRunning || now.Instance != s.host.instance.Instance.ID {
		t.Errorf("on record it is %s, of %s", now.State, now.Instance)
	}
	if box, back, err := v.borrow(); err != nil {
		t.Errorf("what was opened is not open: %v", err)
	} else {
		back()
		select {
		case <-box.box.Done():
			t.Error("the box that is open was ended")
		default:
		}
	}
}

// box is the record of a run's box.
func (s *Serving) box(t *testing.T, run caisson.RunID) caisson.SandboxRecord {
	t.Helper()
	boxes, err := s.host.Ledger.Sandboxes(t.Context(), caisson.SandboxFilter{Run: run})
	if err != nil || len(boxes) != 1 {
		t.Fatalf("the boxes are %+v, %v", boxes, err)
	}
	return boxes[0]
}
