package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// Check implements [caisson.Ledger]. It reads one snapshot, so it may run while
// others write. CodeChainBroken names the first event that does not follow;
// everything else is CodeLedgerDamaged.
func (l *Ledger) Check(ctx context.Context) error {
	if err := l.begin(); err != nil {
		return err
	}
	defer l.idle.Done()
	snapshot, err := l.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return storeError("check ledger", err)
	}
	defer func() { _ = snapshot.Rollback() }() // nothing was written
	c := &check{source: snapshotSource{ctx, snapshot}, want: map[string]string{}, sums: map[int64]*caisson.Pool{}, parents: map[int64]int64{}, tasks: map[caisson.TaskID]*taskTold{}}
	for _, step := range []func() error{c.store, c.blobs, c.chains, c.states, c.checkTasks, c.ended, c.pools} {
		if err := step(); err != nil {
			return storeError("check ledger", err)
		}
	}
	return nil
}

type snapshotSource struct {
	ctx context.Context //nolint:containedctx // lives as long as one check
	tx  *sql.Tx
}

func (s snapshotSource) rows(query string, args ...any) (*sql.Rows, error) {
	return s.tx.QueryContext(s.ctx, query, args...)
}

func (s snapshotSource) row(query string, args ...any) *sql.Row {
	return s.tx.QueryRowContext(s.ctx, query, args...)
}

// check derives from the events what the rows must be.
type check struct {
	source
	want    map[string]string       // "call r1.1.1" → state
	sums    map[int64]*caisson.Pool // by run, what its own events add up to
	parents map[int64]int64
	reserve map[string]caisson.Amount // open ones, by turn or call; of the run being read
	tasks   map[caisson.TaskID]*taskTold
}

