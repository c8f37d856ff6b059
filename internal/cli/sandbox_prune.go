package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

// prunedView is one thing that nobody holds, for programs.
type prunedView struct {
	host.Remnant
	Gone bool `json:"gone"`
}

func (a *app) sandboxPrune() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove what is provably nobody's", Args: cobra.NoArgs,
		Long: `Remove what processes that were killed left: sandboxes that nobody drives, their
boxes at the engines, channels of sandboxes that are gone, sockets and locks of dead
processes, holds whose holder is dead, and bring removals to their end that were cut.
What a living process holds stays, and so does what may be held by one that cannot be
asked. Sandboxes that are stopped stay: "caisson sandbox rm" removes them.

Every command does so for itself when it begins; this one says what there is.

Exit: 0 where nothing is left, 1 where something could not be removed.`,
		Example: "  caisson sandbox prune --dry-run\n  caisson sandbox prune",
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be removed")
	look := a.with(func(ctx context.Context, h *host.Host, _ []string) error {
		if dryRun {
			left, err := h.Left(ctx)
			if printErr := a.showPruned(left, nil, "would go"); err == nil {
				err = printErr
			}
			return err
		}
		gone, stays, err := h.Prune(ctx)
		if printErr := a.showPruned(gone, stays, "gone"); err == nil {
			err = printErr
		}
		if err == nil && len(stays) > 0 {
			return status(caisson.ExitFailed)
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.leave = true // it is this command's to remove, and to tell
		return look(cmd, args)
	}
	return cmd
}

func (a *app) showPruned(gone, stays []host.Remnant, word string) error {
	var list []prunedView
	for _, r := range gone {
		list = append(list, prunedView{r, word == "gone"})
	}
	for _, r := range stays {
		list = append(list, prunedView{r, false})
	}
	return printEach(a, list, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "Nothing is left over.")
		}
		for i, v := range list {
			says := word
			if i >= len(gone) {
				says = "stays"
			}
			fmt.Fprintf(w, "%-8s  %s\n", says, line(v.Kind+" "+v.Name+": "+v.Why, 200))
		}
	})
}
