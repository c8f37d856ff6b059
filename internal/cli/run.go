package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	var want host.RunRequest
	var detach bool
	var require []string
	cmd := &cobra.Command{
		Use:   "run [flags] PROMPT | run [flags] -- COMMAND…",
		Short: "Run an agent in a sandbox around a new worktree",
		Long: `Run an agent: the built-in one on a model with a PROMPT, or any program after
"--". It works in a git worktree on a branch of its own, inside a sandbox. What
it does is printed a line a call; what policy wants reviewed is asked here on a
terminal, and can be answered from any other with "caisson review".

Ctrl-C once stops the turn and parks the run ("caisson runs resume" goes on);
twice cancels it. Exit: 0 succeeded, 75 waiting for a review, 124 deadline,
130 paused or cancelled; with "--" the command's own status.`,
		Example: `  caisson run "make the date parser accept ISO weeks"
  caisson run --model anthropic/claude-sonnet-4-5 --max-cost 2 "fix the flaky test"
  caisson run -d "update the docs"
  caisson run -- claude -p "fix the flaky test"`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&want.Model, "model", "", "provider/model, or script:FILE")
	flags.StringVar(&want.Engine, "engine", "", "sandbox engine (default: the strongest that works here)")
	flags.StringVar(&want.Isolation, "isolation", "", `"none" runs without any sandbox; must be said out loud`)
	flags.StringSliceVar(&require, "require", nil, "controls without which the run is refused (default files,network,processes)")
	flags.StringVar(&want.Preset, "preset", "", "supervised, sandboxed or unattended")
	flags.StringVar(&want.Branch, "branch", "", "branch to work on (default caisson/RUN)")
	flags.StringVar(&want.Base, "base", "", "commit or branch to start from (default HEAD)")
	flags.BoolVar(&want.NoWorkspace, "no-workspace", false, "no git worktree: a private empty directory, of which nothing is kept")
	flags.Int64Var(&want.Budget.Tokens, "max-tokens", 0, "tokens, in and out")
	cost := flags.Float64("max-cost", 0, "US dollars")
	flags.Int64Var(&want.Budget.Turns, "max-turns", 0, "answers of the model")
	flags.Int64Var(&want.Budget.Calls, "max-calls", 0, "calls")
	flags.DurationVar(&want.Budget.Wall, "deadline", 0, "running time; waiting for a person does not count")
	flags.StringSliceVar(&want.Env, "env", nil, "names of variables of yours that the agent may see")
	flags.BoolVarP(&detach, "detach", "d", false, "go on in the background")
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		want.Budget.Cost = int64(*cost * 1e6)
		for _, c := range require {
			want.Require = append(want.Require, caisson.Control(c))
		}
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			if dash > 0 {
				return usage(fmt.Errorf("a prompt and a command exclude each other"))
			}
			want.Argv = args
		} else {
			want.Prompt = strings.Join(args, " ")
		}
		return a.run(ctx, h, want, detach)
	})
	return cmd
}

func (a *app) run(ctx context.Context, h *host.Host, want host.RunRequest, detach bool) error {
	r, err := h.NewRun(ctx, want)
	if err != nil {
		return err
	}
	if detach {
		if err := h.Detach(ctx, r.ID); err != nil {
			return err
		}
		return a.print(r, func(w io.Writer) {
			fmt.Fprintf(w, "%s  runs in the background: caisson runs attach %s\n", r.ID, r.ID)
		})
	}
	if !a.json {
		where := "no workspace"
		if ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace); err == nil {
			where = "branch " + ws.Branch
		}
		fmt.Fprintf(a.io.Err, "  run %s  %s  sandbox %s\n", r.ID, printable(where), boxOf(r))
	}
	return a.drive(ctx, h, r, false)
}

// resume drives a run that exists.
func (a *app) resume(ctx context.Context, h *host.Host, id caisson.RunID, takeOver bool) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return err
	}
	if r.State.Terminal() {
		return caisson.Errorf(caisson.CodeStateInvalid, "run %s has ended: %s", r.ID, r.State)
	}
	return a.drive(ctx, h, r, takeOver)
}

// drive drives a run in this process until it ends, waits or is paused, and
// prints what happens meanwhile.
func (a *app) drive(ctx context.Context, h *host.Host, r caisson.Run, takeOver bool) error {
	foreign := len(r.Spec.Argv) > 0
	stop := newStopper(h, r.ID)
	defer stop.close()
	opts := host.DriveOptions{TakeOver: takeOver, Pause: stop.pause}
	if foreign {
		t := a.agentTerminal()
		defer t.close()
		opts.Agent, opts.PTY = &t.streams, t.raw != nil
	}
	w := a.newWatch(h, r, foreign)
	ended, err := w.during(ctx, func(ctx context.Context) (caisson.Run, error) {
		return h.Drive(ctx, r.ID, opts)
	})
	if err != nil {
		return err
	}
	if foreign && ended.State.Terminal() && ended.Cause == "" {
		return status(ended.Exit)
	}
	if err := a.summary(h, ended); err != nil {
		return err
	}
	return status(exitOf(ended))
}

// watch prints what happens in a run that another process drives.
func (a *app) watch(ctx context.Context, h *host.Host, id caisson.RunID) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return err
	}
	w := a.newWatch(h, r, false)
	ended, err := w.during(ctx, func(ctx context.Context) (caisson.Run, error) {
		for seq := int64(0); ; {
			run, err := h.Ledger.Run(ctx, id)
			if err != nil || run.State.Terminal() {
				return run, err
			}
			if seq, err = h.Ledger.Wait(ctx, id, max(seq, run.Events)); err != nil {
				return run, err
			}
		}
	})
	if err != nil {
		return err
	}
	return a.summary(h, ended)
}

func status(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code}
}

func exitOf(r caisson.Run) int {
	switch {
	case r.State == caisson.RunSucceeded:
		return caisson.ExitOK
	case r.State == caisson.RunWaiting:
		return caisson.ExitRetryable
	case r.Stop == caisson.StopDeadline:
		return caisson.ExitDeadline
	case r.State == caisson.RunCancelled || r.State == caisson.RunPaused:
		return caisson.ExitInterrupted
	default:
		return caisson.ExitFailed
	}
}

// summary says how a run stands and how to go on.
func (a *app) summary(h *host.Host, r caisson.Run) error {
	return a.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "  run %s  %s after %s, %d turns\n", r.ID, a.runState(r), r.Active.Round(100*time.Millisecond), r.Turns)
		if r.Text != "" && r.State != caisson.RunSucceeded {
			fmt.Fprintf(w, "  %s\n", line(r.Text, 300))
		}
		switch {
		case r.State == caisson.RunWaiting:
			fmt.Fprintf(w, "  it waits for you: caisson review ls --run %s\n", r.ID)
		case r.State == caisson.RunPaused:
			fmt.Fprintf(w, "  go on: caisson runs resume %s\n", r.ID)
		case r.Spec.Workspace != "":
			fmt.Fprintf(w, "  see it: caisson workspace diff %s   take it: caisson workspace merge %s\n", r.ID, r.ID)
		}
	})
}
