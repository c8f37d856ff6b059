package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/terminal"
	"github.com/spf13/cobra"
)

// sessionFlags are those of shell and exec.
type sessionFlags struct {
	want     host.ExecRequest
	require  []string
	detach   bool
	keys     string
	streamed bool // without a terminal also on one
}

func (f *sessionFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.want.NoWorkspace, "no-workspace", false, "in no workspace: a private empty directory, of which nothing is kept")
	flags.StringVar(&f.want.Engine, "engine", "", "sandbox engine (default: the strongest that works here)")
	flags.StringSliceVar(&f.require, "require", nil, "controls without which it is refused (default files,network,processes)")
	flags.StringSliceVar(&f.want.Env, "env", nil, "names of variables of yours that are seen inside")
	flags.StringSliceVar(&f.want.Network, "network", nil, "hosts that may be reached beside those of the config, as HOST, HOST:PORT or *.HOST; none: not even those")
	flags.DurationVar(&f.want.Deadline, "deadline", 0, "time after which it is ended (default: no bound)")
	flags.BoolVarP(&f.detach, "detach", "d", false, "start it in the background, with a terminal to attach to")
	detachKeys(cmd, &f.keys)
}

func detachKeys(cmd *cobra.Command, keys *string) {
	cmd.Flags().StringVar(keys, "detach-keys", terminal.DefaultKeys, "`KEYS` that leave a terminal to itself: characters and ctrl-X, split by commas; \"none\" for none")
}

const sessionText = `

On a terminal it has a terminal of its own, in a process of its own: Ctrl-C,
Ctrl-Z and the size are the inside's. Type Ctrl-] d to leave it to itself; the
same happens when your terminal is closed. "caisson sandbox attach" comes back,
also as one of several: all may type, the size is that of the one who typed last.
It ends when its program does, or with "caisson sandbox stop". What the terminal
shows is recorded with its time, what is typed is not.

It is a run without an agent: "caisson runs" lists it, and what is committed in it
is brought to the workspace's branch. No two runs work in one workspace at once.`

func (a *app) sandboxShell() *cobra.Command {
	f := &sessionFlags{}
	cmd := &cobra.Command{
		Use: "shell [REF]", Short: "Open a shell in a sandbox around a workspace",
		Long: `Open a shell in a sandbox around a workspace: REF is its branch, the run that made
it, its id, or the number of a sandbox in "caisson sandbox ls". Without REF it is the one you
stand in, or the only one of this repository.` + sessionText + `

Exit: the shell's status, 0 when you leave it to itself.`,
		Example: `  caisson sandbox shell
  caisson sandbox shell caisson/r7k2
  caisson sandbox shell --no-workspace`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(workspaceNames),
	}
	f.add(cmd)
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		if !a.terminal() && !f.detach {
			return usage(fmt.Errorf("a shell needs a terminal: run a command with `caisson sandbox exec`, or say --detach"))
		}
		f.want.Ref = strings.Join(args, "")
		return a.session(ctx, h, f)
	})
	return cmd
}

func (a *app) sandboxExec() *cobra.Command {
	f := &sessionFlags{}
	cmd := &cobra.Command{
		Use: "exec [flags] REF [--] COMMAND… | exec [flags] -- COMMAND…", Short: "Run a command in a sandbox around a workspace",
		Long: `Run a command in a sandbox around a workspace: REF is its branch, the run that
made it, its id, or the number of a sandbox in "caisson sandbox ls". Without REF it is the one
you stand in, or the only one of this repository. Flags come before REF.

Without a terminal, its input, output and errors are those of this command, byte
for byte, and the end of this command ends it.` + sessionText + `

Exit: the command's own status, 128+n for a signal; 0 when you leave it to itself;
75 where policy wants it reviewed first, or its output cannot be written.`,
		Example: `  caisson sandbox exec -- go test ./...
  caisson sandbox exec caisson/r7k2 git log --oneline
  tar c . | caisson sandbox exec --no-workspace -- tar x
  caisson sandbox exec -d r7k2 -- make watch`,
		Args: cobra.ArbitraryArgs, Annotations: textsFrom(1), ValidArgsFunction: a.command(a.complete(workspaceNames)),
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&f.streamed, "no-terminal", "T", false, "no terminal inside, also on one")
	cmd.Flags().SetInterspersed(false) // the command's flags are its own
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		if f.streamed && f.detach {
			return usage(fmt.Errorf("--detach needs a terminal to come back to: leave out --no-terminal"))
		}
		var err error
		if f.want.Ref, f.want.Argv, err = execArgs(args, cmd.ArgsLenAtDash() == 0 || f.want.NoWorkspace); err != nil {
			return err
		}
		return a.session(ctx, h, f)
	})
	return cmd
}

