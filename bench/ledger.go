package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// each is how many events or commits a writer makes in one round.
const each = 32

// text is the 1 KiB that events and commits carry.
var text = strings.Repeat("x", 1024)

// ledgerStep is durable events of 1 KiB of one run, beside bare SQLite commits
// of 1 KiB with the same durability in a file beside it. Must: at least 0.8 of
// their rate. In rounds of 32.
func ledgerStep(ctx context.Context, b *bench, n int) (r result, err error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	raw, err := openRaw(ctx, filepath.Join(dir, "raw.db"))
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	err = withRuns(ctx, dir, 1, func(l caisson.Ledger, drives []caisson.Drive) error {
		theirs := func(ctx context.Context) error { return times(each, func() error { return raw.commit(ctx) }) }
		c, err := compare(ctx, n, byTurns(timed(appendAll(l, drives)), timed(theirs)))
		if err == nil {
			r = c.rates("events/s", "bare SQLite commits", each, each)
		}
		return err
	})
	return r, err
}

// ledgerStep32 is the events of ledger.step by 32 runs of one process at once,
// beside those of one run. Must: at least 4 times their rate. In rounds of 32
// events of each run.
func ledgerStep32(ctx context.Context, b *bench, n int) (r result, err error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	err = withRuns(ctx, dir, 32, func(l caisson.Ledger, drives []caisson.Drive) error {
		c, err := compare(ctx, n, byTurns(timed(appendAll(l, drives)), timed(appendAll(l, drives[:1]))))
		if err == nil {
			r = c.rates("events/s", "ledger.step", float64(each*len(drives)), each)
		}
		return err
	})
	return r, err
}

// openParked opens a ledger with n parked runs, each of which waits for a
// decision, and reads the first page of what waits; beside one with a single
// such run. It is done five times. Must: at most 1,000 ms.
func openParked(ctx context.Context, b *bench, n int) (result, error) {
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	many, one := filepath.Join(dir, "many"), filepath.Join(dir, "one")
	if err := parkInTime(ctx, many, n); err != nil {
		return result{}, err
	}
	if err := park(ctx, one, 1); err != nil {
		return result{}, err
	}
	c, err := compare(ctx, 5, byTurns(opening(many, min(n, page)), opening(one, 1)))
	if err != nil {
		return result{}, err
	}
	r := c.times("with one")
	r.Size = n
	return r, nil
}

// page is how many runs a person sees at once.
const page = 50

// opening is the timer of opening the ledger in dir and reading the first page.
func opening(dir string, want int) timer {
	return func(ctx context.Context) (took time.Duration, err error) {
		begun := time.Now()
		l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "ledger.db")})
		if err != nil {
			return 0, err
		}
		runs, err := l.Runs(ctx, caisson.RunFilter{States: []caisson.RunState{caisson.RunWaiting}, Limit: page})
		took = time.Since(begun)
		if err == nil && len(runs) != want {
			err = fmt.Errorf("%d runs wait, not %d", len(runs), want)
		}
		return took, errors.Join(err, l.Close())
	}
}

// parkInTime is park, or why it takes too long here.
func parkInTime(ctx context.Context, dir string, n int) error {
	const bound = 40 * time.Second
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := park(bounded, dir, n)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return skipped(fmt.Sprintf("%d runs could not be parked within %v; this machine is slow or busy", n, bound))
	}
	return err
}

// park makes a ledger of n runs that wait for a decision and that nobody drives.
func park(ctx context.Context, dir string, n int) error {
	const writers = 256 // so many share a flush of the disk
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		return err
	}
	err = l.PutInstance(ctx, caisson.Instance{ID: instance})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := 0; err == nil && i < n; i++ {
		group.Go(func() error { return parkRun(ctx, l, i) })
	}
	return errors.Join(err, group.Wait(), l.Close())
}

// parkRun writes what a run leaves that has come to a call that policy asks
// about. It does so without an airlock, which would take most of the time.
func parkRun(ctx context.Context, l caisson.Ledger, i int) error {
	drive, err := drivenRun(ctx, l, i)
	if err != nil {
		return err
	}
	call := caisson.Call{
		ID: caisson.NewCallID(drive.Run, 1, 1), Run: drive.Run, Turn: 1, Tool: caisson.ToolRef{Name: "noop"},
		Effect: caisson.EffectUnsafe, Reach: caisson.ReachOutside, Input: json.RawMessage(`{"text":"x"}`),
	}
	if call.InputDigest, err = call.SumInput(); err == nil {
		call.Digest, err = call.Sum()
	}
	if err == nil {
		_, err = l.AskReview(ctx, drive, caisson.Review{
			Run: drive.Run, Call: call, Kind: caisson.ReviewCall, Verdict: caisson.Verdict{Ruling: caisson.ReviewIt},
		}, 24*time.Hour)
	}
	if err == nil {
		_, err = l.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunWaiting})
	}
	if err == nil {
		err = l.ReleaseLease(ctx, drive)
	}
	return err
}

// instance drives all runs of a metric.
const instance caisson.InstanceID = "bench"

// withRuns does do with a new ledger that has n running runs.
func withRuns(ctx context.Context, dir string, n int, do func(caisson.Ledger, []caisson.Drive) error) error {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		return err
	}
	err = l.PutInstance(ctx, caisson.Instance{ID: instance})
	var drives []caisson.Drive
	for i := 0; err == nil && i < n; i++ {
		var drive caisson.Drive
		drive, err = drivenRun(ctx, l, i)
		drives = append(drives, drive)
	}
	if err == nil {
		err = do(l, drives)
	}
	return errors.Join(err, l.Close())
}

// drivenRun makes the ith run of a ledger, running under a lease.
func drivenRun(ctx context.Context, l caisson.Ledger, i int) (caisson.Drive, error) {
	id := caisson.RunID(fmt.Sprintf("r%06d", i))
	spec := caisson.RunSpec{Prompt: "measure", Root: id, Engine: "none", Preset: "sandboxed", OnUnknown: "ask"}
	if _, err := l.CreateRun(ctx, id, spec); err != nil {
		return caisson.Drive{}, err
	}
	lease, err := l.TakeLease(ctx, id, instance, 0)
	if err != nil {
		return caisson.Drive{}, err
	}
	drive := caisson.Drive{Run: id, Fence: lease.Fence}
	_, err = l.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunRunning})
	return drive, err
}

// appendAll writes the events of a round, all runs at once.
func appendAll(l caisson.Ledger, drives []caisson.Drive) func(context.Context) error {
	body := map[string]string{"text": text}
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, drive := range drives {
			group.Go(func() error {
				return times(each, func() error { return l.Append(ctx, drive, caisson.EventNote, body) })
			})
		}
		return group.Wait()
	}
}

func times(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// raw is a bare SQLite file, through the same driver as the ledger's and with
// the same pragmas of its writer.
type raw struct {
	db     *sql.DB
	insert *sql.Stmt
}

func openRaw(ctx context.Context, path string) (*raw, error) {
	pragmas := "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=cell_size_check(1)&_pragma=trusted_schema(0)"
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	r := &raw{db: db}
	if _, err = db.ExecContext(ctx, `CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT NOT NULL)`); err == nil {
		r.insert, err = db.PrepareContext(ctx, `INSERT INTO t (body) VALUES (?)`)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

func (r *raw) commit(ctx context.Context) error {
	_, err := r.insert.ExecContext(ctx, text)
	return err
}

func (r *raw) Close() error { return errors.Join(r.insert.Close(), r.db.Close()) }
