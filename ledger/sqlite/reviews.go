package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// day is how long a review may be decided, and an approval used, where nobody says.
const day = 24 * time.Hour

// reviewRow is a row of reviews with its decision, which is read with it as
// most of what is done to a review depends on it.
type reviewRow struct {
	n        int64
	rid      int64
	run      caisson.RunID
	call     caisson.CallID
	state    caisson.ReviewState
	doc      reviewDoc
	decision *caisson.Decision
}

type reviewDoc struct {
	Kind     caisson.ReviewKind `json:"kind"`
	Digest   caisson.Digest     `json:"digest"`
	Value    ledger.Content     `json:"value"`
	Judged   ledger.Content     `json:"judged"`
	Schema   ledger.Content     `json:"schema,omitzero"`
	Question ledger.Content     `json:"question,omitzero"`
	Preview  ledger.Content     `json:"preview,omitzero"`
	Reason   string             `json:"reason,omitempty"`
	Created  time.Time          `json:"created"`
	Expires  time.Time          `json:"expires"`
	Decision ledger.Content     `json:"decision,omitzero"`
	UseBy    time.Time          `json:"use_by,omitzero"`
	Consumed bool               `json:"consumed,omitempty"`
}

func (q *reviewRow) id() caisson.ReviewID     { return caisson.ReviewID(fmt.Sprintf("q%d", q.n)) }
func (q *reviewRow) kind() caisson.ReviewKind { return q.doc.Kind }

const reviewColumns = `v.n, v.rid, r.id, v.call, v.state, v.doc FROM reviews v JOIN runs r ON r.rid = v.rid`

func (q *reviewRow) scan(scan func(...any) error) error {
	var run, call, state string
	var doc []byte
	if err := scan(&q.n, &q.rid, &run, &call, &state, &doc); err != nil {
		return err
	}
	q.run, q.call, q.state = caisson.RunID(run), caisson.CallID(call), caisson.ReviewState(state)
	return readDoc("review", string(q.id()), doc, &q.doc)
}

func (q *reviewRow) readDecision(s source) error {
	if q.doc.Decision.IsZero() {
		return nil
	}
	q.decision = new(caisson.Decision)
	return get(s, q.doc.Decision, q.decision)
}

func findReview(s source, id caisson.ReviewID) (*reviewRow, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(string(id), "q"), 10, 64)
	if err != nil || fmt.Sprintf("q%d", n) != string(id) {
		return nil, noReview(id)
	}
	q := new(reviewRow)
	err = q.scan(s.row(`SELECT `+reviewColumns+` WHERE v.n = ?`, n).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noReview(id)
	}
	if err != nil {
		return nil, err
	}
	return q, q.readDecision(s)
}

func noReview(id caisson.ReviewID) error {
	return notFound("review", string(id)).WithHint("`caisson review ls` lists those that are open, `caisson review ls --all` all.")
}

func (q *reviewRow) value(s source) (caisson.Review, error) {
	d := q.doc
	review := caisson.Review{
		ID: q.id(), Run: q.run, Kind: d.Kind, State: q.state, Reason: d.Reason,
		Created: d.Created, Expires: d.Expires, UseBy: d.UseBy, Consumed: d.Consumed,
	}
	if err := q.readDecision(s); err != nil {
		return review, err
	}
	review.Decision = q.decision
	if !d.Question.IsZero() {
		review.Question = new(caisson.Question)
	}
	return review, errors.Join(get(s, d.Value, &review.Call), get(s, d.Judged, &review.Verdict),
		get(s, d.Schema, &review.Schema), get(s, d.Question, review.Question), get(s, d.Preview, &review.Preview))
}

func (t *tx) saveReview(q *reviewRow) error {
	doc, err := writeDoc(q.doc)
	if err != nil {
		return err
	}
	return t.exec(`UPDATE reviews SET state = ?, doc = ? WHERE n = ?`, string(q.state), doc, q.n)
}

