package cli

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/kernel"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
)

// watch prints the events of a run as they come, and asks reviews on a terminal.
type watch struct {
	a       *app
	h       *host.Host
	run     caisson.Run
	foreign bool
	to      *console
	ask     *asker    // nil without a terminal
	json    io.Writer // where events go with --json

	mu    sync.Mutex // of seq and lines
	seq   int64
	lines *lines
}

// newWatch shows a run from here on. What a foreign agent prints is its own:
// ours goes to stderr then, and is quiet where that is no terminal.
func (a *app) newWatch(ctx context.Context, h *host.Host, r caisson.Run) *watch {
	w := &watch{a: a, h: h, run: r, seq: r.Events, foreign: len(r.Spec.Argv) > 0, to: &console{out: a.out}, json: a.out}
	if w.foreign {
		w.to.out, w.json = a.err, a.err
	}
	w.lines = &lines{a: a, h: h, to: w.to, foreign: w.foreign}
	if ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace); err == nil {
		w.lines.tree = ws.Path
	}
	if a.terminal() && !a.json {
		w.ask = newAsker(a, h, w.to)
	}
	return w
}

// quiet tells whether nobody reads what is told of a run as it goes.
func (w *watch) quiet() bool {
	return w.foreign && (w.a.io.Err == nil || !term.IsTerminal(int(w.a.io.Err.Fd())))
}

// during calls drive and prints what happens until it returns, and what
// happened by then.
func (w *watch) during(ctx context.Context, drive func(context.Context) (caisson.Run, error)) (caisson.Run, error) {
	if err := w.begin(ctx); err != nil {
		return w.run, err
	}
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

// begin shows what was asked before and is still open.
func (w *watch) begin(ctx context.Context) error {
	open, err := w.open(ctx)
	if err != nil {
		return err
	}
	if !w.a.json && !w.quiet() {
		for _, r := range open {
			w.to.line("  ? %s", w.a.askedLine(r))
		}
	}
	if w.ask != nil {
		w.ask.update(open)
	}
	return nil
}

func (w *watch) open(ctx context.Context) ([]caisson.Review, error) {
	return w.h.Ledger.Reviews(ctx, caisson.ReviewFilter{Run: w.run.ID, States: []caisson.ReviewState{caisson.ReviewOpen}})
}

func (w *watch) follow(ctx context.Context) error {
	for {
		if err := w.catchUp(ctx); err != nil {
			return ignoreEnd(ctx, err)
		}
		if _, err := w.h.Ledger.Wait(ctx, w.run.ID, w.seen()); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

func (w *watch) seen() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq
}

// ignoreEnd drops the error that the end of ctx itself caused.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stopping tells a person that a Ctrl-C was heard.
func (w *watch) stopping() {
	if w.ask != nil {
		w.to.line("  ! stopping what runs, to park the run; Ctrl-C again cancels it")
	}
}

// observe prints the model's text as it comes, behind all that happened before.
func (w *watch) observe(e kernel.Event) {
	switch {
	case e.Kind == kernel.EventModel && e.Model.Kind == caisson.ModelText:
		w.speak(e.Turn.N)
		w.to.text(e.Model.Delta)
	case e.Kind == kernel.EventAbandoned:
		w.to.endText()
	}
}

// speak says that the text of a turn is printed as it comes.
func (w *watch) speak(turn int) {
	w.mu.Lock()
	spoken := w.lines.spoken
	w.mu.Unlock()
	if spoken == turn {
		return
	}
	_ = w.catchUp(context.Background()) // where this fails, what follows meets the same
	w.mu.Lock()
	w.lines.spoken = turn
	w.mu.Unlock()
}

func (w *watch) catchUp(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, err := w.h.Ledger.Events(ctx, w.run.ID, w.seq, 0)
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := w.show(ctx, e); err != nil {
			return err
		}
		w.seq = e.Seq
	}
	if w.ask == nil || len(events) == 0 {
		return nil
	}
	open, err := w.open(ctx)
	if err != nil {
		return err
	}
	w.ask.update(open)
	return nil
}

func (w *watch) show(ctx context.Context, e caisson.Event) error {
	if w.foreign && w.ask != nil && e.Kind == caisson.EventCallStarted {
		w.ask.leave()
	}
	switch {
	case w.a.json:
		return encode(w.json, e)
	case w.quiet():
		return nil
	default:
		return w.lines.event(ctx, e)
	}
}
