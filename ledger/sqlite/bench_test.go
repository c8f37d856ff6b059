package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// BenchmarkAppend compares durable events of 1 KiB with bare SQLite commits of
// 1 KiB on the same file system. The two alternate, as disks change their pace
// from one second to the next. Wanted: ×raw at least 0.8 for one writer, and at
// least 4 for 32.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 32} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchmarkAppend(b, writers) })
	}
}

func benchmarkAppend(b *testing.B, writers int) {
	dir := b.TempDir()
	l, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	drives := benchDrives(b, l, writers)
	raw := openRaw(b, filepath.Join(dir, "raw.db"))
	text := strings.Repeat("x", 1024)
	body := map[string]string{"text": text}

	// Before a log file is used for the second time it grows, which costs more.
	for range 1000 {
		if err := l.Append(b.Context(), drives[0], caisson.EventNote, body); err != nil {
			b.Fatal(err)
		}
		if _, err := raw.ExecContext(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
	var ours, theirs time.Duration
	var events, commits int
	for b.Loop() {
		begun := time.Now()
		for range 32 {
			if _, err := raw.ExecContext(b.Context(), text); err != nil {
				b.Fatal(err)
			}
		}
		theirs += time.Since(begun)
		commits += 32

		each := 32
		begun = time.Now()
		var all sync.WaitGroup
		for _, drive := range drives {
			all.Go(func() {
				for range each {
					if err := l.Append(b.Context(), drive, caisson.EventNote, body); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		ours += time.Since(begun)
		events += each * writers
	}
	oursRate, rawRate := float64(events)/ours.Seconds(), float64(commits)/theirs.Seconds()
	b.ReportMetric(oursRate, "events/s")
	b.ReportMetric(rawRate, "raw/s")
	b.ReportMetric(oursRate/rawRate, "×raw")
}

func benchDrives(b *testing.B, l caisson.Ledger, n int) []caisson.Drive {
	if err := l.PutInstance(b.Context(), caisson.Instance{ID: "i1"}); err != nil {
		b.Fatal(err)
	}
	var drives []caisson.Drive
	for i := range n {
		id := caisson.RunID(fmt.Sprintf("r%d", i))
		if _, err := l.CreateRun(b.Context(), id, caisson.RunSpec{Root: id}); err != nil {
			b.Fatal(err)
		}
		lease, err := l.TakeLease(b.Context(), id, "i1", 0)
		if err != nil {
			b.Fatal(err)
		}
		drive := caisson.Drive{Run: id, Fence: lease.Fence}
		if _, err := l.MoveRun(b.Context(), drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
			b.Fatal(err)
		}
		drives = append(drives, drive)
	}
	return drives
}

// openRaw returns a prepared insert that commits by itself.
func openRaw(b *testing.B, path string) *sql.Stmt {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(), `CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	stmt, err := db.PrepareContext(b.Context(), `INSERT INTO t (body) VALUES (?)`)
	if err != nil {
		b.Fatal(err)
	}
	return stmt
}
