package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// callRow is a row of calls; cid is 0 while there is none.
type callRow struct {
	cid   int64
	id    caisson.CallID
	state caisson.CallState
	doc   callDoc
}

type callDoc struct {
	Turn     int               `json:"turn"`
	Tool     caisson.ToolRef   `json:"tool"`
	Effect   caisson.Effect    `json:"effect"`
	Digest   caisson.Digest    `json:"digest"`
	Value    ledger.Content    `json:"value"`
	Ruling   caisson.Ruling    `json:"ruling,omitempty"`
	Rule     string            `json:"rule,omitempty"`
	Judged   ledger.Content    `json:"judged,omitzero"`
	Review   caisson.ReviewID  `json:"review,omitempty"`
	Attempts int               `json:"attempts,omitempty"`
	Executor ledger.Content    `json:"executor,omitzero"`
	Sandbox  caisson.SandboxID `json:"sandbox,omitempty"`
	Reserve  caisson.Amount    `json:"reserve,omitzero"`
	Used     caisson.Amount    `json:"used,omitzero"`
	Result   ledger.Content    `json:"result,omitzero"`
	Of       caisson.CallID    `json:"of,omitempty"`
	Created  time.Time         `json:"created"`
	Started  time.Time         `json:"started,omitzero"`
	Ended    time.Time         `json:"ended,omitzero"`
}

func (c *callRow) scan(scan func(...any) error) error {
	var id, state string
	var doc []byte
	if err := scan(&c.cid, &id, &state, &doc); err != nil {
		return err
	}
	c.id, c.state = caisson.CallID(id), caisson.CallState(state)
	return readDoc("call", id, doc, &c.doc)
}

func (c *callRow) value(s source) (caisson.CallRecord, error) {
	d := c.doc
	record := caisson.CallRecord{
		State: c.state, Review: d.Review, Attempts: d.Attempts, Sandbox: d.Sandbox,
		Reserve: d.Reserve, Used: d.Used, Of: d.Of, Created: d.Created, Started: d.Started, Ended: d.Ended,
	}
	if d.Attempts > 0 {
		record.Effect = caisson.EffectIDOf(c.id)
	}
	if !d.Judged.IsZero() {
		record.Verdict = new(caisson.Verdict)
	}
	if !d.Executor.IsZero() {
		record.Executor = new(caisson.ProcessIdentity)
	}
	if !d.Result.IsZero() {
		record.Result = new(caisson.Result)
	}
	return record, errors.Join(get(s, d.Value, &record.Call), get(s, d.Judged, record.Verdict),
		get(s, d.Executor, record.Executor), get(s, d.Result, record.Result))
}

// findCall returns a row of state prepared, without cid, where there is none.
func findCall(s source, id caisson.CallID) (*callRow, error) {
	c := new(callRow)
	err := c.scan(s.row(`SELECT cid, id, state, doc FROM calls WHERE id = ?`, string(id)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return &callRow{id: id, state: caisson.CallPrepared}, nil
	}
	return c, err
}

// ownCall returns the row of a call that must be of the run.
func (t *tx) ownCall(r *runRow, id caisson.CallID) (*callRow, error) {
	if id.Run() != r.id || string(id) == string(r.id) {
		return nil, caisson.Errorf(caisson.CodeCallUnknown, "call %q is not of run %s", string(id), r.id)
	}
	c, err := findCall(t, id)
	if err == nil && c.cid == 0 {
		c.doc.Created = t.now
	}
	return c, err
}

// checkCall verifies that a call is what its digest says, before the write.
func checkCall(call caisson.Call) error {
	if call.ID.Run() != call.Run {
		return caisson.Errorf(caisson.CodeCallUnknown, "call %q is not of run %s", string(call.ID), call.Run)
	}
	sum, err := call.Sum()
	if err != nil {
		return caisson.Errorf(caisson.CodeCallInvalid, "call %s: %w", call.ID, err)
	}
	if sum != call.Digest {
		return caisson.Errorf(caisson.CodeCallInvalid, "call %s is not what its digest says", call.ID)
	}
	return nil
}

// setValue records the call's present value.
func (t *tx) setValue(c *callRow, call caisson.Call) (err error) {
	if c.cid != 0 && c.doc.Digest == call.Digest {
		return nil
	}
	c.doc.Turn, c.doc.Tool, c.doc.Effect, c.doc.Digest = call.Turn, call.Tool, call.Effect, call.Digest
	c.doc.Value, err = t.put(call)
	return err
}

func (t *tx) setVerdict(c *callRow, verdict caisson.Verdict) (err error) {
	c.doc.Ruling, c.doc.Rule = verdict.Ruling, verdict.Rule
	c.doc.Judged, err = t.put(verdict)
	return err
}

// saveCall writes the row, which it makes if there is none.
func (t *tx) saveCall(r *runRow, c *callRow) error {
	doc, err := writeDoc(c.doc)
	if err != nil {
		return err
	}
	if c.cid != 0 {
		return t.exec(`UPDATE calls SET state = ?, doc = ? WHERE cid = ?`, string(c.state), doc, c.cid)
	}
	if err := t.mayRecord(r, c.id); err != nil {
		return err
	}
	res, err := t.result(`INSERT INTO calls (id, rid, state, doc) VALUES (?, ?, ?, ?)`, string(c.id), r.rid, string(c.state), doc)
	if err != nil {
		return err
	}
	c.cid, err = res.LastInsertId()
	return err
}

// event is what every event of a call says.
func (c *callRow) event() ledger.CallEvent {
	return ledger.CallEvent{
		Call: c.id, Tool: c.doc.Tool, Digest: c.doc.Digest, Value: c.doc.Value,
		Ruling: c.doc.Ruling, Rule: c.doc.Rule, Judged: c.doc.Judged,
	}
}

// JudgeCall implements [caisson.Ledger]. An open review of the call is
// withdrawn. A call that a person has refused is not judged again.
func (l *Ledger) JudgeCall(ctx context.Context, drive caisson.Drive, call caisson.Call, verdict caisson.Verdict) (caisson.CallRecord, error) {
	if err := checkCall(call); err != nil {
		return caisson.CallRecord{}, err
	}
	var record caisson.CallRecord
	err := l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		c, err := t.ownCall(r, call.ID)
		if err != nil {
			return err
		}
		modified, err := t.replaceable(c)
		if err != nil {
			return err
		}
		if c.cid != 0 && c.doc.Digest != call.Digest && !modified {
			return caisson.Errorf(caisson.CodeCallUnknown, "call %s is on record with another value", call.ID)
		}
		if err := t.judge(r, c, call, verdict); err != nil {
			return err
		}
		if err := t.emit(r, caisson.EventCallJudged, c.event()); err != nil {
			return err
		}
		record, err = c.value(t)
		return err
	})
	return record, err
}

