package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/workspace"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// maxShown bounds the losses that are shown of one workspace.
const maxShown = 20

func (a *app) workspaceRm() *cobra.Command {
	var want host.RemoveRequest
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "rm [REF…]", Short: "Move workspaces to the trash", ValidArgsFunction: a.complete(workspaceNames),
		Long: `Move workspaces to the trash, from which they can be restored for some days.
Each is looked at first, from inside a sandbox: changes, ignored files that no
build makes again, stashes, commits that are nowhere else, operations under
way, processes that have something of it open. Where something would be lost
you are asked, for that one workspace, at a terminal. More than one, --yes and
no terminal never discard anything: one workspace with something to lose stops
all of them before the first is touched. A branch is deleted only where another
branch or a remote has its commits.

--unbound means each workspace of this repository that a run made, where that run
has ended, no other goes on in it, and it is bound to no task that is active or
blocked. That of a sandbox that is kept open is not: its run goes on until the
sandbox is removed ("caisson sandbox rm --unbound", which is of all repositories).`,
		Example: "  caisson workspace rm r7k2\n  caisson workspace rm --unbound --dry-run",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			want.Refs = args
			if (len(args) > 0) == (want.All || want.Unbound) || want.All && want.Unbound {
				return usage(fmt.Errorf("name workspaces, or say --unbound or --all"))
			}
			want.Batch = yes || !a.terminal()
			removals, err := h.InspectRemovals(ctx, want)
			if err != nil {
				return err
			}
			if dryRun {
				return printEach(a, removals, func(w io.Writer) { a.showRemovals(w, removals) })
			}
			return a.remove(ctx, h, removals)
		}),
	}
	cmd.Flags().BoolVar(&want.All, "all", false, "all workspaces of this repository")
	cmd.Flags().BoolVar(&want.Unbound, "unbound", false, "those of this repository whose run has ended, bound to no task that goes on")
	cmd.Flags().BoolVar(&yes, "yes", false, "ask nothing: what would be lost keeps its workspace")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done")
	return cmd
}

// remove removes what was looked at, after a question where one may be asked.
func (a *app) remove(ctx context.Context, h *host.Host, removals []host.Removal) error {
	if len(removals) == 1 && removals[0].Askable {
		a.showRemovals(a.out, removals)
		if !a.confirm("Move it to the trash with all of that?") {
			return removals[0].Err()
		}
		removals[0] = removals[0].Discard()
	}
	for _, r := range removals {
		if r.Err() != nil {
			if !r.Askable && !a.json {
				a.showRemovals(a.err, removals)
			}
			break
		}
	}
	trashed, err := h.RemoveWorkspaces(ctx, removals)
	printErr := printEach(a, trashed, func(w io.Writer) {
		if len(removals) == 0 {
			fmt.Fprintln(w, "No workspaces.")
		}
		for _, t := range trashed {
			fmt.Fprintln(w, printable(trashedText(h, t)))
		}
	})
	if err != nil {
		return err
	}
	return printErr
}

func trashedText(h *host.Host, t workspace.Trashed) string {
	branch := "Branch " + t.Workspace.Branch + " is kept."
	if t.BranchDeleted {
		branch = "Branch " + t.Workspace.Branch + " is deleted: its commits are on another."
	}
	return fmt.Sprintf("Removed %s. %s\nFor %d days: caisson workspace trash restore %s", t.Workspace.Name, branch, h.Config.TrashDays, t.Workspace.ID)
}

func (a *app) showRemovals(w io.Writer, removals []host.Removal) {
	if len(removals) == 0 {
		fmt.Fprintln(w, "No workspaces.")
	}
	for _, r := range removals {
		switch r.Mode {
		case workspace.ModeRefused:
			fmt.Fprintf(w, "%s  kept: %s\n", printable(r.Name), printable(r.Why))
		default:
			fmt.Fprintf(w, "%s  can go: nothing would be lost\n", printable(r.Name))
		}
		for i, l := range r.Losses {
			if i == maxShown {
				fmt.Fprintf(w, "  and %d more (--dry-run --json shows all)\n", len(r.Losses)-maxShown)
				break
			}
			fmt.Fprintf(w, "  %-9s  %s", l.Kind, line(string(l.What), 80))
			if l.How != "" {
				fmt.Fprintf(w, "  %s", line(string(l.How), 80))
			}
			fmt.Fprintln(w)
		}
	}
}

// confirm asks a person at the terminal; anything but a yes is a no. What was
// typed before the question was there is no answer to it.
func (a *app) confirm(question string) bool {
	_ = unix.IoctlSetInt(int(a.io.In.Fd()), unix.TCFLSH, unix.TCIFLUSH) // it is a terminal
	fmt.Fprintf(a.out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.io.In).ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.out)
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func (a *app) workspaceTrash() *cobra.Command {
	return group("trash", "See, restore and prune removed workspaces", a.trashLs(), a.trashRestore(), a.trashPrune())
}

