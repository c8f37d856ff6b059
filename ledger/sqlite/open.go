// Package sqlite keeps the ledger in one SQLite file.
//
// Any number of processes may open one file. Every write that returns nil is
// on disk (WAL, synchronous=FULL); one that returns an error has changed
// nothing. Writers of one process share a transaction where they meet, writers
// of several take turns.
//
// Beside ledger.db stand SQLite's own -wal and -shm, the two files of the
// turnstile (.gate, .writer) and the one that wakes waiters (.wake). The last
// three hold nothing and must not be removed while a ledger is open.
//
// Not promised: anything on a network file system, where neither SQLite's
// locks nor ours can be relied on.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the version of the newest migration.
const schemaVersion = 3

// applicationID marks a SQLite file as a ledger: "CAIS" in ASCII.
const applicationID = 0x43414953

// Options say which ledger to open.
type Options struct {
	Path string // of the file; its directory is made (0700) if missing
	// ReadOnly opens an existing ledger for reading; every write is refused.
	ReadOnly bool
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Busy bounds the wait for a lock that another program holds, but for what the
	// machine stands still meanwhile; 0 means 5 s.
	Busy time.Duration
}

// Ledger implements [caisson.Ledger].
type Ledger struct {
	opts Options
	file fs.FileInfo // of the file that was opened
	turn *turnstile
	wake *os.File

	readers *sql.DB
	rstmts  sync.Map // query → *sql.Stmt

	// The writer's connection, its statements and what it knows belong to
	// whoever leads.
	writerDB *sql.DB
	writer   *sql.Conn
	wstmts   map[string]*sql.Stmt
	heads    heads

	last atomic.Int64 // time of the newest event that this process knows, in µs

	mu      sync.Mutex
	queue   []*job
	leading bool
	closed  bool
	idle    sync.WaitGroup // operations under way
	tail    *tail
	closing chan struct{}
}

var _ caisson.Ledger = (*Ledger)(nil)

// Open opens the ledger, makes it if it is not there, and brings its schema up
// to date. CodeLedgerNewer, CodeLedgerDamaged and CodeLedgerBusy say why it
// could not.
func Open(ctx context.Context, opts Options) (*Ledger, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Busy <= 0 {
		opts.Busy = 5 * time.Second
	}
	l := &Ledger{opts: opts, wstmts: map[string]*sql.Stmt{}, heads: heads{runs: map[caisson.RunID]*runRow{}}, tail: newTail(), closing: make(chan struct{})}
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(storeError("open ledger "+opts.Path, err), l.release())
	}
	return l, nil
}

func (l *Ledger) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.opts.ReadOnly {
		if _, err := os.Stat(l.opts.Path); err != nil {
			return caisson.Errorf(caisson.CodeNotFound, "no ledger at %s: %w", l.opts.Path, err)
		}
		return l.openReaders(ctx)
	}
	if err := makeFile(l.opts.Path); err != nil {
		return err
	}
	var err error
	if l.turn, err = openTurnstile(l.opts.Path, l.opts.Busy); err != nil {
		return err
	}
	if l.wake, err = os.OpenFile(l.opts.Path+".wake", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := l.openWriter(ctx); err != nil {
		return err
	}
	if err := l.openReaders(ctx); err != nil {
		return err
	}
	l.file, err = os.Stat(l.opts.Path)
	return err
}

// there says whether the file that was opened is still the ledger. What is
// written into one that was removed or replaced nobody reads: nothing may go on
// that must be on record.
func (l *Ledger) there() error {
	now, err := os.Stat(l.opts.Path)
	if err == nil && os.SameFile(now, l.file) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // what cannot be told, the next write tells
	}
	return caisson.Errorf(caisson.CodeLedgerDamaged, "the ledger %s was removed or replaced while it was in use", l.opts.Path).
		WithHint("What was recorded in it is gone, unless you have the file; what this process held has been ended.")
}

// makeFile creates the file with its final permissions, before SQLite would
// with wider ones. An existing file is not opened here: closing it would drop
// the POSIX locks that another open ledger of this process holds on it.
func makeFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return os.Chmod(path, 0o600)
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}

func (l *Ledger) dsn(pragmas ...string) string {
	query := url.Values{"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", l.opts.Busy.Milliseconds())}, pragmas...)}
	if l.opts.ReadOnly {
		query.Set("mode", "ro")
	}
	return (&url.URL{Scheme: "file", Path: l.opts.Path, OmitHost: true, RawQuery: query.Encode()}).String()
}