// AskReview implements [caisson.Ledger]. expire 0 means a day. A review of kind
// unknown leaves the state of its call, which has begun, as it is.
func (l *Ledger) AskReview(ctx context.Context, drive caisson.Drive, review caisson.Review, expire time.Duration) (caisson.Review, error) {
	if err := checkCall(review.Call); err != nil {
		return caisson.Review{}, err
	}
	switch {
	case review.Kind != caisson.ReviewCall && review.Kind != caisson.ReviewQuestion && review.Kind != caisson.ReviewUnknown:
		return caisson.Review{}, caisson.Errorf(caisson.CodeUsage, "no kind of review %q", review.Kind)
	case review.Kind == caisson.ReviewQuestion && review.Question == nil:
		return caisson.Review{}, caisson.Errorf(caisson.CodeUsage, "a review of kind question needs a question")
	case expire < 0:
		return caisson.Review{}, caisson.Errorf(caisson.CodeLimitInvalid, "a review cannot expire before it is asked")
	case expire == 0:
		expire = day
	}
	var asked caisson.Review
	err := l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		asked, err = t.askReview(r, review, expire)
		return err
	})
	return asked, err
}

func (t *tx) askReview(r *runRow, review caisson.Review, expire time.Duration) (caisson.Review, error) {
	c, err := t.ownCall(r, review.Call.ID)
	if err != nil {
		return review, err
	}
	if review.Kind == caisson.ReviewUnknown {
		err = t.askUnknown(r, c, review)
	} else if _, err = t.replaceable(c); err == nil {
		err = t.judge(r, c, review.Call, review.Verdict)
	}
	if err != nil {
		return review, err
	}
	q, err := t.insertReview(r, c, review, expire)
	if err != nil {
		return review, err
	}
	if review.Kind != caisson.ReviewUnknown {
		c.state = caisson.CallAsked
	}
	c.doc.Review = q.id()
	if err := t.saveCall(r, c); err != nil {
		return review, err
	}
	d := q.doc
	err = t.emit(r, caisson.EventReviewOpened, ledger.ReviewOpened{
		Review: q.id(), Call: c.id, Tool: c.doc.Tool, Kind: d.Kind, Digest: d.Digest, Value: d.Value, Ruling: review.Verdict.Ruling, Rule: review.Verdict.Rule,
		Judged: d.Judged, Schema: d.Schema, Question: d.Question, Preview: d.Preview, Expires: d.Expires,
	})
	if err != nil {
		return review, err
	}
	return q.value(t)
}

// askUnknown looks whether there is a question: the call began, with this
// value, and how it ended is not known.
func (t *tx) askUnknown(r *runRow, c *callRow, review caisson.Review) error {
	if c.state != caisson.CallStarted && c.state != caisson.CallState(caisson.OutcomeUnknown) {
		return invalid("call %s is %s: its end is no question", c.id, c.state)
	}
	if c.doc.Digest != review.Call.Digest {
		return caisson.Errorf(caisson.CodeCallUnknown, "call %s has begun with another value", c.id)
	}
	return t.withdrawOpen(r, c.id, "asked again")
}

func (t *tx) insertReview(r *runRow, c *callRow, review caisson.Review, expire time.Duration) (*reviewRow, error) {
	q := &reviewRow{rid: r.rid, run: r.id, call: c.id, state: caisson.ReviewOpen}
	q.doc = reviewDoc{Kind: review.Kind, Digest: c.doc.Digest, Value: c.doc.Value, Created: t.now, Expires: t.now.Add(expire).Truncate(time.Microsecond)}
	var err error
	if q.doc.Judged, err = t.put(review.Verdict); err != nil {
		return nil, err
	}
	if len(review.Schema) > 0 {
		if q.doc.Schema, err = t.put(json.RawMessage(review.Schema)); err != nil {
			return nil, err
		}
	}
	if review.Question != nil {
		if q.doc.Question, err = t.put(review.Question); err != nil {
			return nil, err
		}
	}
	if q.doc.Preview, err = t.putText(review.Preview); err != nil {
		return nil, err
	}
	doc, err := writeDoc(q.doc)
	if err != nil {
		return nil, err
	}
	res, err := t.result(`INSERT INTO reviews (rid, call, state, doc) VALUES (?, ?, ?, ?)`, q.rid, string(q.call), string(q.state), doc)
	if err != nil {
		return nil, err
	}
	q.n, err = res.LastInsertId()
	return q, err
}