// replaceable returns an error where a call cannot be judged (again), and
// whether a person has modified it.
func (t *tx) replaceable(c *callRow) (modified bool, err error) {
	switch c.state {
	case caisson.CallPrepared:
		return false, nil
	case caisson.CallJudged, caisson.CallAsked, caisson.CallDecided:
	default:
		return false, caisson.CallStates().Move(string(c.state), string(caisson.CallJudged))
	}
	if c.doc.Review == "" {
		return false, nil
	}
	q, err := findReview(t, c.doc.Review)
	if err != nil || q.decision == nil {
		return false, err
	}
	switch q.decision.Kind {
	case caisson.Reject, caisson.Abort:
		return false, invalid("call %s was refused by %s in review %s", c.id, q.decision.By, q.id())
	case caisson.Modify:
		return true, nil
	case caisson.Approve, caisson.Answer:
	}
	return false, nil
}

// judge moves a call to judged and writes its row.
func (t *tx) judge(r *runRow, c *callRow, call caisson.Call, verdict caisson.Verdict) error {
	if c.state != caisson.CallJudged {
		if err := caisson.CallStates().Move(string(c.state), string(caisson.CallJudged)); err != nil {
			return err
		}
	}
	if err := t.withdrawOpen(r, c.id, "judged again"); err != nil {
		return err
	}
	if err := t.setValue(c, call); err != nil {
		return err
	}
	if err := t.setVerdict(c, verdict); err != nil {
		return err
	}
	c.state = caisson.CallJudged
	return t.saveCall(r, c)
}

// Call implements [caisson.Ledger].
func (l *Ledger) Call(ctx context.Context, id caisson.CallID) (caisson.CallRecord, error) {
	var record caisson.CallRecord
	err := l.read(ctx, func(s source) error {
		c, err := findCall(s, id)
		if err != nil {
			return err
		}
		if c.cid == 0 {
			return caisson.Errorf(caisson.CodeCallUnknown, "no call %q", string(id)).With("call", string(id))
		}
		record, err = c.value(s)
		return err
	})
	return record, err
}

// Calls implements [caisson.Ledger]. What follows the run in the id of a call
// is a turn, which begins with a digit, or a generation, which does not.
func (l *Ledger) Calls(ctx context.Context, run caisson.RunID) ([]caisson.CallRecord, error) {
	return l.calls(ctx, run, turnCallsQuery, compareIDs)
}

func turnCallsQuery(r *runRow) *query {
	return newQuery(`SELECT cid, id, state, doc FROM calls WHERE id >= ? AND id < ?`, string(r.id)+".0", string(r.id)+".:")
}

// openCalls are the states of calls that have no outcome, as the index of them
// has it.
const openCalls = `state IN ('prepared', 'judged', 'asked', 'decided', 'started')`

// OpenCalls implements [caisson.Ledger].
func (l *Ledger) OpenCalls(ctx context.Context, run caisson.RunID) ([]caisson.CallRecord, error) {
	return l.calls(ctx, run, openCallsQuery, nil)
}

func openCallsQuery(r *runRow) *query {
	return newQuery(`SELECT cid, id, state, doc FROM calls INDEXED BY calls_open WHERE rid = ? AND `+openCalls+` ORDER BY cid`, r.rid)
}

// calls reads calls of a run, and orders them where the query does not.
func (l *Ledger) calls(ctx context.Context, run caisson.RunID, of func(*runRow) *query, order func(a, b caisson.CallID) int) ([]caisson.CallRecord, error) {
	var records []caisson.CallRecord
	err := l.read(ctx, func(s source) error {
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		q := of(r)
		var found []*callRow
		err = each(s, func(rows *sql.Rows) error {
			c := new(callRow)
			found = append(found, c)
			return c.scan(rows.Scan)
		}, q.text(), q.args...)
		if err != nil {
			return err
		}
		if order != nil {
			slices.SortFunc(found, func(a, b *callRow) int { return order(a.id, b.id) })
		}
		records = make([]caisson.CallRecord, len(found))
		for i, c := range found {
			if records[i], err = c.value(s); err != nil {
				return err
			}
		}
		return nil
	})
	return records, err
}

// compareIDs orders ids of the calls of turns part by part, numbers as numbers.
func compareIDs(a, b caisson.CallID) int {
	return slices.CompareFunc(strings.Split(string(a), "."), strings.Split(string(b), "."), func(a, b string) int {
		m, errA := strconv.Atoi(a)
		n, errB := strconv.Atoi(b)
		if errA == nil && errB == nil {
			return cmp.Compare(m, n)
		}
		return strings.Compare(a, b)
	})
}