func (l *Ledger) openWriter(ctx context.Context) (err error) {
	if l.writerDB, err = sql.Open("sqlite", l.dsn("synchronous(FULL)", "foreign_keys(1)", "cell_size_check(1)", "trusted_schema(0)")); err != nil {
		return err
	}
	l.writerDB.SetMaxOpenConns(1)
	version, err := l.version(ctx, l.writerDB)
	if err != nil {
		return err
	}
	if version < schemaVersion {
		if err := l.migrate(ctx); err != nil {
			return err
		}
	}
	l.writer, err = l.writerDB.Conn(ctx)
	return err
}

// version returns the schema's version; 0 for a file that is empty, or that was left
// between the first steps of the first migration, or is there now. All is asked at
// once: another process may be just making it.
func (l *Ledger) version(ctx context.Context, db *sql.DB) (int, error) {
	var application, version, others int
	err := db.QueryRowContext(ctx, `SELECT a.application_id, u.user_version,
		(SELECT count(*) FROM sqlite_schema WHERE tbl_name NOT IN ('goose_db_version', 'sqlite_sequence'))
		FROM pragma_application_id a, pragma_user_version u`).Scan(&application, &version, &others)
	switch {
	case err != nil:
		return 0, err
	case version > schemaVersion && application == applicationID:
		return 0, caisson.Errorf(caisson.CodeLedgerNewer, "%s has schema version %d; this program knows %d", l.opts.Path, version, schemaVersion)
	case application != applicationID && (application != 0 || version != 0 || others > 0):
		return 0, damaged("%s is a SQLite file of another program", l.opts.Path)
	}
	return version, nil
}

func (l *Ledger) migrate(ctx context.Context) (err error) {
	if err := l.turn.enter(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.turn.leave()) }()
	var mode string
	if err := l.writerDB.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return caisson.Errorf(caisson.CodeUnsupported, "the file system of %s does not allow write-ahead logging", l.opts.Path)
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, l.writerDB, sub)
	if err != nil {
		return err
	}
	if err := fault.Point("ledger.migrate.before"); err != nil {
		return err
	}
	if _, err = provider.Up(ctx); err != nil {
		return err
	}
	return fault.Point("ledger.migrate.after")
}

func (l *Ledger) openReaders(ctx context.Context) (err error) {
	if l.readers, err = sql.Open("sqlite", l.dsn("query_only(1)", "trusted_schema(0)")); err != nil {
		return err
	}
	l.readers.SetMaxOpenConns(8)
	l.readers.SetMaxIdleConns(4)
	version, err := l.version(ctx, l.readers)
	if err != nil {
		return err
	}
	if version < schemaVersion {
		return caisson.Errorf(caisson.CodeUnsupported, "%s has the old schema version %d and is opened for reading only", l.opts.Path, version).
			WithHint("Open it once for writing.")
	}
	var last sql.NullInt64
	if err := l.readers.QueryRowContext(ctx, `SELECT at FROM events ORDER BY n DESC LIMIT 1`).Scan(&last); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	l.last.Store(last.Int64)
	return nil
}

// Close implements [caisson.Ledger]. It waits for operations that are under way.
func (l *Ledger) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.idle.Wait()
		return nil
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	l.idle.Wait()
	l.endTail()
	return storeError("close ledger", l.release())
}

// begin counts an operation in; done counts it out.
func (l *Ledger) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed()
	}
	l.idle.Add(1)
	return nil
}

// release closes what is open, in reverse order.
func (l *Ledger) release() error {
	var errs []error
	l.rstmts.Range(func(_, stmt any) bool {
		errs = append(errs, stmt.(*sql.Stmt).Close())
		return true
	})
	for _, stmt := range l.wstmts {
		errs = append(errs, stmt.Close())
	}
	if l.readers != nil {
		errs = append(errs, l.readers.Close())
	}
	if l.writer != nil {
		errs = append(errs, l.writer.Close())
	}
	if l.writerDB != nil {
		errs = append(errs, l.writerDB.Close())
	}
	if l.wake != nil {
		errs = append(errs, l.wake.Close())
	}
	if l.turn != nil {
		errs = append(errs, l.turn.close())
	}
	return errors.Join(errs...)
}