// execArgs splits REF [--] COMMAND…, or, with whole, COMMAND….
func execArgs(args []string, whole bool) (ref string, argv []string, err error) {
	argv = args
	if !whole && len(args) > 0 {
		ref, argv = args[0], args[1:]
		if len(argv) > 0 && argv[0] == "--" {
			argv = argv[1:]
		} else if len(argv) > 0 && strings.HasPrefix(argv[0], "-") {
			return "", nil, usage(fmt.Errorf("%q is no command: flags come before REF", argv[0]))
		}
	}
	if len(argv) == 0 {
		return "", nil, usage(fmt.Errorf("there is no command: REF COMMAND… or -- COMMAND…"))
	}
	return ref, argv, nil
}

// session starts a session and stays with it, or not.
func (a *app) session(ctx context.Context, h *host.Host, f *sessionFlags) error {
	keys, err := terminal.ParseKeys(f.keys)
	if err != nil {
		return err
	}
	for _, c := range f.require {
		f.want.Require = append(f.want.Require, caisson.Control(c))
	}
	f.want.Session = caisson.SessionStreams
	if f.detach || a.terminal() && !f.streamed {
		f.want.Session = caisson.SessionTerminal
	}
	r, err := h.NewExec(ctx, f.want)
	if err != nil {
		return err
	}
	if f.want.Session == caisson.SessionStreams {
		return a.drive(ctx, h, r, host.DriveOptions{})
	}
	if err := h.Hold(ctx, r.ID, host.ServeOptions{Size: sizeOf(a.io.Out), Expect: !f.detach}); err != nil {
		return a.stays(ctx, h, r, err)
	}
	if f.detach {
		return a.print(r, func(w io.Writer) {
			fmt.Fprintf(w, "%s  runs in the background: caisson sandbox attach %s\n", r.ID, r.ID)
		})
	}
	return a.attach(ctx, h, r.ID, attachOptions{keys: keys})
}

// unbegun returns why the command of a session was not begun, if that is so and
// nobody stopped it: a program that is not there, for one.
func unbegun(r caisson.Run, calls []caisson.CallRecord) error {
	if r.Spec.Session == "" || !r.State.Terminal() || r.Cause != "" || len(calls) == 0 {
		return nil
	}
	why := notStarted(calls)
	if why == nil {
		return nil
	}
	return &exitError{status: exitOf(r), err: why}
}

// notStarted returns why the last of these calls, a command, could not be started.
func notStarted(calls []caisson.CallRecord) *caisson.Error {
	if len(calls) == 0 {
		return nil
	}
	last := calls[len(calls)-1]
	if last.State.Outcome() != caisson.OutcomeNotStarted || last.Result == nil || last.Result.Error == nil {
		return nil
	}
	why := *last.Result.Error
	switch {
	case why.Hint != "":
	case why.Code == caisson.CodeNotFound: // as most agents are installed
		why.Hint = "Only what is inside can be run: programs of the system, or of the engine's image, and those in the workspace. " +
			"One of your home is inside where `mounts:` in your config lends its directory; name it by its path then."
	case why.Code == caisson.CodePathInvalid:
		why.Hint = "It must be a file that may be executed."
	}
	return &why
}

// sandboxServe is the process that holds a session.
func (a *app) sandboxServe() *cobra.Command {
	var size string
	var opts host.ServeOptions
	cmd := a.runArg("serve RUN", "Hold a session: drive it, and serve its terminal",
		func(ctx context.Context, h *host.Host, r caisson.Run) error {
			if _, err := fmt.Sscanf(size, "%dx%d", &opts.Size.Cols, &opts.Size.Rows); err != nil {
				return usage(fmt.Errorf("--size is COLSxROWS, and not %q", size))
			}
			stop := newStopper(ctx, h, r, func() {}, nil)
			defer stop.close()
			ended, err := h.Serve(context.WithoutCancel(ctx), r.ID, opts)
			if err != nil {
				return err
			}
			return status(exitOf(ended))
		})
	cmd.Hidden = true
	cmd.Flags().StringVar(&size, "size", "80x24", "size of the terminal to begin with")
	cmd.Flags().BoolVar(&opts.Expect, "expect", false, "a viewer is about to come")
	return cmd
}
