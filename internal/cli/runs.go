package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) runsCommand() *cobra.Command {
	return group("runs", "See, take up and end runs",
		a.runsLs(), a.runsShow(), a.runsLog(), a.runsDiff(), a.runsAttach(), a.runsResume(), a.runsCancel())
}

func (a *app) runsLs() *cobra.Command {
	var limit int
	var open bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List runs, newest first", Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, h *host.Host, _ []string) error {
			filter := caisson.RunFilter{Limit: limit}
			if open {
				for _, s := range caisson.RunStates().States() {
					if !caisson.RunState(s).Terminal() {
						filter.States = append(filter.States, caisson.RunState(s))
					}
				}
			}
			if limit < 0 {
				return usage(fmt.Errorf("--limit is %d: it cannot be negative", limit))
			}
			runs, err := h.Ledger.Runs(ctx, filter)
			if err != nil {
				return err
			}
			return printEach(a, runs, func(w io.Writer) { a.runTable(w, runs, undriven(ctx, h, runs...), h.Ledger.Now()) })
		}),
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "at most this many; 0 for all")
	cmd.Flags().BoolVar(&open, "open", false, "only those that have not ended")
	return cmd
}

// atWork tells whether the record has the run at work.
func atWork(r caisson.Run) bool {
	return r.State == caisson.RunRunning || r.State == caisson.RunCancelling
}

// undriven brings runs to what they are now, and says of those that are on record
// as at work that nobody works on them.
func undriven(ctx context.Context, h *host.Host, runs ...caisson.Run) map[caisson.RunID]bool {
	left := map[caisson.RunID]bool{}
	for i, r := range runs {
		if atWork(r) {
			now, driven, err := h.Driven(ctx, r)
			if err != nil {
				continue
			}
			runs[i] = now
			left[r.ID] = !driven && atWork(now)
		}
	}
	return left
}

func (a *app) runTable(w io.Writer, runs []caisson.Run, left map[caisson.RunID]bool, now time.Time) {
	if len(runs) == 0 {
		fmt.Fprintln(w, "No runs.")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range runs {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s ago\t%s\n", r.ID, a.runState(r)+leftText(left[r.ID]), r.Spec.Engine, counted(r.Turns, "turn", "turns"), span(now.Sub(r.Created)), line(wantOf(r), 60))
	}
	_ = tw.Flush() // writes to w, whose errors the last write shows
}

func leftText(left bool) string {
	if left {
		return ", nobody drives it"
	}
	return ""
}

func (a *app) runState(r caisson.Run) string {
	text := string(r.State)
	if r.Stop != "" && string(r.Stop) != text {
		text += " (" + string(r.Stop) + ")"
	}
	return text
}

// wantOf is what a run was asked to do.
func wantOf(r caisson.Run) string { return plain(host.WantOf(r.Spec)) }

// runArg is a command on one run, named by its first argument.
func (a *app) runArg(use, short string, do func(ctx context.Context, h *host.Host, r caisson.Run) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(runNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			r, err := h.FindRun(ctx, args[0])
			if err != nil {
				return err
			}
			return do(ctx, h, r)
		}),
	}
}

func (a *app) runsShow() *cobra.Command {
	return a.runArg("show RUN", "Show one run: what it may use, what it did, how its boundary was enforced",
		func(ctx context.Context, h *host.Host, r caisson.Run) error {
			view, err := h.ShowRun(ctx, r.ID)
			if err != nil {
				return err
			}
			return a.print(view, func(w io.Writer) { a.runDetails(w, view, undriven(ctx, h, r)[r.ID]) })
		})
}

