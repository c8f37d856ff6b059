package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// Decide implements [caisson.Ledger]. useFor 0 means a day. The decision's time,
// and a grant's id, run, review and policy, are the ledger's.
func (l *Ledger) Decide(ctx context.Context, id caisson.ReviewID, digest caisson.Digest, decision caisson.Decision, useFor time.Duration) (caisson.Review, error) {
	switch {
	case decision.By == "":
		return caisson.Review{}, caisson.Errorf(caisson.CodeUsage, "a decision needs to say who decides")
	case useFor < 0:
		return caisson.Review{}, caisson.Errorf(caisson.CodeLimitInvalid, "an approval cannot end before it is given")
	case useFor == 0:
		useFor = day
	}
	var review caisson.Review
	err := l.write(ctx, func(t *tx) error {
		q, err := findReview(t, id)
		if err != nil {
			return err
		}
		r, err := t.load(q.run)
		if err != nil {
			return err
		}
		if err := t.decidable(r, q, digest); err != nil {
			return err
		}
		if err := t.fits(q, decision); err != nil {
			return err
		}
		if err := t.decide(r, q, decision, useFor); err != nil {
			return err
		}
		review, err = q.value(t)
		return err
	})
	return review, err
}

// decidable is the compare of the compare-and-set. A review found to be over is
// recorded as expired.
func (t *tx) decidable(r *runRow, q *reviewRow, digest caisson.Digest) error {
	switch q.state {
	case caisson.ReviewDecided:
		return caisson.Errorf(caisson.CodeReviewAlreadyDecided, "review %s was decided by %s: %s", q.id(), q.decision.By, q.decision.Kind).
			WithHint("`caisson review show %s` shows the decision.", q.id()).
			With("review", string(q.id())).With("kind", string(q.decision.Kind)).With("by", q.decision.By)
	case caisson.ReviewExpired:
		return errExpired(q)
	case caisson.ReviewWithdrawn:
		return caisson.Errorf(caisson.CodeReviewWithdrawn, "review %s was withdrawn: %s", q.id(), q.doc.Reason)
	case caisson.ReviewOpen:
	}
	if t.now.After(q.doc.Expires) {
		if err := t.endReview(r, q, caisson.ReviewExpired, "nobody decided in time"); err != nil {
			return err
		}
		t.keep, t.wake = true, true
		return errExpired(q)
	}
	if digest != q.doc.Digest {
		return caisson.Errorf(caisson.CodeReviewDigestMismatch, "review %s is of another value than the decision", q.id()).
			WithHint("Look at it again with `caisson review show %s`.", q.id()).With("digest", string(q.doc.Digest))
	}
	return nil
}

func errExpired(q *reviewRow) error {
	return caisson.Errorf(caisson.CodeReviewExpired, "review %s could be decided until %s", q.id(), q.doc.Expires.Format(time.RFC3339))
}

// decidedBy names the commands that decide a review of its kind.
func decidedBy(q *reviewRow) string {
	if caisson.Answer.Fits(q.kind()) {
		return fmt.Sprintf("It is answered: `caisson review answer %s TEXT`.", q.id())
	}
	return fmt.Sprintf("It is a call: `caisson review approve %s`, `modify` or `reject`.", q.id())
}

// fits tells whether a decision is one that the review takes.
func (t *tx) fits(q *reviewRow, d caisson.Decision) error {
	mismatch := func(format string, args ...any) error {
		err := caisson.Errorf(caisson.CodeDecisionKindMismatch, "review %s of kind %s: %s", q.id(), q.kind(), fmt.Sprintf(format, args...))
		if !d.Kind.Fits(q.kind()) {
			err = err.WithHint("%s", decidedBy(q))
		}
		return err
	}
	var object map[string]json.RawMessage
	switch {
	case !d.Kind.Fits(q.kind()):
		return mismatch("%q does not answer it", d.Kind)
	case d.Kind == caisson.Modify && (json.Unmarshal(d.Input, &object) != nil || object == nil):
		return mismatch("a modified input must be a JSON object")
	case d.Kind != caisson.Modify && (len(d.Input) > 0 || d.ApproveModified != ""):
		return mismatch("only modify takes an input")
	case d.Kind != caisson.Answer && (len(d.Options) > 0 || d.Text != ""):
		return mismatch("only answer takes options or text")
	case d.Grant != nil && d.Kind != caisson.Approve:
		return mismatch("a grant comes only with approve")
	case d.Kind == caisson.Answer:
		return t.fitsAnswer(q, d, mismatch)
	}
	return nil
}

func (t *tx) fitsAnswer(q *reviewRow, d caisson.Decision, mismatch func(string, ...any) error) error {
	if q.kind() == caisson.ReviewUnknown {
		if len(d.Options) != 1 || !slices.Contains([]string{"done", "retry", "stop"}, d.Options[0]) {
			return mismatch("the answer is one of done, retry, stop")
		}
		return nil
	}
	var question caisson.Question
	if err := get(t, q.doc.Question, &question); err != nil {
		return err
	}
	switch {
	case len(d.Options) == 0 && d.Text == "":
		return mismatch("the answer is empty")
	case len(d.Options) > 1 && !question.Multi:
		return mismatch("one option may be chosen")
	}
	for i, option := range d.Options {
		if !slices.Contains(question.Options, option) || slices.Contains(d.Options[:i], option) {
			return mismatch("no option %q, or chosen twice", option)
		}
	}
	return nil
}

