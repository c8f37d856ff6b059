package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"
)

// A ledger that another process is just making is never taken for the file of
// another program, however far that has come.
func TestLookedAtWhileItIsMade(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "ledger.db")
		if err := makeFile(path); err != nil {
			t.Fatal(err)
		}
		l := &Ledger{opts: Options{Path: path, Busy: time.Minute}}
		db, err := sql.Open("sqlite", l.dsn("query_only(1)"))
		if err != nil {
			t.Fatal(err)
		}
		made := make(chan error, 1)
		go func() {
			other, err := Open(context.WithoutCancel(t.Context()), Options{Path: path, Busy: time.Minute})
			if err == nil {
				err = other.Close()
			}
			made <- err
		}()
		for version := 0; version < schemaVersion; {
			if version, err = l.version(t.Context(), db); err != nil {
				t.Error(err)
				break
			}
		}
		if err := <-made; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A machine that stands still while one waits for a lock does not use its patience up:
// who has the lock stands still as well.
func TestStandingStillIsNotWaiting(t *testing.T) {
	now := time.Now()
	p := patience{left: 5 * time.Second, at: now}
	for range 5 {
		if now = now.Add(time.Minute); p.over(now) {
			t.Fatal("that it stood still is counted")
		}
	}
	waited := time.Duration(0)
	for !p.over(now) {
		now, waited = now.Add(time.Millisecond), waited+time.Millisecond
	}
	if least := 5*time.Second - 5*longestPause; waited != least {
		t.Errorf("it is over after %s, want %s", waited, least)
	}
}