func (a *app) runDetails(w io.Writer, v host.RunView, left bool) {
	r := v.Run
	fmt.Fprintf(w, "%s  %s  %s\n", r.ID, a.runState(r)+leftText(left), line(wantOf(r), 100))
	if left {
		fmt.Fprintf(w, "  go on: caisson runs resume %s\n", r.ID)
	}
	if r.Text != "" {
		fmt.Fprintf(w, "  says       %s\n", line(r.Text, 400))
	}
	if v.Workspace != nil {
		fmt.Fprintf(w, "  workspace  %s on branch %s from %s\n", printable(v.Workspace.Path), printable(v.Workspace.Branch), v.Workspace.Base[:min(12, len(v.Workspace.Base))])
	}
	fmt.Fprintf(w, "  sandbox    %s\n", a.isolationLine(r.Spec.Engine, v.Isolation))
	fmt.Fprintf(w, "  used       %s, %s, %s, %s running\n", tokensText(v.Pool.Used), counted(v.Pool.Used.Turns, "turn", "turns"), counted(v.Pool.Used.Calls, "call", "calls"), r.Active.Round(100*time.Millisecond))
	tree := ""
	if v.Workspace != nil {
		tree = v.Workspace.Path
	}
	for _, c := range v.Calls {
		fmt.Fprintf(w, "  · %s\n", a.callLine(c, tree))
	}
	if n := len(v.Calls); len(r.Spec.Argv) > 0 && n > 0 && v.Calls[n-1].Result != nil {
		fmt.Fprintf(w, "\n%s\n", printable(strings.TrimRight(plain(v.Calls[n-1].Result.Text), "\n")))
	}
	for _, r := range v.Recordings {
		fmt.Fprintf(w, "  recording  %s  %d bytes\n", printable(r.Path), r.Bytes)
	}
	for _, q := range v.Open {
		fmt.Fprintf(w, "  ? %s\n", a.askedLine(q))
	}
}

func tokensText(used caisson.Amount) string {
	text := fmt.Sprintf("%d tokens", used.Tokens)
	if used.Cost > 0 {
		text += fmt.Sprintf(", $%.4f", float64(used.Cost)/1e6)
	}
	return text
}

func (a *app) runsLog() *cobra.Command {
	var follow bool
	cmd := a.runArg("log RUN", "Print every event of a run",
		func(ctx context.Context, h *host.Host, r caisson.Run) error {
			return a.follow(ctx, h, r.ID, 0, func(events []caisson.Event, run caisson.Run) (bool, error) {
				err := printEach(a, events, func(w io.Writer) {
					for _, e := range events {
						fmt.Fprintf(w, "%6d  %s  %-18s %s\n", e.Seq, e.At.Format("2006-01-02 15:04:05.000"), e.Kind, line(string(e.Body), 200))
					}
				})
				return follow && !run.State.Terminal(), err
			})
		})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	return cmd
}

func (a *app) runsAttach() *cobra.Command {
	cmd := a.runArg("attach RUN", "Watch a run that another process drives, and answer what it asks",
		func(ctx context.Context, h *host.Host, r caisson.Run) error {
			r, driven, err := h.Driven(ctx, r)
			if err != nil {
				return err
			}
			if r.Spec.Session == caisson.SessionTerminal && !r.State.Terminal() && !a.json {
				return a.resume(ctx, h, r, host.DriveOptions{})
			}
			if driven || r.State.Terminal() || !a.terminal() || a.json {
				return a.watch(ctx, h, r)
			}
			fmt.Fprintf(a.err, "  nobody drives run %s: it is taken up here\n", r.ID)
			return a.resume(ctx, h, r, host.DriveOptions{})
		})
	cmd.Long = `Watch a run that another process drives, and answer what it asks. A run that
nobody drives, as it is parked or its process was killed, is taken up here if
this is a terminal.`
	return cmd
}

func (a *app) runsResume() *cobra.Command {
	var takeOver, yes, park bool
	cmd := a.runArg("resume RUN", "Drive a run on, from exactly where its record says it is",
		func(ctx context.Context, h *host.Host, r caisson.Run) error {
			if takeOver && !yes {
				return usage(fmt.Errorf("--take-over displaces a holder that may be alive: say --yes too"))
			}
			if takeOver {
				var err error
				if r, err = h.TakeOver(ctx, r.ID); err != nil {
					return err
				}
			}
			return a.resume(ctx, h, r, host.DriveOptions{ParkAtOnce: park})
		})
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "also if it cannot be told whether its last holder lives")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, I know that it is gone")
	cmd.Flags().BoolVar(&park, "park", false, "do not wait for answers: park as soon as only reviews are left")
	return cmd
}

func (a *app) runsCancel() *cobra.Command {
	return a.runArg("cancel RUN", "End a run: its processes, its open calls, its open reviews",
		func(ctx context.Context, h *host.Host, r caisson.Run) error {
			ended, err := h.Cancel(ctx, r.ID)
			if err != nil {
				return err
			}
			return a.print(ended, func(w io.Writer) { fmt.Fprintf(w, "%s  %s\n", ended.ID, a.runState(ended)) })
		})
}
