package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) workspaceCommand() *cobra.Command {
	return group("workspace", "See, bring back, merge and remove what agents did", a.workspaceLs(), a.workspaceDiff(), a.workspaceLog(),
		a.workspaceSnapshot(), a.workspaceRestore(), a.workspaceMerge(), a.workspaceRebase(), a.workspaceExport(),
		a.workspaceRm(), a.workspaceTrash())
}

func (a *app) workspaceLs() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the workspaces of this repository, or of all", Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, h *host.Host, _ []string) error {
			list, err := h.ListWorkspaces(ctx, all)
			if err != nil {
				return err
			}
			return printEach(a, list, func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, "No workspaces.")
					return
				}
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				for i, ws := range list {
					number := strconv.Itoa(i + 1)
					if all { // numbers count what is listed without it
						number = "-"
					}
					fmt.Fprintf(tw, "%s\t%s\t%s\tfrom %s\t%s\n", number, printable(ws.Name), printable(ws.Branch), ws.Base[:min(10, len(ws.Base))], printable(ws.Path))
				}
				_ = tw.Flush() // writes to w, whose errors the last write shows
			})
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "of all repositories")
	return cmd
}

// gitText is output of git as it is for a file or a pipe, and made harmless for
// a terminal.
func (a *app) gitText(text string) string {
	if a.outTerminal() {
		return printable(text)
	}
	return text
}
