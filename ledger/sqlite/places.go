package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// chainOf returns the run whose chain tells of a place: the run it belongs to,
// or the empty one where that is not on record (yet).
func (t *tx) chainOf(run caisson.RunID) (*runRow, error) {
	r, err := t.load(run)
	if caisson.CodeOf(err) == caisson.CodeNotFound {
		return t.load("")
	}
	return r, err
}

// PutWorkspace implements [caisson.Ledger].
func (l *Ledger) PutWorkspace(ctx context.Context, w caisson.Workspace) error {
	if w.ID == "" || w.Name == "" {
		return caisson.Errorf(caisson.CodeUsage, "a workspace needs an id and a name")
	}
	return l.write(ctx, func(t *tx) error {
		var other string
		err := t.row(`SELECT id FROM workspaces WHERE common_dir = ? AND name = ? AND removed = 0 AND id <> ?`,
			w.Binding.CommonDir, w.Name, string(w.ID)).Scan(&other)
		if err == nil && !w.Removed {
			return caisson.Errorf(caisson.CodeAlreadyExists, "workspace %s of this repository has the name %q", other, w.Name).With("workspace", other)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		doc, err := writeDoc(w)
		if err != nil {
			return err
		}
		err = t.exec(`INSERT INTO workspaces (id, common_dir, name, removed, doc) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET common_dir = excluded.common_dir, name = excluded.name, removed = excluded.removed, doc = excluded.doc`,
			string(w.ID), w.Binding.CommonDir, w.Name, w.Removed, doc)
		if err != nil {
			return err
		}
		record, err := t.put(w)
		if err != nil {
			return err
		}
		r, err := t.chainOf(w.Run)
		if err != nil {
			return err
		}
		return t.emit(r, caisson.EventWorkspace, ledger.WorkspaceRecorded{Workspace: w.ID, Name: w.Name, Branch: w.Branch, Removed: w.Removed, Record: record})
	})
}

// Workspace implements [caisson.Ledger]. It also returns one that was removed.
func (l *Ledger) Workspace(ctx context.Context, id caisson.WorkspaceID) (caisson.Workspace, error) {
	if id == "" {
		return caisson.Workspace{}, notFound("workspace", "")
	}
	found, err := l.Workspaces(ctx, caisson.WorkspaceFilter{IDs: []caisson.WorkspaceID{id}, Removed: true})
	if err == nil && len(found) == 0 {
		err = notFound("workspace", string(id))
	}
	if err != nil {
		return caisson.Workspace{}, err
	}
	return found[0], nil
}

// Workspaces implements [caisson.Ledger].
func (l *Ledger) Workspaces(ctx context.Context, filter caisson.WorkspaceFilter) ([]caisson.Workspace, error) {
	q := newQuery(`SELECT id, doc FROM workspaces WHERE n > 0`)
	in(q, `id`, filter.IDs)
	if filter.CommonDir != "" {
		q.and(`common_dir = ?`, filter.CommonDir)
	}
	if !filter.Removed {
		q.and(`removed = 0`)
	}
	q.end(`ORDER BY n DESC`, 0)
	var found []caisson.Workspace
	err := l.read(ctx, func(s source) (err error) {
		found, err = readDocs[caisson.Workspace](s, "workspace", q)
		return err
	})
	return found, err
}

func readDocs[T any](s source, noun string, q *query) ([]T, error) {
	var found []T
	err := each(s, func(rows *sql.Rows) error {
		var id string
		var doc []byte
		var v T
		if err := rows.Scan(&id, &doc); err != nil {
			return err
		}
		if err := readDoc(noun, id, doc, &v); err != nil {
			return err
		}
		found = append(found, v)
		return nil
	}, q.text(), q.args...)
	return found, err
}

// PutSandbox implements [caisson.Ledger]. The record of a sandbox that is not
// removed may be replaced without a move, as what is needed to end it becomes
// known piece by piece.
func (l *Ledger) PutSandbox(ctx context.Context, record caisson.SandboxRecord) error {
	if record.ID == "" {
		return caisson.Errorf(caisson.CodeUsage, "a sandbox needs an id")
	}
	return l.write(ctx, func(t *tx) error {
		record := record
		r, err := t.chainOf(record.Run)
		if err != nil {
			return err
		}
		record.At = t.now
		from, err := t.sandboxState(record)
		if err != nil {
			return err
		}
		doc, err := writeDoc(record)
		if err != nil {
			return err
		}
		err = t.exec(`INSERT INTO sandboxes (id, run, instance, state, doc) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET run = excluded.run, instance = excluded.instance, state = excluded.state, doc = excluded.doc`,
			string(record.ID), string(record.Run), string(record.Instance), string(record.State), doc)
		if err != nil {
			return err
		}
		content, err := t.put(record)
		if err != nil {
			return err
		}
		return t.emit(r, caisson.EventSandboxMoved, ledger.SandboxMoved{Sandbox: record.ID, From: from, To: record.State, Record: content})
	})
}

// sandboxState returns the present state, "" for a new one, if the record may follow it.
func (t *tx) sandboxState(record caisson.SandboxRecord) (caisson.SandboxState, error) {
	var from string
	err := t.row(`SELECT state FROM sandboxes WHERE id = ?`, string(record.ID)).Scan(&from)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if record.State != caisson.SandboxCreating {
			return "", invalid("sandbox %s is new and cannot be %s", record.ID, record.State)
		}
		return "", nil
	case err != nil:
		return "", err
	case from == string(record.State) && record.State != caisson.SandboxRemoved:
		return record.State, nil
	}
	return caisson.SandboxState(from), caisson.SandboxStates().Move(from, string(record.State))
}

// Sandboxes implements [caisson.Ledger], in the order in which they were made.
func (l *Ledger) Sandboxes(ctx context.Context, filter caisson.SandboxFilter) ([]caisson.SandboxRecord, error) {
	q := newQuery(`SELECT id, doc FROM sandboxes WHERE n > 0`)
	if filter.Run != "" {
		q.and(`run = ?`, string(filter.Run))
	}
	if filter.Instance != "" {
		q.and(`instance = ?`, string(filter.Instance))
	}
	in(q, `state`, filter.States)
	q.end(`ORDER BY n`, 0)
	var found []caisson.SandboxRecord
	err := l.read(ctx, func(s source) (err error) {
		found, err = readDocs[caisson.SandboxRecord](s, "sandbox", q)
		return err
	})
	return found, err
}
