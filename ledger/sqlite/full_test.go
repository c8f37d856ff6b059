package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/ledgertest"
)

// R19 (openai-agents PR4621), the ledger's part: the disk is full when a call
// that did its work is to be settled. The call stays started, so nobody runs it
// again, and settles when there is space.
func TestCase_R19(t *testing.T) {
	for action, code := range map[fault.Action]caisson.Code{fault.ENOSPC: caisson.CodeDiskFull, fault.EIO: caisson.CodeWriteFailed} {
		for _, point := range []string{"ledger.commit.before", "ledger.job.after"} {
			t.Run(string(action)+" "+point, func(t *testing.T) {
				l := openAt(t, filepath.Join(t.TempDir(), "ledger.db"))
				drive, err := lead(t.Context(), l, "r", caisson.Budget{})
				if err != nil {
					t.Fatal(err)
				}
				settleOnFull(t, l, drive, code, func() func() { return fault.Arm(point, action, 1) })
			})
		}
	}
}

// settleOnFull starts a call, fills the disk, settles it in vain, frees the
// disk and settles it.
func settleOnFull(t *testing.T, l caisson.Ledger, drive caisson.Drive, code caisson.Code, fill func() (free func())) {
	t.Helper()
	ctx := t.Context()
	call := ledgertest.NewCall("r", 1, 1, caisson.EffectUnsafe, "deploy")
	reserve := caisson.Amount{Calls: 1}
	if _, err := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: caisson.Verdict{Ruling: caisson.Allow}, Reserve: reserve}); err != nil {
		t.Fatal(err)
	}
	before, err := l.Run(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	settle := caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Result: caisson.Result{Text: strings.Repeat("output ", 20_000)}, Used: reserve}
	free := fill()
	if _, err := l.SettleCall(ctx, drive, settle); caisson.CodeOf(err) != code {
		t.Fatalf("got %q (%v), want %q", caisson.CodeOf(err), err, code)
	}
	after, err := l.Run(ctx, "r")
	if err != nil || after.Head != before.Head {
		t.Fatalf("something was written: %v", err)
	}
	record, err := l.Call(ctx, call.ID)
	if err != nil || record.State != caisson.CallStarted {
		t.Fatalf("the call is %s, %v", record.State, err)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
	free()
	if _, err := l.SettleCall(ctx, drive, settle); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk is R19 on a file system that is really full.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("caisson-test", dir, "tmpfs", 0, "size=4m"); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("needs the right to mount a small file system")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	l := openAt(t, filepath.Join(dir, "ledger.db"))
	drive, err := lead(t.Context(), l, "r", caisson.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	settleOnFull(t, l, drive, caisson.CodeDiskFull, func() func() {
		fillDisk(t, ballast)
		return func() {
			if err := syscall.Unlink(ballast); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func fillDisk(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	for {
		if _, err := syscall.Write(fd, make([]byte, 4096)); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
