package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// TestLedgersMeet writes two runs through two ledgers of one file, in any
// order, with leases that change hands and writes that fail half way: neither
// may go by what it knew before.
func TestLedgersMeet(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	ledgers := []caisson.Ledger{openAt(t, path), openAt(t, path)}
	runs := []caisson.RunID{"a", "b"}
	fences := map[caisson.RunID]caisson.Fence{}
	for _, run := range runs {
		drive, err := lead(ctx, ledgers[0], run, caisson.Budget{})
		if err != nil {
			t.Fatal(err)
		}
		fences[run] = drive.Fence
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			l, run := rapid.SampledFrom(ledgers).Draw(rt, "ledger"), rapid.SampledFrom(runs).Draw(rt, "run")
			meet(ctx, rt, l, run, fences)
		}
	})
	if err := ledgers[0].Check(ctx); err != nil {
		t.Fatal(err)
	}
}

// meet is one write, whose outcome is known.
func meet(ctx context.Context, rt *rapid.T, l caisson.Ledger, run caisson.RunID, fences map[caisson.RunID]caisson.Fence) {
	drive := caisson.Drive{Run: run, Fence: fences[run]}
	switch rapid.SampledFrom([]string{"append", "append", "lease", "late", "fail"}).Draw(rt, "write") {
	case "append":
		if err := l.Append(ctx, drive, caisson.EventNote, "x"); err != nil {
			rt.Fatal(err)
		}
	case "lease":
		lease, err := l.TakeLease(ctx, run, "i1", fences[run])
		if err != nil {
			rt.Fatal(err)
		}
		fences[run] = lease.Fence
	case "late":
		drive.Fence--
		if err := l.Append(ctx, drive, caisson.EventNote, "x"); caisson.CodeOf(err) != caisson.CodeLeaseLost {
			rt.Fatal("a write under an old lease: ", err)
		}
	case "fail":
		point := rapid.SampledFrom([]string{"ledger.job.after", "ledger.commit.before"}).Draw(rt, "point")
		disarm := fault.Arm(point, fault.EIO, 1)
		err := l.Append(ctx, drive, caisson.EventNote, "x")
		disarm()
		if err == nil {
			rt.Fatal("no error")
		}
	}
}
