package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) sandboxStart() *cobra.Command {
	var opts host.StartOptions
	cmd := &cobra.Command{
		Use: "start REF", Short: "Open a sandbox again, look at it, and mend it",
		Long: `Open a sandbox again that was stopped, or whose process was killed, and look at
it: its first process, its workspace, its mounts and limits as the kernel tells
them, the settings, its channel. What can be mended is; the rest is told with
what mends it.

--recreate makes the boundary anew, as a new generation: sessions in it are ended,
and requests of the old one are refused. The workspace is compared before and
after, and the sandbox is stopped where it is not provably the same.

Exit: 0 where all is as it should be, 1 where something is not.`,
		Example: "  caisson sandbox start fix-parser\n  caisson sandbox start --recreate fix-parser",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.complete(boxNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			r, err := h.FindServed(ctx, args[0])
			if err != nil {
				return err
			}
			return a.start(ctx, h, r, opts)
		}),
	}
	cmd.Flags().BoolVar(&opts.Recreate, "recreate", false, "make the boundary anew around the same workspace")
	return cmd
}

// startView is a sandbox that was started, for programs.
type startView struct {
	host.BoxView
	Findings []host.Finding `json:"findings"`
}

func (a *app) start(ctx context.Context, h *host.Host, r caisson.Run, opts host.StartOptions) error {
	started, err := h.StartServed(ctx, r.ID, opts)
	if err != nil {
		return err
	}
	v, err := h.FindBox(ctx, string(r.ID))
	if err != nil {
		return err
	}
	err = a.print(startView{v, started.Findings}, func(w io.Writer) {
		a.openLine(w, v)
		for _, f := range started.Findings {
			a.finding(w, f)
		}
	})
	if err == nil && !started.Sound() {
		return status(caisson.ExitFailed)
	}
	return err
}

func (a *app) finding(w io.Writer, f host.Finding) {
	mark := "✓"
	switch {
	case !f.OK:
		mark = a.colour("31", "✗")
	case f.Repaired:
		mark = "→"
	}
	fmt.Fprintf(w, "  %s %-10s %s\n", mark, f.What, line(f.Says, 2000))
	if f.Fix != "" {
		fmt.Fprintf(w, "      %s\n", line(f.Fix, 2000))
	}
}
