package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/workspace"
	"github.com/spf13/cobra"
)

// mergeRules are told of every way to merge.
const mergeRules = `A conflict leaves everything as it was, and tells which files and how to
go on by hand. A branch that is checked out is brought along, if its checkout is
clean; the branch of another workspace is refused. Commits that are made are signed
if your own git configuration signs commits. Merge drivers and attributes of the
repository are not followed.`

func (a *app) workspaceMerge() *cobra.Command {
	var want host.MergeRequest
	cmd := &cobra.Command{
		Use: "merge REF", Short: "Merge a workspace's commits into a branch", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(workspaceNames),
		Long: `Merge a workspace's commits into the branch it started from, or another: as a
merge commit (or by moving the branch on, where that is all there is to do and
no message is given), as one commit (squash), or one by one on top (rebase).
` + mergeRules,
		Example: "  caisson workspace merge r7k2\n  caisson workspace merge r7k2 --mode squash -m 'dates: accept ISO weeks'\n  caisson workspace merge r7k2 --into release-2",
		RunE:    a.with(a.mergeAs(&want)),
	}
	cmd.Flags().StringVar(&want.Into, "into", "", "the `BRANCH` to merge into (default: the one it started from)")
	cmd.Flags().StringVar(&want.Mode, "mode", "merge", "merge, squash or rebase")
	cmd.Flags().BoolVar(&want.Commit, "commit", false, "first commit, as you, what is not committed in the workspace")
	cmd.Flags().StringVarP(&want.Message, "message", "m", "", "commit message, for merge and squash")
	return cmd
}

func (a *app) workspaceRebase() *cobra.Command {
	want := host.MergeRequest{Mode: string(workspace.MergeRebase)}
	cmd := &cobra.Command{
		Use: "rebase REF", Short: "Put a workspace's commits on top of a branch, one by one", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(workspaceNames),
		Long: `Put a workspace's commits on top of the branch it started from, or another, one by
one: that branch moves on, as with ` + "`workspace merge --mode rebase`" + `. The workspace's own
branch stays where the agent has it. Commits that the branch has already are left
out; where there are merges among them, use merge or squash.
` + mergeRules,
		Example: "  caisson workspace rebase r7k2\n  caisson workspace rebase r7k2 --onto release-2",
		RunE:    a.with(a.mergeAs(&want)),
	}
	cmd.Flags().StringVar(&want.Into, "onto", "", "the `BRANCH` to put them on (default: the one it started from)")
	cmd.Flags().BoolVar(&want.Commit, "commit", false, "first commit, as you, what is not committed in the workspace")
	cmd.Flags().StringVarP(&want.Message, "message", "m", "", "message of that commit")
	return cmd
}

func (a *app) mergeAs(want *host.MergeRequest) func(ctx context.Context, h *host.Host, args []string) error {
	return func(ctx context.Context, h *host.Host, args []string) error {
		merged, err := h.Merge(ctx, args[0], *want)
		if err != nil {
			return err
		}
		return a.print(merged, func(w io.Writer) { fmt.Fprintln(w, printable(merged.Says())) })
	}
}

func (a *app) workspaceExport() *cobra.Command {
	var want host.ExportRequest
	var stdout bool
	cmd := &cobra.Command{
		Use: "export REF [-o DIR | --stdout]", Short: "Write a workspace's commits as patches", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(workspaceNames),
		Long: `Write a workspace's commits since its base as patches in the form of a mail, one a
commit, which ` + "`git am --keep-non-patch`" + ` applies anywhere that the base is. What came
in by a merge is one patch. A commit that changes nothing has none. Nothing that
is there is replaced.`,
		Example: "  caisson workspace export r7k2 -o patches\n  caisson workspace export r7k2 --stdout | git -C ../other am --keep-non-patch",
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			switch {
			case stdout && want.Dir != "":
				return usage(errors.New("say one of --output and --stdout"))
			case !stdout && want.Dir == "":
				want.Dir = "."
			}
			exported, err := h.ExportPatches(ctx, args[0], want)
			if err != nil {
				return err
			}
			return a.print(exported, func(w io.Writer) {
				if stdout {
					fmt.Fprint(w, a.gitText(string(exported.Mbox)))
					return
				}
				fmt.Fprintln(w, exportedText(exported))
			})
		}),
	}
	cmd.Flags().StringVarP(&want.Dir, "output", "o", "", "the `DIR` to write to; made if it is not there (default: where you are)")
	cmd.Flags().BoolVar(&stdout, "stdout", false, "print all of them, as one mailbox")
	cmd.Flags().BoolVar(&want.Commit, "commit", false, "first commit, as you, what is not committed in the workspace")
	cmd.Flags().StringVarP(&want.Message, "message", "m", "", "message of that commit")
	return cmd
}

func exportedText(e host.Exported) string {
	var b strings.Builder
	if len(e.Patches) == 0 {
		fmt.Fprintf(&b, "Nothing to export: %s changes nothing since its base.", printable(e.Branch))
	} else {
		fmt.Fprintf(&b, "Wrote %s to %s.\n", counted(len(e.Patches), "patch", "patches"), printable(e.Dir))
		for _, p := range e.Patches {
			fmt.Fprintf(&b, "  %s\n", printable(p.File))
		}
		fmt.Fprintf(&b, "Apply them on %s: git am --keep-non-patch %s/*.patch", e.Base[:min(12, len(e.Base))], printable(e.Dir))
	}
	for _, p := range e.Joined {
		fmt.Fprintf(&b, "\nOne patch for all that a merge brought in: %s", line(plain(p.Subject), 60))
	}
	for _, p := range e.Empty {
		fmt.Fprintf(&b, "\nLeft out, as it changes nothing: %s", line(plain(p.Subject), 60))
	}
	return b.String()
}

func counted[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
