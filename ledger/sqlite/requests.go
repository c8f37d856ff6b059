package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// requestRow is a row of requests; n is 0 while there is none.
type requestRow struct {
	n          int64
	generation int64
	id         caisson.RequestID
	open       bool
	doc        requestDoc
}

// requestDoc is what of a request no query asks for. The input is here alone and
// nowhere shared, and is taken out when the request is closed: its call has it,
// or nobody needs it.
type requestDoc struct {
	Verb     string         `json:"verb"`
	Input    ledger.Content `json:"input,omitzero"`
	Rejected ledger.Content `json:"rejected,omitzero"`
	At       time.Time      `json:"at"`
}

const requestColumns = `n, generation, id, open, doc`

func (q *requestRow) scan(scan func(...any) error) error {
	var id string
	var doc []byte
	if err := scan(&q.n, &q.generation, &id, &q.open, &doc); err != nil {
		return err
	}
	q.id = caisson.RequestID(id)
	return readDoc("request", id, doc, &q.doc)
}

func (q *requestRow) value(s source, run caisson.RunID) (caisson.RequestRecord, error) {
	d := q.doc
	record := caisson.RequestRecord{
		Run: run, Generation: q.generation, ID: q.id, Verb: d.Verb, At: d.At, Call: caisson.NewRequestCallID(run, q.generation, q.id),
	}
	if !d.Rejected.IsZero() {
		record.Rejected = new(caisson.Error)
	}
	return record, errors.Join(get(s, d.Input, &record.Input), get(s, d.Rejected, record.Rejected))
}

// findRequest returns a row without n where there is none.
func findRequest(s source, r *runRow, generation int64, id caisson.RequestID) (*requestRow, error) {
	q := new(requestRow)
	err := q.scan(s.row(`SELECT `+requestColumns+` FROM requests WHERE rid = ? AND id = ? AND generation = ?`, r.rid, string(id), generation).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return &requestRow{generation: generation, id: id}, nil
	}
	return q, err
}

// TakeRequest implements [caisson.Ledger].
func (l *Ledger) TakeRequest(ctx context.Context, drive caisson.Drive, request caisson.RequestRecord) error {
	if err := checkRequest(request); err != nil {
		return err
	}
	return l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		channel, err := findChannel(t, r)
		switch {
		case err != nil:
			return err
		case channel.Generation == 0:
			return notFound("channel", string(r.id))
		case channel.Generation != request.Generation:
			return caisson.Errorf(caisson.CodeGenerationStale, "the channel of run %s has generation %d, not %d", r.id, channel.Generation, request.Generation).
				With("generation", channel.Generation)
		}
		return t.takeRequest(r, channel, request)
	})
}

func checkRequest(request caisson.RequestRecord) error {
	unfit := func(what string) error {
		return caisson.Errorf(caisson.CodeRequestInvalid, "a request cannot be recorded: %s", what)
	}
	switch {
	case !request.ID.Valid():
		return unfit("its id has not the form of one")
	case !utf8.ValidString(request.Verb):
		return unfit("its verb is no text")
	case len(request.Verb)+len(request.Input) > caisson.ControlBody:
		return unfit("it is too long")
	case len(request.Input) == 0:
		return nil
	}
	if _, err := caisson.Canonical(request.Input); err != nil {
		return unfit("its input has no canonical form")
	}
	return nil
}

func (t *tx) takeRequest(r *runRow, channel caisson.Channel, request caisson.RequestRecord) error {
	q := &requestRow{generation: channel.Generation, id: request.ID, open: true, doc: requestDoc{Verb: request.Verb, At: t.now}}
	event := q.event()
	if len(request.Input) > 0 && request.Rejected == nil {
		raw, err := marshal(request.Input)
		if err != nil {
			return caisson.Errorf(caisson.CodeRequestInvalid, "a request cannot be recorded: %w", err)
		}
		q.doc.Input.Value = raw
		event.InputDigest, event.InputBytes = caisson.DigestOf(raw), int64(len(raw))
	}
	doc, err := writeDoc(q.doc)
	if err != nil {
		return err
	}
	res, err := t.result(`INSERT INTO requests (rid, generation, id, open, doc) VALUES (?, ?, ?, 1, ?) ON CONFLICT (rid, id, generation) DO NOTHING`,
		r.rid, q.generation, string(q.id), doc)
	if err != nil {
		return err
	}
	if made, err := res.RowsAffected(); err != nil {
		return err
	} else if made == 0 {
		return caisson.Errorf(caisson.CodeRequestReplayed, "request %s was taken before", q.id).With("request", string(q.id))
	}
	if q.n, err = res.LastInsertId(); err != nil {
		return err
	}
	if channel.Taken >= caisson.ControlConsumed {
		return caisson.Errorf(caisson.CodeChannelFull, "generation %d of the channel of run %s has taken %d places", channel.Generation, r.id, channel.Taken)
	}
	places := request.Places()
	channel.Taken += places
	if err := t.saveChannel(r, channel); err != nil {
		return err
	}
	if places > 1 {
		event.Places = places
	}
	if err := t.emit(r, caisson.EventRequestTaken, event); err != nil {
		return err
	}
	if request.Rejected == nil {
		return nil
	}
	return t.rejectRequest(r, q, request.Rejected)
}

// event is what every event of a request says.
func (q *requestRow) event() ledger.RequestEvent {
	return ledger.RequestEvent{Generation: q.generation, Request: q.id, Verb: q.doc.Verb}
}

