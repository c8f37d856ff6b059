package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/terminal"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxCost is far above what any run costs, in US dollars.
const maxCost = 1_000_000

func (a *app) runCommand() *cobra.Command {
	var want host.RunRequest
	var detach bool
	var require []string
	cmd := &cobra.Command{
		Use:   "run [flags] PROMPT | run [flags] -- COMMAND…",
		Short: "Run an agent in a sandbox around a new worktree", Annotations: textsFrom(0),
		Long: `Run an agent: the built-in one on a model with a PROMPT, or any program after
"--". It works in a git worktree on a branch of its own, inside a sandbox. What
it does is printed a line a call; what policy wants reviewed is asked here on a
terminal, and can be answered from any other with "caisson review".

Ctrl-C once stops the turn and parks the run ("caisson runs resume" goes on);
again at once cancels it. While a command after "--" has the terminal, keys go
to it. A command after "--" that is stopped so is begun anew by
"runs resume".

With --json: each event of the run as a line, then the run. A command after "--"
has stdout for itself; what Caisson has to say goes to stderr.

Exit: 0 succeeded, 1 failed or stopped by a bound, 75 waiting for a review or
paused by a fault, 124 deadline, 130 interrupted or cancelled, 141 parked because
nobody reads any more what it prints; with "--" the command's own status.`,
		Example: `  caisson run "make the date parser accept ISO weeks"
  caisson run --model anthropic/claude-sonnet-4-5 --max-cost 2 "fix the flaky test"
  caisson run -d "update the docs"
  caisson run -- claude -p "fix the flaky test"`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&want.Model, "model", "", "provider/model, or script:FILE")
	flags.StringVar(&want.Engine, "engine", "", "sandbox engine (default: the strongest that works here)")
	flags.StringSliceVar(&require, "require", nil, "controls without which the run is refused (default files,network,processes)")
	flags.StringVar(&want.Preset, "preset", "", "supervised, sandboxed or unattended")
	flags.StringVar(&want.Branch, "branch", "", "branch to work on (default caisson/RUN)")
	flags.StringVar(&want.Base, "base", "", "commit or branch to start from (default HEAD)")
	flags.StringVar((*string)(&want.Mode), "workspace-mode", "", "how the workspace is made: worktree or clone (default: the config's)")
	flags.BoolVar(&want.NoWorkspace, "no-workspace", false, "no git worktree: a private empty directory, of which nothing is kept")
	flags.Int64Var(&want.Budget.Tokens, "max-tokens", 0, "tokens, in and out")
	cost := flags.Float64("max-cost", 0, "US dollars")
	flags.Int64Var(&want.Budget.Turns, "max-turns", 0, "answers of the model")
	flags.Int64Var(&want.Budget.Calls, "max-calls", 0, "calls")
	flags.DurationVar(&want.Budget.Wall, "deadline", 0, "running time; waiting for a person does not count")
	flags.StringSliceVar(&want.Env, "env", nil, "names of variables of yours that the agent may see")
	flags.StringSliceVar(&want.Network, "network", nil, "hosts that may be reached beside those of the config, as HOST, HOST:PORT or *.HOST; none: not even those")
	flags.BoolVarP(&detach, "detach", "d", false, "go on in the background; what is asked parks the run at once")
	isolation := flags.String("isolation", "", "")
	flags.Lookup("isolation").Hidden = true // it is asked for, and said not to be
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		if *isolation != "" {
			return usage(fmt.Errorf("every run has a boundary: there is no --isolation %s; choose the boundary with --engine, and what it must enforce with --require", *isolation))
		}
		if !(*cost >= 0 && *cost <= maxCost) { // not a number is neither
			return usage(fmt.Errorf("--max-cost takes US dollars, from 0 to %d", maxCost))
		}
		want.Budget.Cost = int64(*cost * 1e6)
		for _, c := range require {
			want.Require = append(want.Require, caisson.Control(c))
		}
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			if dash > 0 {
				return usage(fmt.Errorf("a prompt and a command exclude each other"))
			}
			if len(args) == 0 {
				return usage(fmt.Errorf("there is no command after --"))
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
		ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace)
		if err == nil {
			where = "branch " + ws.Branch
		}
		fmt.Fprintf(a.err, "  run %s  %s  sandbox %s\n", r.ID, printable(where), r.Spec.Engine)
		for _, m := range ws.Submodules {
			if m.Empty != "" {
				fmt.Fprintf(a.err, "  submodule %s is empty: %s\n", printable(m.Path), printable(m.Empty))
			}
		}
	}
	return a.drive(ctx, h, r, host.DriveOptions{})
}

