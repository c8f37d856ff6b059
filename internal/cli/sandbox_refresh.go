package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

const refreshLong = `Carry logins of agents between your home and that of a sandbox, both ways: of each
file that agents.credentials names, the newest valid copy goes to where it is
missing or older. REF is a sandbox, its run, or a workspace, running or not; without
it the workspace that you stand in is meant, or the only one of the repository.

A sandbox gets what is newer of yours when it is opened, and what its agent renewed
is taken out when it is closed. This does it now: after you have logged in again,
or when two sandboxes work with one login.

Your copy is replaced only by a newer one of the same shape, and not if you log in
meanwhile. Contents are never shown or recorded. The status is 1 where there is
something to look at. As JSON, one line a workspace:

  {"workspace", "branch", "files": [{"file", "moved", "digest", "why", "problem"}], "error"}`

func (a *app) sandboxRefresh() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "refresh [REF]", Short: "Carry renewed logins of agents between your home and a sandbox's", Long: refreshLong,
		Example: `  caisson sandbox refresh caisson/r7k2
  caisson sandbox refresh --all`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(boxNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			done, err := refresh(ctx, h, args, all)
			if err != nil {
				return err
			}
			if err := printEach(a, done, func(w io.Writer) { refreshText(w, done) }); err != nil {
				return err
			}
			for _, r := range done {
				if r.Trouble() {
					return status(caisson.ExitFailed)
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "of every workspace")
	return cmd
}

func refresh(ctx context.Context, h *host.Host, args []string, all bool) ([]host.Refreshed, error) {
	switch {
	case all && len(args) > 0:
		return nil, caisson.Errorf(caisson.CodeUsage, "%q names one, and --all means every workspace", args[0])
	case all:
		return h.RefreshAll(ctx)
	}
	ref := ""
	if len(args) > 0 {
		ref = args[0]
	}
	done, err := h.Refresh(ctx, ref)
	return []host.Refreshed{done}, err
}

func refreshText(w io.Writer, done []host.Refreshed) {
	if len(done) == 0 {
		fmt.Fprintln(w, "No workspaces.")
	}
	for _, r := range done {
		if r.Error != nil {
			fmt.Fprintf(w, "%s  %s [%s]\n", printable(r.Branch), printable(r.Error.Error()), r.Error.Code)
		}
		for _, f := range r.Files {
			fmt.Fprintf(w, "%s  %s\n", printable(r.Branch), printable(f.Says()))
		}
	}
}