// withTrash is with, and leaves in the trash what the person may be about to see
// or to bring back.
func (a *app) withTrash(use func(ctx context.Context, h *host.Host, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.keepTrash = true
		return a.with(use)(cmd, args)
	}
}

func (a *app) trashLs() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the removed workspaces of this repository, or of all", Args: cobra.NoArgs,
		RunE: a.withTrash(func(ctx context.Context, h *host.Host, _ []string) error {
			list, unread := h.ListTrash(ctx, all)
			now := time.Now()
			return errors.Join(unread, printEach(a, list, func(w io.Writer) {
				if len(list) == 0 && unread != nil {
					return
				}
				if len(list) == 0 {
					fmt.Fprintln(w, "The trash is empty.")
					return
				}
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				for _, t := range list {
					fmt.Fprintf(tw, "%s\t%s\t%s\tremoved %s ago\t%s left\t%s\n", t.Workspace.ID, printable(t.Workspace.Name), printable(t.Workspace.Branch),
						span(now.Sub(t.At)), span(max(t.Until.Sub(now), 0)), holds(t))
				}
				_ = tw.Flush() // writes to w, whose errors the last write shows
			}))
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "of all repositories")
	return cmd
}

// holds says what of a workspace in the trash is nowhere else.
func holds(t host.Trash) string {
	if len(t.Losses) == 0 {
		return "nothing of its own"
	}
	return workspace.Tally(t.Losses)
}

func (a *app) trashRestore() *cobra.Command {
	return &cobra.Command{
		Use: "restore ID", Short: "Bring a removed workspace back exactly as it was", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(trashNames),
		RunE: a.withTrash(func(ctx context.Context, h *host.Host, args []string) error {
			t, err := h.FindTrash(args[0])
			if err != nil {
				return err
			}
			ws, err := h.RestoreWorkspace(ctx, t)
			if err != nil {
				return err
			}
			return a.print(ws, func(w io.Writer) {
				fmt.Fprintf(w, "Restored %s on branch %s: %s\n", printable(ws.Name), printable(ws.Branch), printable(ws.Path))
			})
		}),
	}
}

func (a *app) trashPrune() *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use: "prune [ID]", Short: "Remove workspaces from the trash for good", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(trashNames),
		Long: `Remove workspaces from the trash for good: those whose days are over; with an ID
that one; with --all all of this repository. One with something that is nowhere
else goes before its days are over only by itself, after a question at a
terminal.`,
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			if all && len(args) > 0 {
				return usage(fmt.Errorf("name one, or say --all"))
			}
			list, err := a.prunable(ctx, h, args, all, yes)
			if err != nil {
				return err
			}
			if err := h.PruneTrash(ctx, list); err != nil {
				return err
			}
			return printEach(a, list, func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, "Nothing to prune.")
				}
				for _, t := range list {
					fmt.Fprintf(w, "Pruned %s (%s)\n", printable(t.Workspace.Name), t.Workspace.ID)
				}
			})
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all of this repository in the trash")
	cmd.Flags().BoolVar(&yes, "yes", false, "ask nothing")
	return cmd
}

// prunable returns what is to be removed for good, after a question where one
// may be asked.
func (a *app) prunable(ctx context.Context, h *host.Host, args []string, all, yes bool) ([]host.Trash, error) {
	if len(args) == 1 {
		t, err := h.FindTrash(args[0])
		if err != nil {
			return nil, err
		}
		if len(t.Losses) > 0 && len(host.Expired([]host.Trash{t})) == 0 {
			if yes || !a.terminal() {
				return nil, keptInTrash([]host.Trash{t})
			}
			fmt.Fprintf(a.out, "%s holds %s.\n", printable(t.Workspace.Name), printable(holds(t)))
			if !a.confirm("Remove it for good?") {
				return nil, keptInTrash([]host.Trash{t})
			}
		}
		return []host.Trash{t}, nil
	}
	if !all {
		list, err := h.ListTrash(ctx, false)
		return host.Expired(list), err
	}
	list, err := h.AllTrash(ctx)
	if err != nil {
		return nil, err
	}
	var kept []host.Trash
	for _, t := range list {
		if len(t.Losses) > 0 && len(host.Expired([]host.Trash{t})) == 0 {
			kept = append(kept, t)
		}
	}
	if len(kept) > 0 {
		return nil, keptInTrash(kept)
	}
	return list, nil
}

func keptInTrash(kept []host.Trash) error {
	var text []string
	for _, t := range kept {
		text = append(text, fmt.Sprintf("%s (%s) holds %s", t.Workspace.ID, t.Workspace.Name, holds(t)))
	}
	return caisson.Errorf(caisson.CodeWorkspaceDirty, "nothing was removed: %s", strings.Join(text, "; ")).
		WithHint("Remove one by itself at a terminal: there you are asked.")
}

func trashNames(ctx context.Context, h *host.Host, _ string) ([]string, error) {
	list, err := h.ListTrash(ctx, false)
	var names []string
	for _, t := range list {
		names = append(names, string(t.Workspace.ID)+"\t"+line(t.Workspace.Name+" "+t.Workspace.Branch, 50))
	}
	return names, err
}
