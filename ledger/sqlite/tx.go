package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// source is where rows are read from: the write transaction or a reader.
type source interface {
	rows(query string, args ...any) (*sql.Rows, error)
	row(query string, args ...any) *sql.Row
}

// tx is the write transaction. Its statements take no context: once begun, a
// transaction is carried to its end, which the batch's bounds keep near.
type tx struct {
	l    *Ledger
	now  time.Time // one time for all that is written; UTC, microseconds
	keep bool      // what was written stands although an error is returned
	wake bool      // somebody may wait for this
}

var _ source = (*tx)(nil)

// clock sets the transaction's time, unless it is set.
func (t *tx) clock() error {
	if !t.now.IsZero() {
		return nil
	}
	var last int64
	if err := t.row(`SELECT at FROM events ORDER BY n DESC LIMIT 1`).Scan(&last); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	t.setClock(last)
	return nil
}

// setClock sets the transaction's time, unless it is set, given that of the
// ledger's last event.
func (t *tx) setClock(last int64) {
	if t.now.IsZero() {
		t.now = time.UnixMicro(max(last, t.l.opts.Now().UnixMicro())).UTC()
	}
}

func (t *tx) stmt(query string) (*sql.Stmt, error) {
	if stmt := t.l.wstmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := t.l.writer.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	t.l.wstmts[query] = stmt
	return stmt, nil
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.result(query, args...)
	return err
}

func (t *tx) result(query string, args ...any) (sql.Result, error) {
	stmt, err := t.stmt(query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(context.Background(), args...)
}

func (t *tx) rows(query string, args ...any) (*sql.Rows, error) {
	stmt, err := t.stmt(query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(context.Background(), args...)
}

func (t *tx) row(query string, args ...any) *sql.Row {
	stmt, err := t.stmt(query)
	if err != nil {
		// An unprepared query reports the same error from Scan.
		return t.l.writer.QueryRowContext(context.Background(), query, args...)
	}
	return stmt.QueryRowContext(context.Background(), args...)
}

// marshal is json.Marshal without the escapes for HTML, which would make
// program text a good deal longer.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// put stores a value and returns how to refer to it.
func (t *tx) put(v any) (ledger.Content, error) {
	raw, err := marshal(v)
	if err != nil {
		return ledger.Content{}, caisson.Errorf(caisson.CodeCallInvalid, "the value cannot be recorded: %w", err)
	}
	if len(raw) <= ledger.InlineMax {
		return ledger.Content{Value: raw}, nil
	}
	digest := caisson.DigestOf(raw)
	err = t.exec(`INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING`, digestBytes(digest), raw)
	return ledger.Content{Digest: digest, Bytes: int64(len(raw))}, err
}

// putText is put, of a text; an empty one is no content.
func (t *tx) putText(text string) (ledger.Content, error) {
	if text == "" {
		return ledger.Content{}, nil
	}
	return t.put(text)
}

// get reads what put stored into v; v stays as it is where there is none.
func get(s source, c ledger.Content, v any) error {
	raw := []byte(c.Value)
	if c.Digest != "" {
		var err error
		if raw, err = blob(s, c.Digest); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return damaged("content %s cannot be read: %w", c.Digest, err)
	}
	return nil
}

func blob(s source, digest caisson.Digest) ([]byte, error) {
	var data []byte
	err := s.row(`SELECT data FROM blobs WHERE digest = ?`, digestBytes(digest)).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("content", string(digest))
	}
	return data, err
}

// digestBytes is the form in which digests are stored. What is no digest has a
// form that none is stored in.
func digestBytes(d caisson.Digest) []byte {
	raw, err := hex.DecodeString(string(d))
	if err != nil || d == "" {
		return []byte{0}
	}
	return raw
}

// emit appends an event to the chain of a run that was loaded in this transaction.
func (t *tx) emit(r *runRow, kind caisson.EventKind, body any) error {
	canonical, err := canonicalBody(kind, body)
	if err != nil {
		return err
	}
	return t.emitCanonical(r, kind, canonical)
}

func canonicalBody(kind caisson.EventKind, body any) ([]byte, error) {
	canonical, err := caisson.CanonicalOf(body)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "the body of %s cannot be recorded: %w", kind, err)
	}
	return canonical, nil
}

func (t *tx) emitCanonical(r *runRow, kind caisson.EventKind, canonical []byte) error {
	seq := r.events + 1
	sum, err := eventSum(r.id, seq, t.now, kind, canonical, r.head)
	if err != nil {
		return err
	}
	r.events, r.head, r.updated = seq, sum, t.now
	if err := t.exec(`INSERT INTO events (rid, seq, at, kind, body, hash) VALUES (?, ?, ?, ?, ?, ?)`,
		r.rid, seq, t.now.UnixMicro(), string(kind), string(canonical), digestBytes(sum)); err != nil {
		return err
	}
	t.l.heads.emitted(r)
	return nil
}

// eventSum is [caisson.Event.Sum] for a body that is canonical already: the
// keys of the object stand in their canonical order.
func eventSum(run caisson.RunID, seq int64, at time.Time, kind caisson.EventKind, body []byte, prev caisson.Digest) (caisson.Digest, error) {
	id, err := canonicalString(string(run))
	if err != nil {
		return "", err
	}
	name, err := canonicalString(string(kind))
	if err != nil {
		return "", err
	}
	raw := make([]byte, 0, len(prev)+len(body)+len(id)+len(name)+96)
	raw = append(raw, prev...)
	raw = append(raw, `{"at":"`...)
	raw = at.AppendFormat(raw, time.RFC3339Nano)
	raw = append(raw, `","body":`...)
	raw = append(raw, body...)
	raw = append(raw, `,"kind":`...)
	raw = append(raw, name...)
	raw = append(raw, `,"run":`...)
	raw = append(raw, id...)
	raw = append(raw, `,"seq":`...)
	raw = strconv.AppendInt(raw, seq, 10)
	return caisson.DigestOf(append(raw, '}')), nil
}

// canonicalString is [caisson.CanonicalOf], short for what ids and kinds are made of.
func canonicalString(s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < '-' || c > 'z' || c == '\\' {
			return caisson.CanonicalOf(s)
		}
	}
	return append(append([]byte{'"'}, s...), '"'), nil
}

// readDoc reads a row's document.
func readDoc(noun, id string, raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return damaged("%s %s cannot be read: %w", noun, id, err)
	}
	return nil
}

// writeDoc makes a row's document.
func writeDoc(v any) (string, error) {
	raw, err := marshal(v)
	if err != nil {
		return "", fmt.Errorf("marshal row: %w", err)
	}
	return string(raw), nil
}
