package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) sandboxRm() *cobra.Command {
	var want host.BoxRemoveRequest
	var all, dryRun, yes bool
	cmd := &cobra.Command{
		Use: "rm [REF…]", Short: "Remove sandboxes that are kept open", ValidArgsFunction: a.complete(boxNames),
		Long: `Remove sandboxes that "caisson sandbox create" made: all that runs in them is ended,
their runs are over, their boxes and channels go. Workspaces stay, but with --purge,
which moves them to the trash as "caisson workspace rm" does: it never discards
anything, and one workspace with something to lose, or in which something still has
a file open, stops all of it before the first step.

--unbound means every sandbox that is bound to no task that is active or blocked, of
all repositories; it is bound by its workspace, by its branch, or as one of the task's
steps. "caisson workspace rm --unbound" is of one repository. Where a command is killed in the middle, the next one goes on.

Exit: 0 where all were removed.`,
		Example: "  caisson sandbox rm fix-parser\n  caisson sandbox rm --unbound --dry-run\n  caisson sandbox rm --unbound --purge --yes",
	}
	flags := cmd.Flags()
	flags.BoolVar(&want.Unbound, "unbound", false, "those of all repositories that are bound to no task that goes on")
	flags.BoolVar(&want.Purge, "purge", false, "move their workspaces to the trash too")
	flags.BoolVar(&dryRun, "dry-run", false, "only show what would be done")
	flags.BoolVar(&yes, "yes", false, "ask nothing")
	flags.BoolVar(&all, "all", false, "an error that says what is meant")
	_ = flags.MarkHidden("all") // it is there
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		if all {
			return usage(fmt.Errorf("there is no --all: --unbound means every sandbox that is bound to no task that goes on; name the others"))
		}
		if want.Refs = args; (len(args) > 0) == want.Unbound {
			return usage(fmt.Errorf("name sandboxes, or say --unbound"))
		}
		list, err := h.InspectBoxRemovals(ctx, want)
		if err != nil {
			return err
		}
		if dryRun {
			return printEach(a, list, func(w io.Writer) { a.showBoxRemovals(w, list) })
		}
		if err := a.mayRemove(list, want, yes); err != nil {
			return err
		}
		removed, err := h.RemoveBoxes(ctx, list, want.Purge)
		printErr := printEach(a, removed, func(w io.Writer) { a.showRemoved(w, removed, err == nil) })
		if err != nil {
			return err
		}
		return printErr
	})
	return cmd
}

// mayRemove asks where something is ended that a person may not have in mind.
func (a *app) mayRemove(list []host.BoxRemoval, want host.BoxRemoveRequest, yes bool) error {
	sessions := 0
	for _, one := range list {
		sessions += len(one.Sessions)
		if one.Why != "" {
			if !a.json {
				a.showBoxRemovals(a.err, list)
			}
			return nil // which is refused as a whole
		}
	}
	if yes || len(list) == 0 || !want.Unbound && sessions == 0 {
		return nil
	}
	if !a.terminal() {
		return usage(fmt.Errorf("%s would be removed, with %s: say --yes", counted(len(list), "sandbox", "sandboxes"), counted(sessions, "session", "sessions")))
	}
	a.showBoxRemovals(a.out, list)
	if !a.confirm("Remove them?") {
		return caisson.Errorf(caisson.CodeCancelled, "nothing was removed")
	}
	return nil
}

func (a *app) showBoxRemovals(w io.Writer, list []host.BoxRemoval) {
	if len(list) == 0 {
		fmt.Fprintln(w, "No sandboxes.")
	}
	for _, one := range list {
		fmt.Fprintf(w, "%s  %s  %s", orDash(string(one.Sandbox)), one.Run, line(orDash(one.Branch), 40))
		switch {
		case one.Why != "":
			fmt.Fprintf(w, "  kept: %s\n", line(one.Why, 200))
		case one.Purge != nil:
			fmt.Fprintf(w, "  can go, with its workspace: nothing would be lost\n")
		default:
			fmt.Fprintf(w, "  can go\n")
		}
		if one.Task != "" {
			fmt.Fprintf(w, "  it is bound to task %s\n", one.Task)
		}
		if one.Hold != nil && one.Why == "" {
			fmt.Fprintf(w, "  the hold of %s is given up with it: %s\n", printable(one.Hold.By), line(one.Hold.Left, 200))
		}
		for _, s := range one.Sessions {
			fmt.Fprintf(w, "  session %s is ended with it\n", s)
		}
		if one.Purge != nil {
			for i, l := range one.Purge.Losses {
				if i == maxShown {
					break
				}
				fmt.Fprintf(w, "  %-9s  %s\n", l.Kind, line(string(l.What), 80))
			}
		}
	}
}

func (a *app) showRemoved(w io.Writer, removed []host.Removed, all bool) {
	if len(removed) == 0 && all {
		fmt.Fprintln(w, "No sandboxes.")
	}
	for _, r := range removed {
		text := "Removed " + cmp.Or(string(r.Sandbox), "the sandbox of run "+string(r.Run)) + "."
		switch {
		case r.Trashed != nil:
			text += fmt.Sprintf(" Its workspace is in the trash: caisson workspace trash restore %s", r.Trashed.Workspace.ID)
		case r.Kept != "":
			text += " Its workspace on branch " + r.Branch + " is kept: " + r.Kept
		case r.Branch != "":
			text += " Its workspace on branch " + r.Branch + " is kept."
		}
		fmt.Fprintln(w, printable(text))
	}
}
