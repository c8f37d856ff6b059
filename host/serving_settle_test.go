package host

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// full is a ledger on a disk that is full, while that is so.
type full struct {
	caisson.Ledger
	is *atomic.Bool
}

func (l full) err() error {
	if l.is.Load() {
		return caisson.Errorf(caisson.CodeDiskFull, "write ledger: %w", unix.ENOSPC)
	}
	return nil
}

func (l full) MoveRun(ctx context.Context, drive caisson.Drive, move caisson.RunMove) (caisson.Run, error) {
	if err := l.err(); err != nil {
		return caisson.Run{}, err
	}
	return l.Ledger.MoveRun(ctx, drive, move)
}

func (l full) SettleCall(ctx context.Context, drive caisson.Drive, settle caisson.CallSettle) (caisson.CallRecord, error) {
	if err := l.err(); err != nil {
		return caisson.CallRecord{}, err
	}
	return l.Ledger.SettleCall(ctx, drive, settle)
}

func (l full) TakeLease(ctx context.Context, run caisson.RunID, me caisson.InstanceID, fence caisson.Fence) (caisson.Lease, error) {
	if err := l.err(); err != nil {
		return caisson.Lease{}, err
	}
	return l.Ledger.TakeLease(ctx, run, me, fence)
}

func (l full) ReleaseLease(ctx context.Context, drive caisson.Drive) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.Ledger.ReleaseLease(ctx, drive)
}

// A session that ended while the disk was full is ended on record when there is room
// again, though the process that drove it lives.
func TestSessionEndedOnFullDisk(t *testing.T) {
	h := opened(t, "", nil)
	l := full{h.Ledger, new(atomic.Bool)}
	h.Ledger = l
	s, run := servesOn(t, h)
	if _, err := s.opened(t.Context(), run.ID, servingRequest{}); err != nil {
		t.Fatal(err)
	}
	guest, err := h.newGuest(t.Context(), ExecRequest{Argv: []string{"cat"}, Session: caisson.SessionStreams}, s.is(t, run.ID))
	if err != nil {
		t.Fatal(err)
	}
	in, more := pipe(t)
	out, shown := pipe(t)
	_, ours := bothEnds(t)
	ended := make(chan error, 1)
	go func() {
		_, err := s.doSession(t.Context(), &talk{conn: ours}, guest, servingRequest{Op: opExec, Run: guest.ID}, []*os.File{in, shown, shown})
		ended <- err
	}()
	if _, err := more.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it is at work
		t.Fatal(err)
	}
	l.is.Store(true)
	more.Close()
	if err := <-ended; caisson.CodeOf(err) != caisson.CodeDiskFull {
		t.Fatalf("%v, want disk-full", err)
	}
	if now := s.is(t, guest.ID); now.State != caisson.RunRunning || now.Lease.Instance == "" {
		t.Fatalf("it is %s, held by %q", now.State, now.Lease.Instance)
	}
	l.is.Store(false)
	eventually(t, "it is not ended", func() bool {
		now := s.is(t, guest.ID)
		return Lost(now) && now.Lease.Instance == ""
	})
}
