package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/caisson-run/caisson"
)

// Wait implements [caisson.Ledger].
func (l *Ledger) Wait(ctx context.Context, run caisson.RunID, after int64) (int64, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	defer l.idle.Done()
	rung := l.tail.join(run)
	defer l.tail.leave(run, rung)
	for first := true; ; first = false {
		count, err := l.count(ctx, run)
		if err != nil || count > after {
			return count, err
		}
		if first {
			l.startTail()
		}
		select {
		case <-ctx.Done():
			return count, ended(ctx)
		case <-l.closing:
			return count, errClosed()
		case <-rung:
		}
		if l.opts.ReadOnly {
			continue
		}
		if err := l.there(); err != nil {
			return count, err
		}
	}
}

func (l *Ledger) count(ctx context.Context, run caisson.RunID) (count int64, err error) {
	s := reader{ctx, l}
	if run == "" {
		err = s.row(`SELECT n FROM events ORDER BY n DESC LIMIT 1`).Scan(&count)
	} else {
		err = s.row(`SELECT e.seq FROM runs r JOIN events e ON e.rid = r.rid WHERE r.id = ? ORDER BY e.seq DESC LIMIT 1`, string(run)).Scan(&count)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, notFound("run", string(run))
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil && ctx.Err() != nil {
		return 0, ended(ctx)
	}
	return count, storeError("read ledger", err)
}
