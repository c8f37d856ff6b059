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
	"github.com/caisson-run/caisson/workspace"
	"github.com/spf13/cobra"
)

func (a *app) workspaceDiff() *cobra.Command {
	var stat bool
	cmd := &cobra.Command{
		Use: "diff REF [A..B]", Short: "Show what was changed since the base, files that are not committed included", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.complete(workspaceNames),
		Long: `Show what differs between two states of a workspace: the base and now, or those
that A..B names. A state is a snapshot as ` + "`workspace log`" + ` names it (@3 is the tree
after turn 3, @s1 one that was taken on demand), base, now (the tree as it is),
or a commit or branch. A alone is compared with now.`,
		Example: "  caisson workspace diff r7k2\n  caisson workspace diff caisson/r7k2 --stat\n  caisson workspace diff r7k2 @3..@5\n  caisson workspace diff r7k2 @3",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			between := ""
			if len(args) > 1 {
				between = args[1]
			}
			text, err := h.Diff(ctx, args[0], between, stat)
			if err != nil {
				return err
			}
			return a.printDiff(text)
		}),
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "only a line a file")
	return cmd
}

func (a *app) runsDiff() *cobra.Command {
	var stat bool
	cmd := &cobra.Command{
		Use: "diff RUN[@A[..B]]", Short: "Show what a run changed, in all or between two of its turns", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(runNames),
		Long: `Show what differs between two states of a run's workspace. A and B are turns by
number, base, or now (the tree as it is). A alone is compared with now.`,
		Example: "  caisson runs diff r7k2\n  caisson runs diff r7k2@3..5\n  caisson runs diff r7k2@base..2 --stat",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			text, err := h.RunDiff(ctx, args[0], stat)
			if err != nil {
				return err
			}
			return a.printDiff(text)
		}),
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "only a line a file")
	return cmd
}

func (a *app) printDiff(text string) error {
	return a.print(map[string]caisson.Bytes{"diff": caisson.Bytes(text)}, func(w io.Writer) { fmt.Fprint(w, a.gitText(text)) })
}

func (a *app) workspaceLog() *cobra.Command {
	return &cobra.Command{
		Use: "log REF", Short: "List the commits since the base, and the snapshots of the tree", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(workspaceNames),
		Long: `List what was done in a workspace since its base, newest first: commits, and
between them the snapshots of the tree: @3 is that after turn 3 of the run that
the workspace was made for, @RUN/3 that of another run, @s1 one on demand. Of
each: what changed since the one before. The last 20 are kept, and of older ones
every tenth.`,
		Example: "  caisson workspace log r7k2\n  caisson workspace log --json 1",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			history, err := h.Log(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(history, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				for _, e := range history.Entries {
					if c := e.Commit; c != nil {
						fmt.Fprintf(tw, "%s\t%s\t%s\n", c.ID[:min(12, len(c.ID))], stamp(c.Time), printable(c.Subject))
					} else if k := e.Snapshot; k != nil {
						fmt.Fprintf(tw, "%s\t%s\t%s\n", printable(k.Name), stamp(k.Time), keptLine(*k))
					}
				}
				_ = tw.Flush() // writes to w, whose errors the last write shows
			})
		}),
	}
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

// shownChanges is how many files fit into a line.
const shownChanges = 4

func keptLine(k workspace.Kept) string {
	text := changesLine(k.Changes)
	if k.Why != "" {
		text += " (" + printable(k.Why) + ")"
	}
	if len(k.Without) > 0 {
		var paths []string
		for _, path := range k.Without[:min(shownChanges, len(k.Without))] {
			paths = append(paths, line(plain(path), 40))
		}
		if more := len(k.Without) - shownChanges; more > 0 {
			paths = append(paths, fmt.Sprintf("%d more", more))
		}
		text += "; without the files of " + strings.Join(paths, ", ")
	}
	return text
}

// changesLine tells in a line which files differ.
func changesLine(changes []workspace.Change) string {
	if len(changes) == 0 {
		return "no change"
	}
	marks := map[string]string{"added": "+", "changed": "~", "removed": "-"}
	var parts []string
	for _, c := range changes[:min(shownChanges, len(changes))] {
		parts = append(parts, marks[c.Kind]+line(plain(string(c.Path)), 40))
	}
	if more := len(changes) - shownChanges; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, " ")
}