// resume drives a run that exists.
func (a *app) resume(ctx context.Context, h *host.Host, r caisson.Run, opts host.DriveOptions) error {
	if r.State.Terminal() {
		return caisson.Errorf(caisson.CodeStateInvalid, "run %s has ended: %s", r.ID, r.State).WithHint("Begin another; `caisson runs show %s` shows what it did.", r.ID)
	}
	if r.Spec.Session == caisson.SessionServed {
		return a.start(ctx, h, r, host.StartOptions{})
	}
	if r.Spec.Session == caisson.SessionTerminal {
		keys, err := terminal.ParseKeys(terminal.DefaultKeys)
		if err != nil {
			return err
		}
		return a.reattach(ctx, h, r, attachOptions{keys: keys})
	}
	return a.drive(ctx, h, r, opts)
}

// resumeDecided drives a run on in which something was decided, unless another
// process does, which then sees the decision itself.
func (a *app) resumeDecided(ctx context.Context, h *host.Host, id caisson.RunID) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil {
		return err
	}
	if r.State.Terminal() { // it was open when it was decided
		if !a.json {
			fmt.Fprintf(a.err, "  another process drove run %s on, and it has ended: %s\n", id, r.State)
		}
		return nil
	}
	err = a.resume(ctx, h, r, host.DriveOptions{})
	if caisson.CodeOf(err) != caisson.CodeLeaseHeld {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.err, "  another process drives run %s and goes on: caisson runs attach %s\n", id, id)
	}
	return nil
}

// drive drives a run in this process until it ends, waits or is paused, and
// prints what happens meanwhile.
func (a *app) drive(ctx context.Context, h *host.Host, r caisson.Run, opts host.DriveOptions) error {
	w, ended, err := a.driven(ctx, h, r, opts)
	if err != nil {
		return a.stays(ctx, h, r, err)
	}
	return a.ended(ctx, h, w, ended)
}

// stays adds to why a run could not be taken up, or a sandbox not be opened, what
// of it is on record still, how to go on, and how to be rid of it.
func (a *app) stays(ctx context.Context, h *host.Host, r caisson.Run, err error) error {
	r, readErr := h.Ledger.Run(context.WithoutCancel(ctx), r.ID)
	if readErr != nil || r.State != caisson.RunPaused && r.State != caisson.RunPending {
		return err // it has ended, or somebody drives it
	}
	what, on, off := "run", "caisson runs resume", "caisson runs cancel"
	switch r.Spec.Session {
	case caisson.SessionServed:
		what, on, off = "sandbox of run", "caisson sandbox start", "caisson sandbox rm"
	case caisson.SessionStreams, caisson.SessionTerminal:
		what = "session"
	}
	text := fmt.Sprintf("The %s %s stays on record: `%s %s` goes on, `%s %s` gives it up.", what, r.ID, on, r.ID, off, r.ID)
	ws, wsErr := h.Ledger.Workspace(context.WithoutCancel(ctx), r.Spec.Workspace)
	if wsErr == nil && ws.Run == r.ID { // which was made for it
		text = fmt.Sprintf("The %s %s stays on record, and its workspace on branch %s: `%s %s` goes on; `%s %s`, then `caisson workspace rm %s` give both up.",
			what, r.ID, ws.Branch, on, r.ID, off, r.ID, ws.Name)
	}
	e := caisson.AsError(err)
	return e.WithHint("%s", strings.TrimSpace(e.HintText()+" "+text)).With("run", r.ID)
}

// driven is drive, without a word about how the run stands then.
func (a *app) driven(ctx context.Context, h *host.Host, r caisson.Run, opts host.DriveOptions) (*watch, caisson.Run, error) {
	told := ctx
	ctx = context.WithoutCancel(ctx) // the run is ended in order, by stop
	w := a.newWatch(ctx, h, r)
	within, err := h.InServed(ctx, r)
	if err != nil {
		return w, r, err
	}
	var leave context.CancelCauseFunc
	if within {
		ctx, leave = context.WithCancelCause(ctx)
		defer leave(nil)
	}
	stop := newStopper(told, h, r, w.stopping, leave)
	defer stop.close()
	opts.Pause = stop.pause
	if w.foreign {
		pty, err := h.AgentPTY(ctx, r.ID, a.terminal() && r.Spec.Session == "")
		if err != nil {
			return w, r, err
		}
		t := a.agentTerminal(pty)
		defer t.close()
		opts.Agent, opts.PTY = &t.streams, pty
		if t.raw != nil {
			w.to.raw = t.raw.isRaw
		}
	} else if w.ask != nil {
		opts.Observe = w.observe
	}
	ended, err := w.during(ctx, func(ctx context.Context) (caisson.Run, error) {
		if within {
			ended, err := h.DriveServed(ctx, r.ID, host.Streams{In: a.io.In, Out: a.io.Out, Err: a.io.Err})
			if errors.Is(err, syscall.EPIPE) { // the process that serves has written for this one
				a.out.unread()
			}
			return ended, err
		}
		return h.Drive(ctx, r.ID, opts)
	})
	return w, ended, err
}

