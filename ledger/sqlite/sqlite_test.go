package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T, opts ledgertest.Options) func() caisson.Ledger {
		path := filepath.Join(t.TempDir(), "state", "ledger.db")
		return func() caisson.Ledger {
			l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Now: opts.Now})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
	})
}
