package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// words is content that resembles an answer of n bytes.
func words(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%x ", r.Uint32())
	}
	return b.String()[:n]
}

// TestStoragePerStep wants a step (answer, call, result) to take at most 1.5
// times its content, which is stored once though events and rows refer to it.
func TestStoragePerStep(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	drive, err := lead(ctx, l, "r", caisson.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	content := 0
	amount := caisson.Amount{Tokens: 1000, Calls: 1}
	for n := 1; n <= 100; n++ {
		text, input, output := words(r, 3000), words(r, 2000), words(r, 9000)
		content += len(text) + len(input) + len(output)
		if _, err := l.AskTurn(ctx, drive, caisson.Turn{Reserve: amount}); err != nil {
			t.Fatal(err)
		}
		answer := caisson.ModelAnswer{Message: caisson.Message{Role: caisson.RoleAssistant, Parts: []caisson.Part{{Kind: caisson.PartText, Text: text}}}}
		if _, err := l.AnswerTurn(ctx, drive, n, answer, amount); err != nil {
			t.Fatal(err)
		}
		call := ledgertest.NewCall("r", n, 1, caisson.EffectUnsafe, input)
		call.Facets = caisson.Facets{}
		verdict := caisson.Verdict{Ruling: caisson.Allow, Reason: strings.Repeat("why ", 80)}
		if _, err := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict, Reserve: amount}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Result: caisson.Result{Text: output}, Used: amount}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	ratio := float64(info.Size()) / float64(content)
	t.Logf("%.2f × content", ratio)
	if ratio > 1.5 {
		t.Errorf("%d bytes for %d of content", info.Size(), content)
	}
}

// TestAllowedCallIsTwoCommits counts transactions by what another connection
// sees change.
func TestAllowedCallIsTwoCommits(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openAt(t, path)
	drive, err := lead(ctx, l, "r", caisson.Budget{Calls: 5})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := openForeign(t, path).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	commits := commitCounter(t, conn, path)
	before := commits()
	call := ledgertest.NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	amount := caisson.Amount{Calls: 1}
	if _, err := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: caisson.Verdict{Ruling: caisson.Allow}, Reserve: amount}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Used: amount}); err != nil {
		t.Fatal(err)
	}
	if got := commits() - before; got != 2 {
		t.Errorf("%d commits", got)
	}
}

// commitCounter counts the frames of the log that end a transaction: those
// whose header says how many pages the file has after it
// (sqlite.org/fileformat2.html, section 4.1).
func commitCounter(t *testing.T, conn *sql.Conn, path string) func() int {
	t.Helper()
	return func() int {
		t.Helper()
		var pageSize int
		if err := conn.QueryRowContext(t.Context(), `PRAGMA page_size`).Scan(&pageSize); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for at := 32; at+24+pageSize <= len(raw); at += 24 + pageSize {
			if raw[at+4]|raw[at+5]|raw[at+6]|raw[at+7] != 0 {
				count++
			}
		}
		return count
	}
}

// TestWritersMeet sees that writers of one process share commits, that each
// gets its own result, and that one whose context ends while it waits either
// wrote, and knows it, or did not.
func TestWritersMeet(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openAt(t, path)
	drive, err := lead(ctx, l, "r", caisson.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := openForeign(t, path).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	commits := commitCounter(t, conn, path)
	before, err := l.Run(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	committed := commits()

	// While a foreign program holds the file, a leader waits and others queue.
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	const writers = 40
	gone, goAway := context.WithCancel(ctx)
	errs := make([]error, writers)
	var all, begun sync.WaitGroup
	for i := range writers {
		begun.Add(1)
		all.Go(func() {
			begun.Done()
			switch {
			case i%4 == 1:
				errs[i] = l.Append(ctx, caisson.Drive{Run: "r", Fence: 9}, caisson.EventNote, i)
			case i%4 == 2:
				errs[i] = l.Append(gone, drive, caisson.EventNote, i)
			default:
				errs[i] = l.Append(ctx, drive, caisson.EventNote, i)
			}
		})
	}
	begun.Wait()
	goAway()
	if _, err := conn.ExecContext(ctx, `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	wrote := int64(0)
	for i, err := range errs {
		switch code := caisson.CodeOf(err); {
		case err == nil && i%4 != 1:
			wrote++
		case i%4 == 1 && code == caisson.CodeLeaseLost, i%4 == 2 && code == caisson.CodeCancelled:
		default:
			t.Errorf("writer %d: %v", i, err)
		}
	}
	after, err := l.Run(ctx, "r")
	if err != nil || after.Events-before.Events != wrote || wrote < writers/2 {
		t.Fatalf("%d say that they wrote, %d events are there, %v", wrote, after.Events-before.Events, err)
	}
	if n := commits() - committed; int64(n) >= wrote {
		t.Errorf("%d commits for %d events", n, wrote)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
}
