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
