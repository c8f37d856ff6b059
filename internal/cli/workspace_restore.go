package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/workspace"
	"github.com/spf13/cobra"
)

func (a *app) workspaceSnapshot() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use: "snapshot REF", Short: "Keep the tree of a workspace as it is now", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(workspaceNames),
		Long: `Keep the tree of a workspace as it is now: files that are not committed too,
and those of submodules, ignored ones not. Each turn of a run that did more than
read is kept so by itself. The branch is not moved. A run may be at work.`,
		Example: "  caisson workspace snapshot r7k2\n  caisson workspace snapshot r7k2 -m 'before I try by hand'",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			snap, err := h.TakeSnapshot(ctx, args[0], why)
			if err != nil {
				return err
			}
			return a.print(snap, func(w io.Writer) {
				text := "Kept as " + snap.Name + "."
				if !snap.Changed {
					text += " Nothing has changed since the last snapshot."
				}
				if snap.Partial != "" {
					text += " Not all of it: " + printable(snap.Partial)
				}
				switch snap.Hidden {
				case 0:
				case 1:
					text += " What is hidden is in it as it was committed, if it was: one file or directory."
				default:
					text += fmt.Sprintf(" What is hidden is in it as it was committed, if it was: %d files and directories.", snap.Hidden)
				}
				fmt.Fprintln(w, text+submodulesText(snap.Submodules))
			})
		}),
	}
	cmd.Flags().StringVarP(&why, "message", "m", "", "what `TEXT` to show where snapshots are listed")
	return cmd
}

func (a *app) workspaceRestore() *cobra.Command {
	turn, name := -1, ""
	cmd := &cobra.Command{
		Use: "restore REF --turn N [PATH...]", Short: "Bring files of a workspace back as they were after a turn", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.complete(workspaceNames),
		Long: `Bring files of a workspace back as a snapshot holds them: those at each PATH, or
the whole tree, from which then also goes what the snapshot does not hold. What is
there now is first kept as a snapshot, whose name is told: nothing is lost, and
it can be undone. Ignored files stay; one in the way stops it before anything is
written. The branch, and what is staged, stay as they are. Refused while a run
works in the workspace.`,
		Example: "  caisson workspace restore r7k2 --turn 3\n  caisson workspace restore r7k2 --turn 3 internal/date\n  caisson workspace restore r7k2 --snapshot s1",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			switch {
			case turn >= 0 == (name != ""):
				return usage(errors.New("say which snapshot, with --turn or --snapshot: `caisson workspace log` lists them"))
			case turn >= 0:
				name = "@" + strconv.Itoa(turn)
			default:
				name = "@" + strings.TrimPrefix(name, "@")
			}
			restored, err := h.RestoreFiles(ctx, args[0], name, args[1:])
			if err != nil {
				return err
			}
			return a.print(restored, func(w io.Writer) { fmt.Fprintln(w, restoredText(args[0], restored)) })
		}),
	}
	cmd.Flags().IntVar(&turn, "turn", -1, "as it was after turn `N` of its run")
	cmd.Flags().Lookup("turn").DefValue = "" // -1 is no turn, and nothing to be told of
	cmd.Flags().StringVar(&name, "snapshot", "", "as snapshot `NAME` of `caisson workspace log` holds it")
	return cmd
}

// submodulesText tells of which submodules files are not kept, or were left.
func submodulesText(all []workspace.SubmoduleSnapshot) string {
	var b strings.Builder
	for _, m := range all {
		switch path := line(plain(m.Path), 80); {
		case m.Unkept != "" && m.Commit != "":
			fmt.Fprintf(&b, "\nNot all of submodule %s: %s", path, printable(m.Unkept))
		case m.Unkept != "":
			fmt.Fprintf(&b, "\nWithout the files of submodule %s: %s", path, printable(m.Unkept))
		}
	}
	return b.String()
}

func restoredText(ref string, r workspace.Restored) string {
	undo := strings.TrimPrefix(r.Before.Name, "@")
	var b strings.Builder
	if len(r.Changes) == 0 {
		fmt.Fprintf(&b, "Nothing to restore: it is as in %s.", printable(r.From))
	} else {
		fmt.Fprintf(&b, "Restored from %s: %s\nAs it was before: %s. To undo it: caisson workspace restore %s --snapshot %s", printable(r.From), changesLine(r.Changes), r.Before.Name, printable(ref), undo)
	}
	for _, path := range r.Left {
		fmt.Fprintf(&b, "\nLeft as it is: %s, a repository of its own", line(plain(string(path)), 80))
	}
	return b.String() + submodulesText(r.Submodules)
}