func (t *tx) decide(r *runRow, q *reviewRow, d caisson.Decision, useFor time.Duration) error {
	d.At = t.now
	body := ledger.ReviewDecided{Review: q.id(), Call: q.call, Digest: q.doc.Digest, Kind: d.Kind, By: d.By}
	if d.Grant != nil {
		grant, err := t.addGrant(r, q, *d.Grant)
		if err != nil {
			return err
		}
		d.Grant, body.Grant = &grant, grant.ID
	}
	content, err := t.put(d)
	if err != nil {
		return err
	}
	q.state, q.doc.Decision, q.decision = caisson.ReviewDecided, content, &d
	if d.Kind == caisson.Approve || d.Kind == caisson.Modify {
		q.doc.UseBy = t.now.Add(useFor).Truncate(time.Microsecond)
	}
	if err := t.saveReview(q); err != nil {
		return err
	}
	if q.kind() != caisson.ReviewUnknown {
		if err := t.decideCall(r, q.call); err != nil {
			return err
		}
	}
	t.wake = true
	body.Decision, body.UseBy = content, q.doc.UseBy
	return t.emit(r, caisson.EventReviewDecided, body)
}

func (t *tx) decideCall(r *runRow, id caisson.CallID) error {
	c, err := findCall(t, id)
	if err != nil {
		return err
	}
	if err := caisson.CallStates().Move(string(c.state), string(caisson.CallDecided)); err != nil {
		return err
	}
	c.state = caisson.CallDecided
	return t.saveCall(r, c)
}

// addGrant makes a grant of what a person wrote. It covers no other tool and no
// other input than the ones that were reviewed.
func (t *tx) addGrant(r *runRow, q *reviewRow, g caisson.Grant) (caisson.Grant, error) {
	var call caisson.Call
	var verdict caisson.Verdict
	if err := get(t, q.doc.Value, &call); err != nil {
		return g, err
	}
	if err := get(t, q.doc.Judged, &verdict); err != nil {
		return g, err
	}
	switch {
	case (g.InputDigest == "") == (g.Command == ""):
		return g, caisson.Errorf(caisson.CodeUsage, "a grant is of one input or of one command pattern")
	case g.Tool != (caisson.ToolRef{}) && g.Tool != call.Tool:
		return g, caisson.Errorf(caisson.CodeUsage, "review %s is of tool %s, the grant of %s", q.id(), call.Tool, g.Tool)
	case g.InputDigest != "" && g.InputDigest != call.InputDigest:
		return g, caisson.Errorf(caisson.CodeReviewDigestMismatch, "the grant is of another input than review %s", q.id())
	}
	g.Run, g.Tool, g.PolicyDigest, g.Review, g.At, g.Revoked = r.id, call.Tool, verdict.PolicyDigest, q.id(), t.now, false
	res, err := t.result(`INSERT INTO grants (rid, revoked, doc) VALUES (?, 0, '{}')`, r.rid)
	if err != nil {
		return g, err
	}
	n, err := res.LastInsertId()
	if err != nil {
		return g, err
	}
	g.ID = fmt.Sprintf("g%d", n)
	doc, err := writeDoc(g)
	if err != nil {
		return g, err
	}
	return g, t.exec(`UPDATE grants SET doc = ? WHERE n = ?`, doc, n)
}

// Grants implements [caisson.Ledger].
func (l *Ledger) Grants(ctx context.Context, run caisson.RunID) ([]caisson.Grant, error) {
	var grants []caisson.Grant
	err := l.read(ctx, func(s source) error {
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		return each(s, func(rows *sql.Rows) error {
			var doc []byte
			var grant caisson.Grant
			if err := rows.Scan(&doc); err != nil {
				return err
			}
			if err := readDoc("grant", string(run), doc, &grant); err != nil {
				return err
			}
			grants = append(grants, grant)
			return nil
		}, `SELECT doc FROM grants WHERE rid = ? AND revoked = 0 ORDER BY n`, r.rid)
	})
	return grants, err
}

// RevokeGrant implements [caisson.Ledger]. A grant that was revoked before stays so.
func (l *Ledger) RevokeGrant(ctx context.Context, run caisson.RunID, id, by string) error {
	n, err := strconv.ParseInt(strings.TrimPrefix(id, "g"), 10, 64)
	if err != nil || fmt.Sprintf("g%d", n) != id {
		return notFound("grant", id)
	}
	return l.write(ctx, func(t *tx) error {
		r, err := t.load(run)
		if err != nil {
			return err
		}
		var revoked bool
		if err := t.row(`SELECT revoked FROM grants WHERE n = ? AND rid = ?`, n, r.rid).Scan(&revoked); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				return notFound("grant", id)
			}
			return err
		}
		if revoked {
			return nil
		}
		t.wake = true
		if err := t.exec(`UPDATE grants SET revoked = 1 WHERE n = ?`, n); err != nil {
			return err
		}
		return t.emit(r, caisson.EventGrantRevoked, ledger.GrantRevoked{Grant: id, By: by})
	})
}
