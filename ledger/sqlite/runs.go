package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// runRow is a row of runs. Events, head and updated are those of its chain.
type runRow struct {
	rid          int64
	id           caisson.RunID
	state        caisson.RunState
	parent, root caisson.RunID
	fence        caisson.Fence
	instance     sql.NullString
	doc          runDoc

	events  int64
	head    caisson.Digest
	updated time.Time
}

// runDoc is what of a run no query asks for.
type runDoc struct {
	Spec        ledger.Content     `json:"spec"`
	Stop        caisson.StopReason `json:"stop,omitempty"`
	Cause       caisson.Cause      `json:"cause,omitempty"`
	Text        ledger.Content     `json:"text,omitzero"`
	Exit        int                `json:"exit,omitempty"`
	Created     time.Time          `json:"created"`
	Active      time.Duration      `json:"active,omitempty"`
	ActiveSince time.Time          `json:"active_since,omitzero"`
	CancelAsked caisson.Cause      `json:"cancel_asked,omitempty"`
	CancelBy    string             `json:"cancel_by,omitempty"`
	Turns       int                `json:"turns,omitempty"`
	Taken       time.Time          `json:"taken,omitzero"`
}

const runColumns = `r.rid, r.id, r.state, r.parent, r.root, r.fence, r.instance, r.doc`

func (r *runRow) scan(scan func(...any) error, more ...any) error {
	var id, state, parent, root string
	var doc []byte
	if err := scan(append([]any{&r.rid, &id, &state, &parent, &root, &r.fence, &r.instance, &doc}, more...)...); err != nil {
		return err
	}
	r.id, r.state, r.parent, r.root = caisson.RunID(id), caisson.RunState(state), caisson.RunID(parent), caisson.RunID(root)
	return readDoc("run", id, doc, &r.doc)
}

