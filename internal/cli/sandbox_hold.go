package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) sandboxHold() *cobra.Command {
	want := host.HoldRequest{}
	cmd := &cobra.Command{
		Use: "hold REF --reason TEXT [--for TIME] -- COMMAND…", Short: "Work alone in the workspace of a sandbox, outside of it",
		Long: `Stop what runs in a sandbox that is kept open, run COMMAND in its workspace, and
start the sandbox again. COMMAND runs on your machine, with your rights, and with
the terminal that this command has. It needs a sandbox that is open and in which
no request runs; programs inside that ask for something meanwhile are told
handoff-active, sessions in it are ended. COMMAND has ten minutes: longer work, as
in a shell, says --for how long.

When COMMAND has ended, or its time is over, the workspace is compared with what it
is bound to, and what you committed on its branch is brought inside. Where that
cannot be done - the branch is not checked out any more, for one - the hold stays,
no sandbox is opened there, and it is said what is left to do. A hold whose process
was killed is ended by the next command, with all that COMMAND started.

Exit: COMMAND's own status, 128+n for a signal; 124 when its time was over; 75 where
somebody else has the workspace, or it could not be restored.`,
		Example: "  caisson sandbox hold fix-parser --reason 'resolve conflicts' --for 10m -- git rebase main\n  caisson sandbox hold fix-parser --reason review --for 2h -- bash",
		Args:    cobra.MinimumNArgs(2), Annotations: textsFrom(1), ValidArgsFunction: a.command(a.complete(boxNames)),
	}
	cmd.Flags().StringVar(&want.Reason, "reason", "", "why, for others to read (required)")
	cmd.Flags().DurationVar(&want.For, "for", defaultHold, "time after which COMMAND is ended")
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		want.Ref, want.Argv = args[0], args[1:]
		want.Streams = host.Streams{In: a.io.In, Out: a.io.Out, Err: a.io.Err}
		if a.json { // what it prints is not this command's
			want.Streams.Out = a.io.Err
		}
		ctx, stop := untilSignal(ctx)
		defer stop()
		held, err := h.HoldServed(ctx, want)
		if err != nil {
			var named *caisson.CauseError
			if errors.As(context.Cause(ctx), &named) && caisson.CodeOf(err) == caisson.CodeCancelled {
				return caisson.Errorf(caisson.CodeInterrupted, "%s was ended, and the sandbox is open again", want.Argv[0]).
					WithHint("What it changed is in the workspace: `caisson workspace diff %s`.", want.Ref)
			}
			if named != nil && errors.Is(err, context.Canceled) && caisson.CodeOf(err) == caisson.CodeInternal {
				return caisson.Errorf(caisson.CodeInterrupted, "it was interrupted while the sandbox was being stopped for it").
					WithHint("`caisson sandbox start %s` opens it again, where it was stopped.", want.Ref)
			}
			return err
		}
		err = a.print(held, func(w io.Writer) {
			if held.After != held.Before {
				fmt.Fprintf(a.err, "  branch %s moved: %.12s → %.12s; it is so inside too\n", printable(held.Branch), held.Before, held.After)
			}
			for _, f := range held.Amiss {
				a.finding(a.err, f)
			}
		})
		if err == nil && held.Exit != 0 {
			return status(held.Exit)
		}
		return err
	})
	return cmd
}

// defaultHold is long enough for a merge by hand, and short enough for a hold
// that was forgotten.
const defaultHold = 10 * time.Minute