// rejectRequest closes a request that never becomes a call.
func (t *tx) rejectRequest(r *runRow, q *requestRow, why *caisson.Error) error {
	event := q.event()
	var err error
	if event.Rejected, err = t.put(why); err != nil {
		return err
	}
	q.doc.Rejected = event.Rejected
	if err := t.closeRequest(q); err != nil {
		return err
	}
	return t.emit(r, caisson.EventRequestRejected, event)
}

func (t *tx) closeRequest(q *requestRow) error {
	q.open, q.doc.Input = false, ledger.Content{}
	raw, err := writeDoc(q.doc)
	if err != nil {
		return err
	}
	return t.exec(`UPDATE requests SET open = 0, doc = ? WHERE n = ?`, raw, q.n)
}

// RejectRequest implements [caisson.Ledger].
func (l *Ledger) RejectRequest(ctx context.Context, drive caisson.Drive, generation int64, id caisson.RequestID, why *caisson.Error) error {
	if why == nil {
		return caisson.Errorf(caisson.CodeUsage, "a rejection needs to say why")
	}
	return l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		q, err := findRequest(t, r, generation, id)
		switch {
		case err != nil:
			return err
		case q.n == 0:
			return invalid("request %q was not taken in generation %d", string(id), generation)
		case !q.doc.Rejected.IsZero():
			return invalid("request %s was rejected before", id)
		}
		c, err := findCall(t, caisson.NewRequestCallID(r.id, generation, id))
		if err != nil {
			return err
		}
		if c.cid != 0 {
			return invalid("request %s is call %s, which is %s", id, c.id, c.state)
		}
		return t.rejectRequest(r, q, why)
	})
}

// rejectTaken rejects what was taken of a run that ends and never became a
// call. No call of it is open, so whatever request is open has none.
func (t *tx) rejectTaken(r *runRow) error {
	taken, err := readRequests(t, takenQuery(r))
	if err != nil {
		return err
	}
	for _, q := range taken {
		if err := t.rejectRequest(r, q, caisson.Errorf(caisson.CodeNotExecuted, "run %s has ended before the request was looked at", r.id)); err != nil {
			return err
		}
	}
	return nil
}

func takenQuery(r *runRow) *query {
	return newQuery(`SELECT `+requestColumns+` FROM requests INDEXED BY requests_open WHERE rid = ? AND open = 1 ORDER BY generation, n`, r.rid)
}

// mayRecord tells whether the call of a request may come on record.
func (t *tx) mayRecord(r *runRow, id caisson.CallID) error {
	generation, request, ok := id.Request()
	if !ok {
		return nil
	}
	q, err := findRequest(t, r, generation, request)
	if err == nil && !q.open {
		err = invalid("call %s is of a request that was not taken, or was rejected", id)
	}
	return err
}

// closeCalled closes the request of a call that has its outcome.
func (t *tx) closeCalled(r *runRow, id caisson.CallID) error {
	generation, request, ok := id.Request()
	if !ok {
		return nil
	}
	q, err := findRequest(t, r, generation, request)
	if err != nil {
		return err
	}
	return t.closeRequest(q)
}

// Requests implements [caisson.Ledger]. The input of a request that is closed is
// that of its call, and not told here.
func (l *Ledger) Requests(ctx context.Context, run caisson.RunID, filter caisson.RequestFilter) ([]caisson.RequestRecord, error) {
	var records []caisson.RequestRecord
	err := l.read(ctx, func(s source) error {
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		if filter.Names {
			records, err = readRequestNames(s, r, filter)
			return err
		}
		found, err := readRequests(s, requestQuery(r, requestColumns, filter))
		if err != nil {
			return err
		}
		records = make([]caisson.RequestRecord, len(found))
		for i, q := range found {
			if records[i], err = q.value(s, r.id); err != nil {
				return err
			}
		}
		return nil
	})
	return records, err
}

// requestQuery names the index, as each filter has one by which few rows are
// passed by, in the order asked for.
func requestQuery(r *runRow, columns string, filter caisson.RequestFilter) *query {
	index := `requests_newest`
	switch {
	case len(filter.IDs) > 0:
		index = `requests_id`
	case filter.Open:
		index = `requests_open`
	}
	sel := newQuery(`SELECT `+columns+` FROM requests INDEXED BY `+index+` WHERE rid = ?`, r.rid)
	in(sel, `id`, filter.IDs)
	if filter.Generation != 0 {
		sel.and(`generation = ?`, filter.Generation)
	}
	if filter.Open {
		sel.and(`open = 1`)
	}
	sel.end(`ORDER BY generation DESC, n DESC`, filter.Limit)
	return sel
}

// readRequestNames reads no documents: they are most of what a row costs.
func readRequestNames(s source, r *runRow, filter caisson.RequestFilter) (records []caisson.RequestRecord, err error) {
	sel := requestQuery(r, `generation, id`, filter)
	err = each(s, func(rows *sql.Rows) error {
		record := caisson.RequestRecord{Run: r.id}
		if err := rows.Scan(&record.Generation, &record.ID); err != nil {
			return err
		}
		record.Call = caisson.NewRequestCallID(r.id, record.Generation, record.ID)
		records = append(records, record)
		return nil
	}, sel.text(), sel.args...)
	return records, err
}

func readRequests(s source, sel *query) ([]*requestRow, error) {
	var found []*requestRow
	err := each(s, func(rows *sql.Rows) error {
		q := new(requestRow)
		found = append(found, q)
		return q.scan(rows.Scan)
	}, sel.text(), sel.args...)
	return found, err
}
