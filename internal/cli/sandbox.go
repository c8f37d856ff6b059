package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) sandboxCommand() *cobra.Command {
	return group("sandbox", "Work in a sandbox yourself, see sandboxes and end them",
		a.sandboxCreate(), a.sandboxStart(), a.sandboxShell(), a.sandboxExec(), a.sandboxAttach(), a.sandboxLs(), a.sandboxShow(), a.sandboxStop(),
		a.sandboxHold(), a.sandboxRm(), a.sandboxPrune(), a.sandboxRebuild(), a.sandboxRefresh(), a.sandboxServe())
}

func (a *app) sandboxLs() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the sandboxes that are there, the last made first", Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, h *host.Host, _ []string) error {
			list, err := h.ListBoxes(ctx, all)
			if err != nil {
				return err
			}
			return printEach(a, list, func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, "No sandboxes.")
					return
				}
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				n := 0
				for _, v := range list {
					number := "-" // only what is there has one
					if v.State != caisson.SandboxRemoved {
						n++
						number = strconv.Itoa(n)
					}
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s ago\t%s\n", number, v.ID, v.Engine, boxState(v), line(orDash(v.Branch), 40), orDash(string(v.Run)),
						span(h.Ledger.Now().Sub(v.At)), line(plain(v.Want), 50))
				}
				_ = tw.Flush() // writes to w, whose errors the last write shows
			})
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are gone")
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// boxState says how a sandbox stands, and if its holder does not live.
func boxState(v host.BoxView) string {
	text := string(v.State)
	rests := v.State == caisson.SandboxRemoved || v.Served != nil && v.State == caisson.SandboxStopped
	if !rests && v.Liveness != caisson.Alive {
		text += ", its process is " + string(v.Liveness)
	}
	return text
}

// boxArg is a command on one sandbox, named by its first argument.
func (a *app) boxArg(use, short string, do func(ctx context.Context, h *host.Host, v host.BoxView) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(boxNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			v, err := h.FindBox(ctx, args[0])
			if err != nil {
				return err
			}
			return do(ctx, h, v)
		}),
	}
}

func (a *app) sandboxShow() *cobra.Command {
	return a.boxArg("show REF", "Show one sandbox: how it is enforced, who holds it, what works in it",
		func(_ context.Context, _ *host.Host, v host.BoxView) error {
			return a.print(v, func(w io.Writer) { a.boxDetails(w, v) })
		})
}

func (a *app) boxDetails(w io.Writer, v host.BoxView) {
	fmt.Fprintf(w, "%s  %s\n", v.ID, boxState(v))
	if v.Run != "" {
		fmt.Fprintf(w, "  run        %s  %s  %s\n", v.Run, v.RunState, line(plain(v.Want), 100))
	}
	if v.Tree != "" {
		fmt.Fprintf(w, "  workspace  %s on branch %s\n", printable(v.Tree), printable(v.Branch))
	}
	if len(v.Isolation.Controls) > 0 {
		fmt.Fprintf(w, "  sandbox    %s\n", a.isolationLine(v.Engine, v.Isolation))
	}
	if v.Holder != nil && v.State != caisson.SandboxRemoved {
		fmt.Fprintf(w, "  held by    process %d on %s\n", v.Holder.Process.PID, printable(v.Holder.Process.Host))
	}
	if v.Served != nil {
		a.servedDetails(w, v)
	}
	if v.Hold != nil {
		fmt.Fprintf(w, "  held for   %s until %s: %s\n", printable(v.Hold.By), v.Hold.Until.Local().Format(time.DateTime), line(v.Hold.Reason, 100))
		if v.Hold.Left != "" {
			fmt.Fprintf(w, "  to do      %s\n", line(v.Hold.Left, 200))
		}
	}
	for _, r := range v.Recordings {
		fmt.Fprintf(w, "  recording  %s  %d bytes\n", printable(r.Path), r.Bytes)
	}
	if v.Session == caisson.SessionTerminal && v.State == caisson.SandboxRunning {
		fmt.Fprintf(w, "  join it    caisson sandbox attach %s\n", v.Run)
	}
}

// servedDetails tells of a sandbox that is kept open.
func (a *app) servedDetails(w io.Writer, v host.BoxView) {
	fmt.Fprintf(w, "  kept open  generation %d, %s in it\n", v.Served.Generation, counted(len(v.Served.Sessions), "session", "sessions"))
	for _, run := range v.Served.Sessions {
		fmt.Fprintf(w, "  session    %s\n", run)
	}
	if b := v.Served.Broker; b != nil {
		text := string(b.State)
		if b.Reason != "" {
			text += ": " + string(b.Reason) + " " + b.Text
		}
		fmt.Fprintf(w, "  channel    %s, epoch %d, %d running, %d queued, %d waiting for you\n", printable(text), b.Epoch, b.Running, b.Queued, len(b.Waiting))
	}
	if v.State == caisson.SandboxStopped {
		fmt.Fprintf(w, "  start it   caisson sandbox start %s\n", v.Run)
	}
}

func (a *app) sandboxStop() *cobra.Command {
	cmd := a.boxArg("stop REF", "Stop a sandbox: a session, or one that is kept open", nil)
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		v, err := h.FindBox(ctx, args[0])
		if caisson.CodeOf(err) == caisson.CodeNotFound {
			if r, is, findErr := h.FindGuest(ctx, args[0]); is || findErr != nil {
				return a.stopGuest(ctx, h, r, findErr)
			}
		}
		if err != nil {
			return err
		}
		stopped, err := h.StopBox(ctx, v)
		if err != nil {
			return err
		}
		return a.print(stopped, func(w io.Writer) { fmt.Fprintf(w, "%s  %s\n", stopped.ID, boxState(stopped)) })
	})
	cmd.Long = `End a session and all that runs in its sandbox: first softly, then by force.
What was committed in it is brought home. One that "caisson sandbox create" made
is stopped so, with all sessions in it; "caisson sandbox start" opens it again.
The run of one session in it, as REF, ends that session alone. The sandbox of an
agent's run is ended with the run: "caisson runs cancel".`
	return cmd
}

// stopGuest ends one session in a sandbox that is kept open.
func (a *app) stopGuest(ctx context.Context, h *host.Host, r caisson.Run, err error) error {
	if err == nil {
		r, err = h.Cancel(ctx, r.ID)
	}
	if err != nil {
		return err
	}
	return a.print(r, func(w io.Writer) { fmt.Fprintf(w, "%s  %s\n", r.ID, r.State) })
}