// withdrawOpen withdraws the open review of a call, if there is one.
func (t *tx) withdrawOpen(r *runRow, call caisson.CallID, reason string) error {
	var open []*reviewRow
	err := each(t, func(rows *sql.Rows) error {
		q := new(reviewRow)
		open = append(open, q)
		return q.scan(rows.Scan)
	}, `SELECT `+reviewColumns+` WHERE v.call = ? AND v.state = 'open'`, string(call))
	if err != nil {
		return err
	}
	for _, q := range open {
		if err := t.endReview(r, q, caisson.ReviewWithdrawn, reason); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) endReview(r *runRow, q *reviewRow, state caisson.ReviewState, reason string) error {
	if err := caisson.ReviewStates().Move(string(q.state), string(state)); err != nil {
		return err
	}
	q.state, q.doc.Reason = state, reason
	if err := t.saveReview(q); err != nil {
		return err
	}
	kind := caisson.EventReviewWithdrawn
	if state == caisson.ReviewExpired {
		kind = caisson.EventReviewExpired
	}
	return t.emit(r, kind, ledger.ReviewEnded{Review: q.id(), Call: q.call, Reason: reason})
}

// EndReview implements [caisson.Ledger].
func (l *Ledger) EndReview(ctx context.Context, drive caisson.Drive, id caisson.ReviewID, state caisson.ReviewState, reason string) (caisson.Review, error) {
	var review caisson.Review
	err := l.write(ctx, func(t *tx) error {
		r, err := t.driven(drive)
		if err != nil {
			return err
		}
		q, err := findReview(t, id)
		if err != nil {
			return err
		}
		switch {
		case q.run != r.id:
			return notFound("review", string(id))
		case state != caisson.ReviewExpired && state != caisson.ReviewWithdrawn:
			return invalid("a review is not ended as %q", state)
		case state == caisson.ReviewExpired && !t.now.After(q.doc.Expires):
			return invalid("review %s can be decided until %s", id, q.doc.Expires)
		}
		if err := t.endReview(r, q, state, reason); err != nil {
			return err
		}
		review, err = q.value(t)
		return err
	})
	return review, err
}

// Review implements [caisson.Ledger].
func (l *Ledger) Review(ctx context.Context, id caisson.ReviewID) (caisson.Review, error) {
	var review caisson.Review
	err := l.read(ctx, func(s source) error {
		q, err := findReview(s, id)
		if err != nil {
			return err
		}
		review, err = q.value(s)
		return err
	})
	return review, err
}

// Reviews implements [caisson.Ledger].
func (l *Ledger) Reviews(ctx context.Context, filter caisson.ReviewFilter) ([]caisson.Review, error) {
	sel := newQuery(`SELECT ` + reviewColumns + ` WHERE v.n > 0`)
	if filter.Run != "" {
		sel.and(`r.id = ?`, string(filter.Run))
	}
	if filter.Call != "" {
		sel.and(`v.call = ?`, string(filter.Call))
	}
	in(sel, `v.state`, filter.States)
	sel.end(`ORDER BY v.n`, filter.Limit)
	var reviews []caisson.Review
	err := l.read(ctx, func(s source) error {
		var found []*reviewRow
		err := each(s, func(rows *sql.Rows) error {
			q := new(reviewRow)
			found = append(found, q)
			return q.scan(rows.Scan)
		}, sel.text(), sel.args...)
		if err != nil {
			return err
		}
		reviews = make([]caisson.Review, len(found))
		for i, q := range found {
			if reviews[i], err = q.value(s); err != nil {
				return err
			}
		}
		return nil
	})
	return reviews, err
}