// store asks SQLite whether the file is whole.
func (c *check) store() error {
	for _, pragma := range []string{`SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'`, `SELECT "table" || ' row ' || rowid FROM pragma_foreign_key_check`} {
		var said sql.NullString
		err := c.row(pragma).Scan(&said)
		if err == nil {
			return damaged("the file is not whole: %s", said.String)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

func (c *check) blobs() error {
	return each(c, func(rows *sql.Rows) error {
		var digest, data []byte
		if err := rows.Scan(&digest, &data); err != nil {
			return err
		}
		if want := fmt.Sprintf("%x", digest); string(caisson.DigestOf(data)) != want {
			return damaged("content %s is not what its digest says", want).With("digest", want)
		}
		return nil
	}, `SELECT digest, data FROM blobs`)
}

// chains verifies every chain and reads what its events say.
func (c *check) chains() error {
	var runs []*runRow
	err := each(c, func(rows *sql.Rows) error {
		r := new(runRow)
		runs = append(runs, r)
		return r.scan(rows.Scan)
	}, `SELECT `+runColumns+` FROM runs r ORDER BY r.rid`)
	if err != nil {
		return err
	}
	byID := map[caisson.RunID]*runRow{}
	for _, r := range runs {
		byID[r.id] = r
		if err := c.chain(r); err != nil {
			return err
		}
		if r.rid == 0 {
			continue
		}
		if r.parent != "" {
			parent := byID[r.parent]
			if parent == nil || parent.root != r.root {
				return damaged("run %s has no such parent: %s", r.id, r.parent)
			}
			c.parents[r.rid] = parent.rid
		}
		state := fmt.Sprintf("%s fence %d of %s, cancel %q", r.state, r.fence, r.instance.String, r.doc.CancelAsked)
		if want := c.want["run "+string(r.id)]; state != want {
			return damaged("run %s is %q; its events say %q", r.id, state, want).With("run", string(r.id))
		}
		delete(c.want, "run "+string(r.id))
	}
	return nil
}

func (c *check) chain(r *runRow) error {
	var chain caisson.Chain
	told := runTold{}
	c.sums[r.rid], c.reserve = &caisson.Pool{}, map[string]caisson.Amount{}
	for {
		events, err := readEvents(c, r, chain.Last.Seq, 1000)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if err := chain.Add(e); err != nil {
				return err
			}
			if err := c.read(r, e, &told); err != nil {
				return err
			}
		}
	}
	if err := c.channel(r, told.control); err != nil {
		return err
	}
	if r.rid == 0 {
		return nil
	}
	if !chain.Any {
		return damaged("run %s has no events", r.id)
	}
	for _, amount := range c.reserve {
		c.sums[r.rid].Reserved = c.sums[r.rid].Reserved.Plus(amount)
	}
	c.want["run "+string(r.id)] = fmt.Sprintf("%s fence %d of %s, cancel %q", told.state, told.fence, told.instance, told.cancel)
	return nil
}

// runTold is what events tell of a run itself.
type runTold struct {
	state    caisson.RunState
	fence    caisson.Fence
	instance caisson.InstanceID
	cancel   caisson.Cause
	control  controlTold
}

// read takes over what one event tells.
func (c *check) read(r *runRow, e caisson.Event, told *runTold) (err error) {
	switch e.Kind {
	case caisson.EventRunCreated:
		b := body[ledger.RunCreated](e, &err)
		told.state = caisson.RunPending
		var spec struct{ Budget caisson.Budget }
		if err = errors.Join(err, c.refer(e, b.Spec)); err == nil {
			err = get(c, b.Spec, &spec)
		}
		c.sums[r.rid].Limit = spec.Budget
		return err
	case caisson.EventRunMoved:
		b := body[ledger.RunMoved](e, &err)
		if err == nil && b.From != told.state {
			return damaged("run %s moved from %s, where it was not", r.id, b.From)
		}
		told.state = b.To
		return errors.Join(err, c.refer(e, b.Text))
	case caisson.EventCancelAsked:
		told.cancel = body[ledger.CancelAsked](e, &err).Cause
	case caisson.EventLeaseTaken:
		b := body[ledger.Leased](e, &err)
		told.fence, told.instance = b.Fence, b.Instance
	case caisson.EventLeaseReleased:
		told.instance = ""
	case caisson.EventTurnAsked:
		b := body[ledger.TurnAsked](e, &err)
		turn := fmt.Sprintf("turn %s/%d/%d", r.id, b.N, b.Attempt)
		c.want[turn], c.reserve[turn] = string(caisson.TurnAsked), b.Reserve
		return errors.Join(err, c.refer(e, b.Input))
	case caisson.EventTurnAnswered, caisson.EventTurnAbandoned:
		b := body[ledger.TurnEnded](e, &err)
		turn := fmt.Sprintf("turn %s/%d/%d", r.id, b.N, b.Attempt)
		c.want[turn] = string(caisson.TurnAbandoned)
		if e.Kind == caisson.EventTurnAnswered {
			c.want[turn] = string(caisson.TurnAnswered)
		}
		delete(c.reserve, turn)
		c.sums[r.rid].Used = c.sums[r.rid].Used.Plus(b.Used)
		return errors.Join(err, c.refer(e, b.Answer, b.Text))
	case caisson.EventCallJudged, caisson.EventCallStarted, caisson.EventCallSettled:
		return c.readCall(r, e, &told.control)
	case caisson.EventChannelOpened, caisson.EventRequestTaken, caisson.EventRequestRejected:
		return c.readControl(r, e, &told.control)
	case caisson.EventTaskEdited:
		return c.readTask(r, e)
	case caisson.EventReviewOpened, caisson.EventReviewDecided, caisson.EventReviewExpired, caisson.EventReviewWithdrawn, caisson.EventGrantRevoked:
		return c.readReview(e, &told.control)
	case caisson.EventSandboxMoved:
		b := body[ledger.SandboxMoved](e, &err)
		c.want["sandbox "+string(b.Sandbox)] = string(b.To)
		return errors.Join(err, c.refer(e, b.Record))
	case caisson.EventWorkspace:
		b := body[ledger.WorkspaceRecorded](e, &err)
		c.want["workspace "+string(b.Workspace)] = fmt.Sprintf("%s removed %t", b.Name, b.Removed)
		return errors.Join(err, c.refer(e, b.Record))
	default:
	}
	return err
}

func (c *check) readCall(r *runRow, e caisson.Event, told *controlTold) (err error) {
	b := body[ledger.CallEvent](e, &err)
	if err := c.readRequestCall(b.Call, e.Kind == caisson.EventCallSettled, told); err != nil {
		return err
	}
	call := "call " + string(b.Call)
	sum := c.sums[r.rid]
	switch e.Kind {
	case caisson.EventCallStarted:
		c.want[call] = callTold(caisson.CallStarted, b.Digest)
		c.reserve[call] = b.Reserve
		sum.Used = sum.Used.Plus(b.Charged)
	case caisson.EventCallSettled:
		c.want[call] = callTold(caisson.CallState(b.Outcome), b.Digest)
		delete(c.reserve, call)
		sum.Used = sum.Used.Plus(b.Used)
	default:
		c.want[call] = callTold(caisson.CallJudged, b.Digest)
	}
	return errors.Join(err, c.refer(e, b.Value, b.Judged, b.Executor, b.Result))
}

func callTold(state caisson.CallState, digest caisson.Digest) string {
	return fmt.Sprintf("%s with value %s", state, digest)
}

func (c *check) readReview(e caisson.Event, told *controlTold) (err error) {
	switch e.Kind {
	case caisson.EventReviewOpened:
		b := body[ledger.ReviewOpened](e, &err)
		c.want["review "+string(b.Review)] = string(caisson.ReviewOpen)
		if b.Kind != caisson.ReviewUnknown {
			c.want["call "+string(b.Call)] = callTold(caisson.CallAsked, b.Digest)
			c.want["asks "+string(b.Review)] = "a call"
			err = errors.Join(err, c.readRequestCall(b.Call, false, told))
		}
		return errors.Join(err, c.refer(e, b.Value, b.Judged, b.Schema, b.Question, b.Preview))
	case caisson.EventReviewDecided:
		b := body[ledger.ReviewDecided](e, &err)
		c.want["review "+string(b.Review)] = string(caisson.ReviewDecided)
		if c.want["asks "+string(b.Review)] != "" {
			c.want["call "+string(b.Call)] = callTold(caisson.CallDecided, b.Digest)
		}
		if b.Grant != "" {
			c.want["grant "+b.Grant] = "revoked 0"
		}
		return errors.Join(err, c.refer(e, b.Decision))
	case caisson.EventReviewExpired:
		c.want["review "+string(body[ledger.ReviewEnded](e, &err).Review)] = string(caisson.ReviewExpired)
	case caisson.EventReviewWithdrawn:
		c.want["review "+string(body[ledger.ReviewEnded](e, &err).Review)] = string(caisson.ReviewWithdrawn)
	default:
		c.want["grant "+body[ledger.GrantRevoked](e, &err).Grant] = "revoked 1"
	}
	return err
}

// body reads an event's body into its form.
func body[T any](e caisson.Event, err *error) (b T) {
	if e := json.Unmarshal(e.Body, &b); e != nil {
		*err = damaged("the body of an event cannot be read: %w", e)
	}
	return b
}

// refer verifies that what an event refers to is there.
func (c *check) refer(e caisson.Event, contents ...ledger.Content) error {
	for _, content := range contents {
		if content.Digest == "" {
			continue
		}
		var size int64
		err := c.row(`SELECT length(data) FROM blobs WHERE digest = ?`, digestBytes(content.Digest)).Scan(&size)
		if errors.Is(err, sql.ErrNoRows) || err == nil && size != content.Bytes {
			return damaged("the content %s of event %d of run %q is missing", content.Digest, e.Seq, e.Run).With("digest", string(content.Digest))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// states compares the rows with what the events told, in both directions.
func (c *check) states() error {
	for _, query := range []string{
		`SELECT 'turn ' || r.id || '/' || u.n || '/' || u.attempt, u.state FROM turns u JOIN runs r ON r.rid = u.rid`,
		`SELECT 'call ' || id, state || ' with value ' || coalesce(doc ->> 'digest', '') FROM calls`,
		`SELECT 'review q' || n, state FROM reviews`,
		`SELECT 'grant g' || n, 'revoked ' || revoked FROM grants`,
		`SELECT 'sandbox ' || id, state FROM sandboxes WHERE (doc ->> 'state') = state`,
		`SELECT 'workspace ' || id, name || ' removed ' || iif(removed, 'true', 'false') FROM workspaces`,
	} {
		err := each(c, func(rows *sql.Rows) error {
			var name, state string
			if err := rows.Scan(&name, &state); err != nil {
				return err
			}
			if want := c.want[name]; want != state {
				return damaged("%s is %q; the events say %q", name, state, want)
			}
			delete(c.want, name)
			return nil
		}, query)
		if err != nil {
			return err
		}
	}
	for name := range c.want {
		if len(name) > 5 && name[:5] == "asks " {
			continue
		}
		return damaged("%s is in the events and nowhere else", name)
	}
	return nil
}

// ended looks for what is open in runs that have ended.
func (c *check) ended() error {
	const over = `r.state IN ('succeeded', 'stopped', 'failed', 'cancelled')`
	for _, query := range []string{
		`SELECT 'call ' || c.id, r.id FROM calls c JOIN runs r ON r.rid = c.rid WHERE ` + over + ` AND c.state IN ('prepared', 'judged', 'asked', 'decided', 'started')`,
		`SELECT 'request ' || q.id, r.id FROM requests q JOIN runs r ON r.rid = q.rid WHERE ` + over + ` AND q.open = 1`,
		`SELECT 'review q' || v.n, r.id FROM reviews v JOIN runs r ON r.rid = v.rid WHERE ` + over + ` AND v.state = 'open'`,
		`SELECT 'turn ' || u.n, r.id FROM turns u JOIN runs r ON r.rid = u.rid WHERE ` + over + ` AND u.state = 'asked'`,
		`SELECT 'review q' || v.n, r.id FROM reviews v JOIN runs r ON r.rid = v.rid JOIN calls c ON c.id = v.call
			WHERE v.state = 'open' AND (v.doc ->> 'kind') <> 'unknown' AND c.state <> 'asked'`,
		`SELECT 'review q' || max(v.n), r.id FROM reviews v JOIN runs r ON r.rid = v.rid WHERE v.state = 'open' GROUP BY v.call HAVING count(*) > 1`,
	} {
		var what, run string
		err := c.row(query).Scan(&what, &run)
		if err == nil {
			return damaged("%s of run %s is open and must not be", what, run)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// pools verifies that every budget row is the sum of what the run's own events,
// and those of all runs under it, have reserved and used.
func (c *check) pools() error {
	total := map[int64]caisson.Pool{}
	for rid, own := range c.sums {
		for at, ok := rid, true; ok && at != 0; at, ok = c.parents[at] {
			sum := total[at]
			sum.Reserved, sum.Used, sum.Kept = sum.Reserved.Plus(own.Reserved), sum.Used.Plus(own.Used), sum.Kept+own.Kept
			total[at] = sum
		}
	}
	return each(c, func(rows *sql.Rows) error {
		var rid int64
		var id string
		var doc []byte
		var pool caisson.Pool
		if err := rows.Scan(&rid, &id, &doc); err != nil {
			return err
		}
		if err := readDoc("budget", id, doc, &pool); err != nil {
			return err
		}
		if pool.Limit != c.sums[rid].Limit {
			return damaged("the budget of run %s is not the one it was given", id).With("run", id)
		}
		if want := total[rid]; pool.Reserved != want.Reserved || pool.Used != want.Used || pool.Kept != want.Kept {
			return damaged("the budget of run %s does not add up: %+v reserved, %+v used and %d kept; the events say %+v, %+v and %d",
				id, pool.Reserved, pool.Used, pool.Kept, want.Reserved, want.Used, want.Kept).With("run", id)
		}
		return nil
	}, `SELECT r.rid, r.id, coalesce(p.doc, '{}') FROM runs r LEFT JOIN pools p ON p.rid = r.rid WHERE r.rid > 0`)
}
