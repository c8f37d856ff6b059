package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

type turnRow struct {
	n, attempt int
	state      caisson.TurnState
	doc        turnDoc
}

type turnDoc struct {
	Answer  ledger.Content `json:"answer,omitzero"`
	Input   ledger.Content `json:"input,omitzero"`
	Reserve caisson.Amount `json:"reserve,omitzero"`
	Used    caisson.Amount `json:"used,omitzero"`
	Asked   time.Time      `json:"asked"`
	Ended   time.Time      `json:"ended,omitzero"`
}

func (turn *turnRow) scan(scan func(...any) error) error {
	var state string
	var doc []byte
	if err := scan(&turn.n, &turn.attempt, &state, &doc); err != nil {
		return err
	}
	turn.state = caisson.TurnState(state)
	return readDoc("turn", fmt.Sprint(turn.n), doc, &turn.doc)
}

func (turn *turnRow) value(s source, run caisson.RunID) (caisson.Turn, error) {
	d := turn.doc
	value := caisson.Turn{
		Run: run, N: turn.n, Attempt: turn.attempt, State: turn.state,
		Reserve: d.Reserve, Used: d.Used, Asked: d.Asked, Ended: d.Ended,
	}
	if err := get(s, d.Input, &value.Input); err != nil {
		return value, err
	}
	if !d.Answer.IsZero() {
		value.Answer = new(caisson.ModelAnswer)
	}
	return value, get(s, d.Answer, value.Answer)
}

// lastTurn returns nil where there is none.
func (t *tx) lastTurn(r *runRow) (*turnRow, error) {
	turn := new(turnRow)
	err := turn.scan(t.row(`SELECT n, attempt, state, doc FROM turns WHERE rid = ? ORDER BY n DESC, attempt DESC LIMIT 1`, r.rid).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return turn, err
}

// AskTurn implements [caisson.Ledger].
func (l *Ledger) AskTurn(ctx context.Context, drive caisson.Drive, turn caisson.Turn) (caisson.Turn, error) {
	if err := checkAmount(turn.Reserve); err != nil {
		return caisson.Turn{}, err
	}
	var asked caisson.Turn
	err := l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		if r.state != caisson.RunRunning {
			return invalid("run %s asks for no answer while it is %s", r.id, r.state)
		}
		asked, err = t.askTurn(r, turn)
		return err
	})
	return asked, err
}

func (t *tx) askTurn(r *runRow, turn caisson.Turn) (caisson.Turn, error) {
	last, err := t.lastTurn(r)
	if err != nil {
		return turn, err
	}
	row := &turnRow{n: 1, attempt: 1, state: caisson.TurnAsked, doc: turnDoc{Reserve: turn.Reserve, Asked: t.now}}
	switch {
	case last == nil:
	case last.state == caisson.TurnAsked:
		return turn, invalid("turn %d of run %s has no answer yet", last.n, r.id)
	case last.state == caisson.TurnAbandoned:
		row.n, row.attempt = last.n, last.attempt+1
	default:
		row.n = last.n + 1
	}
	if turn.N != 0 && turn.N != row.n {
		return turn, invalid("the next turn of run %s is %d, not %d", r.id, row.n, turn.N)
	}
	if err := t.reserve(r, turn.Reserve); err != nil {
		return turn, err
	}
	if len(turn.Input) > 0 {
		if row.doc.Input, err = t.put(turn.Input); err != nil {
			return turn, err
		}
	}
	doc, err := writeDoc(row.doc)
	if err != nil {
		return turn, err
	}
	if err := t.exec(`INSERT INTO turns (rid, n, attempt, state, doc) VALUES (?, ?, ?, ?, ?)`, r.rid, row.n, row.attempt, string(row.state), doc); err != nil {
		return turn, err
	}
	if err := t.emit(r, caisson.EventTurnAsked, ledger.TurnAsked{N: row.n, Attempt: row.attempt, Input: row.doc.Input, Reserve: turn.Reserve}); err != nil {
		return turn, err
	}
	return row.value(t, r.id)
}

