package airlock_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// BenchmarkCommit is one commit of one row to SQLite as the ledger uses it: the
// measure for BenchmarkCall.
func BenchmarkCommit(b *testing.B) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "raw.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(), `CREATE TABLE t (a TEXT)`); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := db.ExecContext(b.Context(), `INSERT INTO t VALUES ('some text that is as long as that of an event is')`); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCall is an allowed call that does nothing, the whole way.
func BenchmarkCall(b *testing.B) {
	ctx := b.Context()
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(b.TempDir(), "ledger.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
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
	n := 0
	for b.Loop() {
		n++
		s, err := door.Settle(ctx, []airlock.Request{requestOf(run, n, "noop", "x", map[string]caisson.Tool{"noop": noop})})
		if err != nil || s.Records[0].State != "done" {
			b.Fatalf("%v, %s", err, states(s))
		}
	}
}
