package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "See the settings in force", a.configShow())
}

func (a *app) configShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show every setting, its value, and where it comes from", Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, h *host.Host, _ []string) error {
			settings, err := h.Settings(ctx)
			if err != nil {
				return err
			}
			return printEach(a, settings, func(w io.Writer) {
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				for _, s := range settings {
					fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Key, line(s.Value, 60), s.From)
				}
				_ = tw.Flush() // writes to w, whose errors the last write shows
			})
		}),
	}
}
