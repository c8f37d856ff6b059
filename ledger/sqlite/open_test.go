package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

func wantOpen(t *testing.T, opts sqlite.Options, code caisson.Code) {
	t.Helper()
	l, err := sqlite.Open(t.Context(), opts)
	if err == nil {
		_ = l.Close()
	}
	if caisson.CodeOf(err) != code {
		t.Fatalf("got %q (%v), want %q", caisson.CodeOf(err), err, code)
	}
}

// written returns the path of a closed ledger with a run in it.
func written(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a dir?", "ledger#1.db")
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	drive, err := lead(t.Context(), l, "r", caisson.Budget{Tokens: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := l.Append(t.Context(), drive, caisson.EventNote, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.PutWorkspace(t.Context(), caisson.Workspace{ID: "w", Name: strings.Repeat("n", 300)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// openForeign opens a ledger as another program would.
func openForeign(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, OmitHost: true}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// alter runs SQL on a closed ledger.
func alter(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := openForeign(t, path)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestOpenNewer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	openAt(t, path)
	alter(t, path, `PRAGMA user_version = 99`)
	wantOpen(t, sqlite.Options{Path: path}, caisson.CodeLedgerNewer)
	wantOpen(t, sqlite.Options{Path: path, ReadOnly: true}, caisson.CodeLedgerNewer)
}

func TestOpenForeign(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("this is a text that is long enough to be looked at as a header of a database file by mistake, "+
		"which it is not, whatever it says"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, sqlite.Options{Path: text}, caisson.CodeLedgerDamaged)
	other := filepath.Join(dir, "other.db")
	alter(t, other, `CREATE TABLE runs (id TEXT)`)
	wantOpen(t, sqlite.Options{Path: other}, caisson.CodeLedgerDamaged)
	wantOpen(t, sqlite.Options{Path: filepath.Join(dir, "none.db"), ReadOnly: true}, caisson.CodeNotFound)
	if _, err := os.Stat(filepath.Join(dir, "none.db")); err == nil {
		t.Fatal("reading made a file")
	}
	wantOpen(t, sqlite.Options{Path: filepath.Join(text, "x", "ledger.db")}, caisson.CodeWriteFailed)
}

func TestDamagedFile(t *testing.T) {
	path := written(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for page := 0; page < len(raw); page += 4096 {
		bad := append([]byte(nil), raw...)
		for i := page; i < page+4096; i++ {
			bad[i] = ^bad[i]
		}
		copied := filepath.Join(t.TempDir(), "ledger.db")
		if err := os.WriteFile(copied, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := sqlite.Open(t.Context(), sqlite.Options{Path: copied})
		if err == nil {
			err = l.Check(t.Context())
			if e := l.Close(); e != nil && err == nil {
				err = e
			}
		}
		if err == nil {
			t.Errorf("page %d was overwritten and nobody noticed", page/4096+1)
		} else if code := caisson.CodeOf(err); code != caisson.CodeLedgerDamaged && code != caisson.CodeChainBroken {
			t.Errorf("page %d: %s: %v", page/4096+1, code, err)
		}
		found++
	}
	if found < 10 {
		t.Fatalf("only %d pages", found)
	}
}

// TestCheckFinds changes a ledger behind its back.
func TestCheckFinds(t *testing.T) {
	for name, c := range map[string]struct {
		change string
		code   caisson.Code
	}{
		"body":               {`UPDATE events SET body = '8' WHERE seq = 10`, caisson.CodeChainBroken},
		"hash":               {`UPDATE events SET hash = zeroblob(32) WHERE seq = 10`, caisson.CodeChainBroken},
		"time":               {`UPDATE events SET at = at + 1 WHERE seq = 10`, caisson.CodeChainBroken},
		"kind":               {`UPDATE events SET kind = 'note2' WHERE seq = 10`, caisson.CodeChainBroken},
		"missing":            {`DELETE FROM events WHERE seq = 10`, caisson.CodeChainBroken},
		"missing first":      {`DELETE FROM events WHERE seq = 1`, caisson.CodeChainBroken},
		"state":              {`UPDATE runs SET state = 'waiting' WHERE rid > 0`, caisson.CodeLedgerDamaged},
		"fence":              {`UPDATE runs SET fence = 7 WHERE rid > 0`, caisson.CodeLedgerDamaged},
		"holder":             {`UPDATE runs SET instance = NULL WHERE rid > 0`, caisson.CodeLedgerDamaged},
		"used":               {`UPDATE pools SET doc = json_set(doc, '$.used.tokens', 1)`, caisson.CodeLedgerDamaged},
		"kept":               {`UPDATE pools SET doc = json_set(doc, '$.kept', 1)`, caisson.CodeLedgerDamaged},
		"limit":              {`UPDATE pools SET doc = json_set(doc, '$.limit.tokens', 500)`, caisson.CodeLedgerDamaged},
		"no pool":            {`DELETE FROM pools`, caisson.CodeLedgerDamaged},
		"content":            {`UPDATE blobs SET data = x'7b7d'`, caisson.CodeLedgerDamaged},
		"no content":         {`DELETE FROM blobs`, caisson.CodeLedgerDamaged},
		"call from outside":  {`INSERT INTO calls (id, rid, state, doc) VALUES ('r.1.1', 1, 'done', '{}')`, caisson.CodeLedgerDamaged},
		"grant from outside": {`INSERT INTO grants (rid, revoked, doc) VALUES (1, 0, '{}')`, caisson.CodeLedgerDamaged},
		"run from outside":   {`INSERT INTO runs (id, state, parent, root, doc) VALUES ('x', 'pending', '', 'x', '{}')`, caisson.CodeLedgerDamaged},
		"no such run":        {`INSERT INTO turns (rid, n, attempt, state, doc) VALUES (77, 1, 1, 'asked', '{}')`, caisson.CodeLedgerDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t)
			alter(t, path, c.change)
			l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if err := l.Check(t.Context()); caisson.CodeOf(err) != c.code {
				t.Fatalf("got %q (%v), want %q", caisson.CodeOf(err), err, c.code)
			}
		})
	}
}

func TestBusy(t *testing.T) {
	path := written(t)
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Busy: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	foreign, err := openForeign(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Close() }()
	if _, err := foreign.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	drive := caisson.Drive{Run: "r", Fence: 1}
	if err := l.Append(t.Context(), drive, caisson.EventNote, 1); caisson.CodeOf(err) != caisson.CodeLedgerBusy {
		t.Fatalf("got %v", err)
	}
	if _, err := l.Run(t.Context(), "r"); err != nil {
		t.Fatalf("reading must go on: %v", err)
	}
	if _, err := foreign.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), drive, caisson.EventNote, 1); err != nil {
		t.Fatal(err)
	}
}

// keepLock keeps all others from writing for as long as its input is open.
func keepLock(_ context.Context, path, _ string) error {
	f, err := os.OpenFile(path+".writer", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	fmt.Println("kept")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, f.Close())
}

// A process that is stopped in the middle of a write keeps all others from writing:
// they are told which one, that it is stopped, and how it goes on.
func TestHolderIsNamed(t *testing.T) {
	path := written(t)
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Busy: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cmd := child(t, "keep", path, "")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	refused := func(text string, hint ...string) {
		t.Helper()
		err := l.Append(t.Context(), caisson.Drive{Run: "r", Fence: 1}, caisson.EventNote, 1)
		var coded *caisson.Error
		if !errors.As(err, &coded) || coded.Code != caisson.CodeLedgerBusy || !strings.Contains(coded.Message, text) {
			t.Errorf("got %v, want %q", err, text)
			return
		}
		for _, h := range hint {
			if !strings.Contains(coded.HintText(), h) {
				t.Errorf("hint %q, want %q", coded.HintText(), h)
			}
		}
	}
	refused(fmt.Sprintf("process %d holds the ledger's lock", pid))
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf("process %d, which holds the ledger's lock", pid), fmt.Sprintf("kill -CONT %d", pid))
	if err := errors.Join(unix.Kill(pid, unix.SIGCONT), in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), caisson.Drive{Run: "r", Fence: 1}, caisson.EventNote, 1); err != nil {
		t.Errorf("when it is gone: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	path := written(t)
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), caisson.Drive{Run: "r", Fence: 1}, caisson.EventNote, 1); caisson.CodeOf(err) != caisson.CodeWriteFailed {
		t.Fatalf("got %v", err)
	}
	writer := openAt(t, path)
	if err := writer.Append(t.Context(), caisson.Drive{Run: "r", Fence: 1}, caisson.EventNote, 1); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Wait(t.Context(), "r", 53); err != nil || n != 54 {
		t.Fatalf("a reader saw %d events: %v", n, err)
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "ledger.db")
	l := openAt(t, path)
	if _, err := lead(t.Context(), l, "r", caisson.Budget{}); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", dir.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 6 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", entry.Name(), info.Mode(), err)
		}
	}
}

// A ledger that is removed, or in whose place another comes, takes nothing more,
// and whoever waits for what comes is told.
func TestLedgerIsRemoved(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"removed":  func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state", "ledger.db")
			l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			drive, err := lead(t.Context(), l, "r", caisson.Budget{Tokens: 5})
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Run(t.Context(), "r")
			if err != nil {
				t.Fatal(err)
			}
			waited := make(chan error, 1)
			go func() { // ends with the wait
				_, err := l.Wait(t.Context(), "r", r.Events)
				waited <- err
			}()
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			if err := l.Append(t.Context(), drive, caisson.EventNote, 1); caisson.CodeOf(err) != caisson.CodeLedgerDamaged {
				t.Errorf("append: %v", err)
			}
			if err := <-waited; caisson.CodeOf(err) != caisson.CodeLedgerDamaged {
				t.Errorf("wait: %v", err)
			}
		})
	}
}
