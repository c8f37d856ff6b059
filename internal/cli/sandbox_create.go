package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) sandboxCreate() *cobra.Command {
	want := host.RunRequest{Served: true}
	var require []string
	cmd := &cobra.Command{
		Use: "create [flags] REF [BASE] | create [flags] --no-workspace", Short: "Open a sandbox around a workspace, and keep it open",
		Long: `Open a sandbox around a workspace, and keep it open until it is stopped or removed.
REF is the new branch of a new workspace, and BASE the commit or branch that it
starts from (default HEAD); or it means a workspace that is there and in which
nobody works: its branch, the run that made it, its id, or the id of a task, whose
workspace is made where it has none. "caisson sandbox exec" and "shell" then work in
this one sandbox: they see each other's files below /tmp, and each other's servers.

A process in the background keeps it open ("caisson serve"); "sandbox stop" ends
what runs in it and keeps the workspace, "sandbox start" opens it again.`,
		Example: `  caisson sandbox create fix-parser
  caisson sandbox create fix-parser main --network proxy.golang.org
  caisson sandbox create caisson/r7k2
  caisson sandbox exec fix-parser go test ./...`,
		Args: cobra.MaximumNArgs(2),
	}
	flags := cmd.Flags()
	flags.BoolVar(&want.NoWorkspace, "no-workspace", false, "in no workspace: a private empty directory, of which nothing is kept")
	flags.StringVar((*string)(&want.Mode), "workspace-mode", "", "how the workspace is made: worktree or clone (default: the config's)")
	flags.StringVar(&want.Engine, "engine", "", "sandbox engine (default: the strongest that works here)")
	flags.StringSliceVar(&require, "require", nil, "controls without which it is refused (default files,network,processes)")
	flags.StringVar(&want.Preset, "preset", "", "how requests from inside are judged: supervised, sandboxed or unattended")
	flags.StringSliceVar(&want.Env, "env", nil, "names of variables of yours that are seen inside")
	flags.StringSliceVar(&want.Network, "network", nil, "hosts that may be reached beside those of the config, as HOST, HOST:PORT or *.HOST; none: not even those")
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		if (len(args) == 0) != want.NoWorkspace {
			return usage(fmt.Errorf("name a branch or a workspace, or say --no-workspace"))
		}
		for _, c := range require {
			want.Require = append(want.Require, caisson.Control(c))
		}
		if len(args) > 0 {
			want.Branch = args[0]
		}
		if len(args) > 1 {
			want.Base = args[1]
		}
		r, err := h.NewRun(ctx, want)
		if err != nil {
			return err
		}
		if _, err := h.StartServed(ctx, r.ID, host.StartOptions{}); err != nil {
			return a.stays(ctx, h, r, err)
		}
		v, err := h.FindBox(ctx, string(r.ID))
		if err != nil {
			return err
		}
		return a.print(v, func(w io.Writer) { a.openLine(w, v) })
	})
	return cmd
}

func (a *app) openLine(w io.Writer, v host.BoxView) {
	where, ref := "no workspace", string(v.Run)
	if v.Branch != "" {
		where = "branch " + printable(v.Branch)
	}
	fmt.Fprintf(w, "%s  %s on %s, engine %s: caisson sandbox exec %s COMMAND\n", v.ID, boxState(v), where, v.Engine, ref)
}