// ended says how a run stands, and has the program end with its status. A
// command that ran to its end has said all itself.
func (a *app) ended(ctx context.Context, h *host.Host, w *watch, r caisson.Run) error {
	if !w.foreign {
		if err := a.print(r, func(out io.Writer) { a.summary(ctx, h, out, r) }); err != nil {
			return err
		}
		return status(exitOf(r))
	}
	calls, err := h.Ledger.Calls(ctx, r.ID)
	if err != nil {
		return err
	}
	calls = slices.DeleteFunc(calls, func(c caisson.CallRecord) bool { return c.Call.Parent != "" })
	why := unbegun(r, calls)
	own := r.State.Terminal() && r.Cause == "" && len(calls) > 0 && calls[len(calls)-1].Result != nil && calls[len(calls)-1].Result.Error == nil
	own = own && (r.Spec.Session != "" || !term.IsTerminal(int(a.io.Err.Fd()))) // on a terminal the person is told how to go on
	switch {
	case a.json:
		if err := encode(a.err, r); err != nil {
			return err
		}
	case why != nil:
	case !own:
		var text strings.Builder
		a.summary(ctx, h, &text, r)
		if e := notStarted(calls); e != nil && e.HintText() != "" && r.State.Terminal() {
			fmt.Fprintf(&text, "  %s\n", printable(e.HintText()))
		}
		w.to.line("%s", strings.TrimSuffix(text.String(), "\n"))
	}
	return cmp.Or(why, status(exitOf(r)))
}

// watch prints what happens in a run that another process drives.
func (a *app) watch(ctx context.Context, h *host.Host, r caisson.Run) error {
	w := a.newWatch(ctx, h, r)
	ended, err := w.during(ctx, func(ctx context.Context) (caisson.Run, error) { return h.Await(ctx, r.ID) })
	if err != nil {
		return err
	}
	if err := a.print(ended, func(out io.Writer) { a.summary(ctx, h, out, ended) }); err != nil {
		return err
	}
	return status(exitOf(ended))
}

func status(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{status: code}
}

func exitOf(r caisson.Run) int {
	switch {
	case len(r.Spec.Argv) > 0 && r.State.Terminal() && (r.Exit != 0 || r.State == caisson.RunSucceeded):
		return r.Exit
	case r.State == caisson.RunSucceeded:
		return caisson.ExitOK
	case r.Stop == caisson.StopDeadline:
		return caisson.ExitDeadline
	case r.State == caisson.RunCancelled, r.State == caisson.RunPaused && (r.Cause == caisson.CauseUser || r.Cause == caisson.CauseShutdown):
		return caisson.ExitInterrupted
	case !r.State.Terminal(): // it can go on
		return caisson.ExitRetryable
	default:
		return caisson.ExitFailed
	}
}

// summary says how a run stands and how to go on.
func (a *app) summary(ctx context.Context, h *host.Host, w io.Writer, r caisson.Run) {
	fmt.Fprintf(w, "  run %s  %s after %s, %s\n", r.ID, a.runState(r), r.Active.Round(100*time.Millisecond), counted(r.Turns, "turn", "turns"))
	if r.Text != "" && r.Text != string(r.State) && r.State != caisson.RunSucceeded {
		fmt.Fprintf(w, "  %s\n", line(r.Text, 300))
	}
	gone := h.LookAt(ctx, r)
	switch {
	case gone != nil:
		e := caisson.AsError(gone)
		fmt.Fprintf(w, "  %s\n", printable(e.Error()))
		if hint := e.HintText(); hint != "" {
			fmt.Fprintf(w, "  %s\n", printable(hint))
		}
	case r.State == caisson.RunWaiting:
		fmt.Fprintf(w, "  it waits for you: caisson review ls --run %s\n", r.ID)
	case !r.State.Terminal():
		fmt.Fprintf(w, "  go on: caisson runs resume %s\n", r.ID)
	case r.Spec.Workspace != "":
		ref := string(r.ID) // the workspace has its name
		if r.Spec.Session != "" {
			ref = string(r.Spec.Workspace)
		}
		fmt.Fprintf(w, "  see it: caisson workspace diff %s   take it: caisson workspace merge %s\n", ref, ref)
	}
}
