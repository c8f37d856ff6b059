package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/caisson-run/caisson"
)

// reader reads what is committed, by statements prepared once a ledger.
type reader struct {
	ctx context.Context //nolint:containedctx // lives as long as one read
	l   *Ledger
}

var _ source = reader{}

func (r reader) stmt(query string) (*sql.Stmt, error) {
	if stmt, ok := r.l.rstmts.Load(query); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := r.l.readers.PrepareContext(r.ctx, query)
	if err != nil {
		return nil, err
	}
	if other, loaded := r.l.rstmts.LoadOrStore(query, stmt); loaded {
		return other.(*sql.Stmt), stmt.Close()
	}
	return stmt, nil
}

func (r reader) rows(query string, args ...any) (*sql.Rows, error) {
	stmt, err := r.stmt(query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(r.ctx, args...)
}

func (r reader) row(query string, args ...any) *sql.Row {
	stmt, err := r.stmt(query)
	if err != nil {
		return r.l.readers.QueryRowContext(r.ctx, query, args...)
	}
	return stmt.QueryRowContext(r.ctx, args...)
}

// read runs fn with a source of committed rows.
func (l *Ledger) read(ctx context.Context, fn func(source) error) error {
	if err := l.begin(); err != nil {
		return err
	}
	defer l.idle.Done()
	return storeError("read ledger", fn(reader{ctx, l}))
}

// each calls scan for every row of a query. What scan reads beyond the row, it
// must read after: the rows hold a connection.
func each(s source, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.rows(query, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := scan(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Events implements [caisson.Ledger].
func (l *Ledger) Events(ctx context.Context, run caisson.RunID, after int64, limit int) ([]caisson.Event, error) {
	var events []caisson.Event
	err := l.read(ctx, func(s source) error {
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		events, err = readEvents(s, r, max(after, 0), limit)
		return err
	})
	return events, err
}

func readEvents(s source, r *runRow, after int64, limit int) ([]caisson.Event, error) {
	if limit <= 0 {
		limit = -1
	} else {
		limit++ // the one before the first gives its hash
	}
	var events []caisson.Event
	var prev caisson.Digest
	err := each(s, func(rows *sql.Rows) error {
		e := caisson.Event{Run: r.id, Prev: prev}
		var at int64
		var kind, body string
		var hash []byte
		if err := rows.Scan(&e.Seq, &at, &kind, &body, &hash); err != nil {
			return err
		}
		e.At, e.Kind, e.Body, e.Hash = time.UnixMicro(at).UTC(), caisson.EventKind(kind), json.RawMessage(body), caisson.Digest(hex.EncodeToString(hash))
		prev = e.Hash
		if e.Seq > after {
			events = append(events, e)
		}
		return nil
	}, `SELECT seq, at, kind, body, hash FROM events WHERE rid = ? AND seq >= ? ORDER BY seq LIMIT ?`, r.rid, after, limit)
	if limit > 0 && len(events) == limit { // there was none before the first
		events = events[:limit-1]
	}
	return events, err
}

// Blob implements [caisson.Ledger].
func (l *Ledger) Blob(ctx context.Context, digest caisson.Digest) ([]byte, error) {
	var data []byte
	err := l.read(ctx, func(s source) (err error) {
		data, err = blob(s, digest)
		return err
	})
	return data, err
}

// Append implements [caisson.Ledger].
func (l *Ledger) Append(ctx context.Context, drive caisson.Drive, kind caisson.EventKind, body any) error {
	if reserved(kind) {
		return caisson.Errorf(caisson.CodeUsage, "an event %s is written by the change that it tells of", kind)
	}
	canonical, err := canonicalBody(kind, body) // before others have to wait for it
	if err != nil {
		return err
	}
	return l.write(ctx, func(t *tx) error {
		r, err := t.driven(drive)
		if err != nil {
			return err
		}
		return t.emitCanonical(r, kind, canonical)
	})
}

// Note implements [caisson.Ledger].
func (l *Ledger) Note(ctx context.Context, run caisson.RunID, body any) error {
	canonical, err := canonicalBody(caisson.EventNote, body)
	if err != nil {
		return err
	}
	return l.write(ctx, func(t *tx) error {
		r, err := t.chainOf(run)
		if err != nil {
			return err
		}
		return t.emitCanonical(r, caisson.EventNote, canonical)
	})
}

// reserved tells whether events of a kind tell of a change of state. Nobody
// may add one without the change.
func reserved(kind caisson.EventKind) bool {
	switch kind {
	case caisson.EventRunCreated, caisson.EventRunMoved, caisson.EventCancelAsked, caisson.EventLeaseTaken, caisson.EventLeaseReleased,
		caisson.EventTurnAsked, caisson.EventTurnAnswered, caisson.EventTurnAbandoned,
		caisson.EventCallJudged, caisson.EventCallStarted, caisson.EventCallSettled,
		caisson.EventReviewOpened, caisson.EventReviewDecided, caisson.EventReviewExpired, caisson.EventReviewWithdrawn,
		caisson.EventGrantRevoked, caisson.EventSandboxMoved, caisson.EventWorkspace,
		caisson.EventChannelOpened, caisson.EventRequestTaken, caisson.EventRequestRejected, caisson.EventTaskEdited, "":
		return true
	default:
		return false
	}
}

// Now implements [caisson.Ledger].
func (l *Ledger) Now() time.Time {
	var last int64
	err := l.read(context.Background(), func(s source) error {
		return s.row(`SELECT at FROM events ORDER BY n DESC LIMIT 1`).Scan(&last)
	})
	if err != nil {
		last = 0 // none yet, or it cannot be read now: what this process knows
	}
	return time.UnixMicro(max(last, l.last.Load(), l.opts.Now().UnixMicro())).UTC()
}
