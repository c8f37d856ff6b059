package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

const rebuildLong = `Make the image of the sandboxes of a container engine: build Caisson's own from
containers.base, or pull the one that containers.image names. The first run does
it where the image is missing; this does it now, or anew. Sandboxes that run keep
the image that they have, and the old one stays until the new one is whole.

What the engine says meanwhile goes to standard error. As JSON:

  {"engine", "image"}`

func (a *app) sandboxRebuild() *cobra.Command {
	var want host.RebuildRequest
	var quiet bool
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Make the image of a container engine's sandboxes, now or anew", Long: rebuildLong,
		Example: `  caisson sandbox rebuild
  caisson sandbox rebuild --engine podman --refresh`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, h *host.Host, _ []string) error {
			want.Output = a.err
			if quiet {
				want.Output = nil
			}
			made, err := h.Rebuild(ctx, want)
			if err != nil {
				return err
			}
			return a.print(made, func(w io.Writer) { fmt.Fprintf(w, "%s  %s\n", made.Engine, printable(made.Image)) })
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&want.Engine, "engine", "", "container engine (default: that of the config, else the first that answers)")
	flags.BoolVar(&want.Refresh, "refresh", false, "also bring what it is built from, and install everything again")
	flags.BoolVarP(&quiet, "quiet", "q", false, "say nothing of the engine's work")
	return cmd
}