// AnswerTurn implements [caisson.Ledger].
func (l *Ledger) AnswerTurn(ctx context.Context, drive caisson.Drive, n int, answer caisson.ModelAnswer, used caisson.Amount) (caisson.Turn, error) {
	return l.endTurn(ctx, drive, n, caisson.TurnAnswered, turnEnd{answer: &answer, used: used})
}

// AbandonTurn implements [caisson.Ledger].
func (l *Ledger) AbandonTurn(ctx context.Context, drive caisson.Drive, n int, why, text string, used caisson.Amount) (caisson.Turn, error) {
	return l.endTurn(ctx, drive, n, caisson.TurnAbandoned, turnEnd{why: why, text: text, used: used})
}

type turnEnd struct {
	answer    *caisson.ModelAnswer
	why, text string
	used      caisson.Amount
}

func (l *Ledger) endTurn(ctx context.Context, drive caisson.Drive, n int, to caisson.TurnState, end turnEnd) (caisson.Turn, error) {
	if err := checkAmount(end.used); err != nil {
		return caisson.Turn{}, err
	}
	var ended caisson.Turn
	err := l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		turn, err := t.lastTurn(r)
		if err != nil {
			return err
		}
		if turn == nil || turn.n != n {
			return invalid("turn %d of run %s is not the present one", n, r.id)
		}
		ended, err = t.endTurn(r, turn, to, end)
		return err
	})
	return ended, err
}

func (t *tx) endTurn(r *runRow, turn *turnRow, to caisson.TurnState, end turnEnd) (caisson.Turn, error) {
	var none caisson.Turn
	if err := caisson.TurnStates().Move(string(turn.state), string(to)); err != nil {
		return none, err
	}
	body := ledger.TurnEnded{N: turn.n, Attempt: turn.attempt, Why: end.why, Used: end.used}
	kind := caisson.EventTurnAbandoned
	var err error
	if end.answer != nil {
		kind = caisson.EventTurnAnswered
		if body.Answer, err = t.put(end.answer); err != nil {
			return none, err
		}
	}
	if body.Text, err = t.putText(end.text); err != nil {
		return none, err
	}
	if err := t.settle(r, turn.doc.Reserve, end.used); err != nil {
		return none, err
	}
	turn.state, turn.doc.Answer, turn.doc.Used, turn.doc.Ended = to, body.Answer, end.used, t.now
	doc, err := writeDoc(turn.doc)
	if err != nil {
		return none, err
	}
	if err := t.exec(`UPDATE turns SET state = ?, doc = ? WHERE rid = ? AND n = ? AND attempt = ?`, string(to), doc, r.rid, turn.n, turn.attempt); err != nil {
		return none, err
	}
	if to == caisson.TurnAnswered {
		r.doc.Turns = turn.n
		if err := t.saveRun(r); err != nil {
			return none, err
		}
	}
	if err := t.emit(r, kind, body); err != nil {
		return none, err
	}
	return turn.value(t, r.id)
}

// Turns implements [caisson.Ledger].
func (l *Ledger) Turns(ctx context.Context, run caisson.RunID) ([]caisson.Turn, error) {
	var turns []caisson.Turn
	err := l.read(ctx, func(s source) error {
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		var found []*turnRow
		err = each(s, func(rows *sql.Rows) error {
			turn := new(turnRow)
			found = append(found, turn)
			return turn.scan(rows.Scan)
		}, `SELECT n, attempt, state, doc FROM turns u WHERE rid = ?
			AND attempt = (SELECT max(attempt) FROM turns WHERE rid = u.rid AND n = u.n) ORDER BY n`, r.rid)
		if err != nil {
			return err
		}
		turns = make([]caisson.Turn, len(found))
		for i, turn := range found {
			if turns[i], err = turn.value(s, run); err != nil {
				return err
			}
		}
		return nil
	})
	return turns, err
}
