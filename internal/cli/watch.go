package cli

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"golang.org/x/sync/errgroup"
)

// watch prints the events of a run as they come, and asks reviews on a terminal.
type watch struct {
	a     *app
	h     *host.Host
	run   caisson.Run
	seq   int64
	lines *lines
	ask   *asker // nil without a terminal
}

func (a *app) newWatch(h *host.Host, r caisson.Run, foreign bool) *watch {
	w := &watch{a: a, h: h, run: r, seq: r.Events, lines: &lines{a: a, h: h}}
	if a.terminal() && !a.json && !foreign {
		w.ask = newAsker(a, h)
	}
	return w
}

// during calls drive and prints what happens until it returns, and what
// happened by then.
func (w *watch) during(ctx context.Context, drive func(context.Context) (caisson.Run, error)) (caisson.Run, error) {
	watching, enough := context.WithCancel(ctx)
	defer enough()
	var g errgroup.Group
	g.Go(func() error { return w.follow(watching) })
	if w.ask != nil {
		g.Go(func() error { return w.ask.run(watching) })
	}
	run, err := drive(ctx)
	enough()
	watchErr := g.Wait()
	if err == nil {
		err = watchErr
	}
	return run, errors.Join(err, w.catchUp(context.WithoutCancel(ctx)))
}

func (w *watch) follow(ctx context.Context) error {
	for {
		if err := w.catchUp(ctx); err != nil {
			return ignoreEnd(ctx, err)
		}
		if _, err := w.h.Ledger.Wait(ctx, w.run.ID, w.seq); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

// ignoreEnd drops the error that the end of ctx itself caused.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (w *watch) catchUp(ctx context.Context) error {
	events, err := w.h.Ledger.Events(ctx, w.run.ID, w.seq, 0)
	if err != nil {
		return err
	}
	for _, e := range events {
		if w.a.json {
			if err := json.NewEncoder(w.a.io.Out).Encode(e); err != nil {
				return err
			}
		} else if err := w.lines.event(ctx, e); err != nil {
			return err
		}
		w.seq = e.Seq
	}
	if w.ask == nil || len(events) == 0 {
		return nil
	}
	open, err := w.h.Ledger.Reviews(ctx, caisson.ReviewFilter{Run: w.run.ID, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil {
		return err
	}
	w.ask.update(open)
	return nil
}
