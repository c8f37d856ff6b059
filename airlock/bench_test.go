package airlock_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// BenchmarkCall is an allowed call that does nothing, the whole way, beside bare
// SQLite commits of about the same text. The two alternate, as disks change
// their pace. Wanted: at most 4 commits a call.
func BenchmarkCall(b *testing.B) {
	ctx := b.Context()
	raw, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "raw.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	raw.SetMaxOpenConns(1)
	if _, err := raw.ExecContext(ctx, `CREATE TABLE t (a TEXT)`); err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("x", 1024)
	call := benchCall(b)
	var ours, theirs time.Duration
	n := 0
	for b.Loop() {
		for range 8 {
			begun := time.Now()
			if _, err := raw.ExecContext(ctx, `INSERT INTO t VALUES (?)`, text); err != nil {
				b.Fatal(err)
			}
			theirs += time.Since(begun)
			n++
			begun = time.Now()
			call(n)
			ours += time.Since(begun)
		}
	}
	b.ReportMetric(float64(ours)/float64(theirs), "×commit")
	b.ReportMetric(float64(ours.Microseconds())/float64(n), "µs/call")
}

// benchCall returns what makes the nth call of a run.
func benchCall(b *testing.B) func(n int) {
	ctx := b.Context()
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(b.TempDir(), "ledger.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	run := caisson.NewRunID()
	if _, err := l.CreateRun(ctx, run, caisson.RunSpec{Prompt: "bench", Root: run, Engine: "none", Preset: "sandboxed", OnUnknown: "ask"}); err != nil {
		b.Fatal(err)
	}
	drive, err := takeLease(ctx, l, run)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		b.Fatal(err)
	}
	door := enter(airlock.New(airlock.Options{Ledger: l, Judge: rules()}), drive)
	noop := &doer{spec: caisson.ToolSpec{Ref: caisson.ToolRef{Name: "noop"}}, effects: "/dev/null"}
	noop.open = func(context.Context, caisson.Call) (caisson.Result, error) { return caisson.Result{Text: "ok"}, nil }
	tools := map[string]caisson.Tool{"noop": noop}
	return func(n int) {
		s, err := door.Settle(ctx, []airlock.Request{requestOf(run, n, "noop", "x", tools)})
		if err != nil || s.Records[0].State != "done" {
			b.Fatalf("%v, %s", err, states(s))
		}
	}
}