// findRun returns a run's row without its head. The empty id has one.
func findRun(s source, id caisson.RunID) (*runRow, error) {
	r := new(runRow)
	err := r.scan(s.row(`SELECT `+runColumns+` FROM runs r WHERE r.id = ?`, string(id)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("run", string(id))
	}
	return r, err
}

// load is findRun with the run's head, all in one query with the time of the
// ledger's last event, or in none where they are known.
func (t *tx) load(id caisson.RunID) (*runRow, error) {
	if r, ok := t.l.heads.run(id); ok {
		t.setClock(t.l.heads.last)
		return &r, nil
	}
	r := new(runRow)
	var last, seq, at sql.NullInt64
	var hash []byte
	err := r.scan(t.row(`SELECT `+runColumns+`, (SELECT at FROM events ORDER BY n DESC LIMIT 1), e.seq, e.at, e.hash
		FROM runs r LEFT JOIN events e ON e.rid = r.rid AND e.seq = (SELECT max(seq) FROM events WHERE rid = r.rid) WHERE r.id = ?`, string(id)).Scan,
		&last, &seq, &at, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("run", string(id))
	}
	if err != nil {
		return nil, err
	}
	t.setClock(last.Int64)
	r.events, r.head = seq.Int64, caisson.Digest(hex.EncodeToString(hash))
	if at.Valid {
		r.updated = time.UnixMicro(at.Int64).UTC()
	}
	t.l.heads.loaded(*r, last.Int64)
	return r, nil
}

// driven returns the run that drive may write.
func (t *tx) driven(drive caisson.Drive) (*runRow, error) {
	if drive.Run == "" {
		return nil, notFound("run", "")
	}
	r, err := t.load(drive.Run)
	if err != nil {
		return nil, err
	}
	if r.fence != drive.Fence || !r.instance.Valid {
		return nil, caisson.Errorf(caisson.CodeLeaseLost, "run %s has fence %d, not %d", r.id, r.fence, drive.Fence).
			With("run", string(r.id)).With("fence", int64(r.fence))
	}
	return r, nil
}

// drivenOpen is driven, of a run that has not ended.
func (t *tx) drivenOpen(drive caisson.Drive) (*runRow, error) {
	r, err := t.driven(drive)
	if err == nil && r.state.Terminal() {
		return nil, invalid("run %s has ended: %s", r.id, r.state)
	}
	return r, err
}

func (t *tx) saveRun(r *runRow) error {
	doc, err := writeDoc(r.doc)
	if err != nil {
		return err
	}
	if err := t.exec(`UPDATE runs SET state = ?, fence = ?, instance = ?, doc = ? WHERE rid = ?`,
		string(r.state), int64(r.fence), r.instance, doc, r.rid); err != nil {
		return err
	}
	t.l.heads.saved(r)
	return nil
}

// value makes a run of its row, whose head was read.
func (r *runRow) value(s source) (caisson.Run, error) {
	d := r.doc
	run := caisson.Run{
		ID: r.id, State: r.state, Stop: d.Stop, Cause: d.Cause, Exit: d.Exit, Created: d.Created, Updated: r.updated,
		Active: d.Active, ActiveSince: d.ActiveSince, CancelAsked: d.CancelAsked, CancelBy: d.CancelBy, Turns: d.Turns,
		Head: r.head, Events: r.events,
		Lease: caisson.Lease{Run: r.id, Instance: caisson.InstanceID(r.instance.String), Fence: r.fence, Taken: d.Taken},
	}
	err := get(s, d.Spec, &run.Spec)
	return run, errors.Join(err, get(s, d.Text, &run.Text))
}

// CreateRun implements [caisson.Ledger].
func (l *Ledger) CreateRun(ctx context.Context, id caisson.RunID, spec caisson.RunSpec) (caisson.Run, error) {
	if id == "" || strings.ContainsAny(string(id), "./\x00") {
		return caisson.Run{}, caisson.Errorf(caisson.CodeUsage, "%q cannot be a run's id", string(id))
	}
	if err := checkAmount(spec.Budget); err != nil {
		return caisson.Run{}, err
	}
	var run caisson.Run
	err := l.write(ctx, func(t *tx) (err error) {
		run, err = t.createRun(id, spec)
		return err
	})
	return run, err
}

func (t *tx) createRun(id caisson.RunID, spec caisson.RunSpec) (caisson.Run, error) {
	var none caisson.Run
	if err := t.clock(); err != nil {
		return none, err
	}
	if _, err := findRun(t, id); err == nil {
		return none, caisson.Errorf(caisson.CodeAlreadyExists, "a run %s exists", id).With("run", string(id))
	} else if caisson.CodeOf(err) != caisson.CodeNotFound {
		return none, err
	}
	if spec.Root == "" && spec.Parent == "" {
		spec.Root = id
	}
	if spec.Parent == "" && spec.Root != id {
		return none, caisson.Errorf(caisson.CodeUsage, "run %s has no parent, but the root %s", id, spec.Root)
	}
	if spec.Parent != "" {
		parent, err := findRun(t, spec.Parent)
		if err != nil {
			return none, err
		}
		if spec.Root == "" {
			spec.Root = parent.root
		}
		if parent.root != spec.Root {
			return none, caisson.Errorf(caisson.CodeUsage, "run %s has the root %s, its parent %s", id, spec.Root, parent.root)
		}
		if parent.state.Terminal() {
			return none, invalid("run %s cannot have children: it is %s", parent.id, parent.state)
		}
	}
	content, err := t.put(spec)
	if err != nil {
		return none, err
	}
	r := &runRow{id: id, state: caisson.RunPending, parent: spec.Parent, root: spec.Root, doc: runDoc{Spec: content, Created: t.now}}
	doc, err := writeDoc(r.doc)
	if err != nil {
		return none, err
	}
	res, err := t.result(`INSERT INTO runs (id, state, parent, root, doc) VALUES (?, ?, ?, ?, ?)`,
		string(id), string(r.state), string(r.parent), string(r.root), doc)
	if err != nil {
		return none, err
	}
	if r.rid, err = res.LastInsertId(); err != nil {
		return none, err
	}
	if err := t.createPool(r, spec.Budget); err != nil {
		return none, err
	}
	if err := t.emit(r, caisson.EventRunCreated, ledger.RunCreated{Spec: content, Parent: spec.Parent, Root: spec.Root, By: spec.By}); err != nil {
		return none, err
	}
	return r.value(t)
}

// Run implements [caisson.Ledger].
func (l *Ledger) Run(ctx context.Context, id caisson.RunID) (caisson.Run, error) {
	if id == "" {
		return caisson.Run{}, notFound("run", "")
	}
	runs, err := l.Runs(ctx, caisson.RunFilter{IDs: []caisson.RunID{id}})
	if err == nil && len(runs) == 0 {
		err = notFound("run", string(id))
	}
	if err != nil {
		return caisson.Run{}, err
	}
	return runs[0], nil
}

// Runs implements [caisson.Ledger].
func (l *Ledger) Runs(ctx context.Context, filter caisson.RunFilter) ([]caisson.Run, error) {
	q := newQuery(`SELECT ` + runColumns + `, e.seq, e.at, e.hash FROM runs r
		JOIN events e ON e.rid = r.rid AND e.seq = (SELECT max(seq) FROM events WHERE rid = r.rid) WHERE r.rid > 0`)
	in(q, `r.id`, filter.IDs)
	in(q, `r.state`, filter.States)
	if filter.Prefix != "" {
		q.and(`substr(r.id, 1, ?) = ?`, len(filter.Prefix), filter.Prefix)
	}
	if filter.Parent != "" {
		q.and(`r.parent = ?`, string(filter.Parent))
	}
	q.end(`ORDER BY r.rid DESC`, filter.Limit)
	var runs []caisson.Run
	err := l.read(ctx, func(s source) error {
		var found []*runRow
		err := each(s, func(rows *sql.Rows) error {
			r := new(runRow)
			var at int64
			var hash []byte
			if err := r.scan(rows.Scan, &r.events, &at, &hash); err != nil {
				return err
			}
			r.head, r.updated = caisson.Digest(hex.EncodeToString(hash)), time.UnixMicro(at).UTC()
			found = append(found, r)
			return nil
		}, q.text(), q.args...)
		if err != nil {
			return err
		}
		runs = make([]caisson.Run, len(found))
		for i, r := range found {
			if runs[i], err = r.value(s); err != nil {
				return err
			}
		}
		return nil
	})
	return runs, err
}

// MoveRun implements [caisson.Ledger].
func (l *Ledger) MoveRun(ctx context.Context, drive caisson.Drive, move caisson.RunMove) (caisson.Run, error) {
	var run caisson.Run
	err := l.write(ctx, func(t *tx) error {
		r, err := t.driven(drive)
		if err != nil {
			return err
		}
		if err := t.moveRun(r, move); err != nil {
			return err
		}
		run, err = r.value(t)
		return err
	})
	return run, err
}

func (t *tx) moveRun(r *runRow, move caisson.RunMove) error {
	if err := caisson.RunStates().Move(string(r.state), string(move.To)); err != nil {
		return err
	}
	if move.To.Terminal() {
		if err := t.endRun(r); err != nil {
			return err
		}
	}
	text, err := t.putText(move.Text)
	if err != nil {
		return err
	}
	from := r.state
	r.stopClock(t.now)
	if move.To == caisson.RunRunning {
		r.doc.ActiveSince = t.now
	}
	r.state, r.doc.Stop, r.doc.Cause, r.doc.Text, r.doc.Exit = move.To, move.Stop, move.Cause, text, move.Exit
	if err := t.saveRun(r); err != nil {
		return err
	}
	return t.emit(r, caisson.EventRunMoved, ledger.RunMoved{
		From: from, To: move.To, Stop: move.Stop, Cause: move.Cause, Text: text, Exit: move.Exit, Active: r.doc.Active,
	})
}

// stopClock adds what has passed of running time.
func (r *runRow) stopClock(now time.Time) {
	if !r.doc.ActiveSince.IsZero() {
		r.doc.Active += max(now.Sub(r.doc.ActiveSince), 0)
		r.doc.ActiveSince = time.Time{}
	}
}

// endRun sees to it that nothing of a run is open, rejects requests that never
// became a call, and gives back what is
// reserved for a turn that will not be answered.
func (t *tx) endRun(r *runRow) error {
	for noun, query := range map[string]string{
		"call":   `SELECT id FROM calls INDEXED BY calls_open WHERE rid = ? AND ` + openCalls + ` LIMIT 1`,
		"review": `SELECT 'q' || n FROM reviews WHERE rid = ? AND state = 'open' LIMIT 1`,
	} {
		var id string
		err := t.row(query, r.rid).Scan(&id)
		if err == nil {
			return invalid("run %s cannot end: %s %s is open", r.id, noun, id).With(noun, id)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	if err := t.rejectTaken(r); err != nil {
		return err
	}
	turn, err := t.lastTurn(r)
	if err != nil || turn == nil || turn.state != caisson.TurnAsked {
		return err
	}
	_, err = t.endTurn(r, turn, caisson.TurnAbandoned, turnEnd{why: "the run has ended"})
	return err
}

// AskCancel implements [caisson.Ledger].
func (l *Ledger) AskCancel(ctx context.Context, id caisson.RunID, cause caisson.Cause, by string) (caisson.Run, error) {
	if id == "" {
		return caisson.Run{}, notFound("run", "")
	}
	if cause == "" {
		return caisson.Run{}, caisson.Errorf(caisson.CodeUsage, "a cancel needs a cause")
	}
	var run caisson.Run
	err := l.write(ctx, func(t *tx) error {
		r, err := t.load(id)
		if err != nil {
			return err
		}
		if err := t.askCancel(r, cause, by); err != nil {
			return err
		}
		run, err = r.value(t)
		return err
	})
	return run, err
}

func (t *tx) askCancel(r *runRow, cause caisson.Cause, by string) error {
	if r.doc.CancelAsked != "" {
		return nil
	}
	if r.state.Terminal() {
		return invalid("run %s has ended: %s", r.id, r.state)
	}
	t.wake = true
	r.doc.CancelAsked, r.doc.CancelBy = cause, by
	if err := t.saveRun(r); err != nil {
		return err
	}
	if err := t.emit(r, caisson.EventCancelAsked, ledger.CancelAsked{Cause: cause, By: by}); err != nil {
		return err
	}
	if r.state != caisson.RunPending {
		return nil
	}
	return t.moveRun(r, caisson.RunMove{To: caisson.RunCancelled, Stop: caisson.StopCancelled, Cause: cause})
}
