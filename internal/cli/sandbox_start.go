package cli

import (
	"context"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) sandboxStart() *cobra.Command {
	cmd := &cobra.Command{
		Use: "start REF", Short: "Open a sandbox again that was stopped", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(boxNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			r, err := h.FindServed(ctx, args[0])
			if err != nil {
				return err
			}
			return a.start(ctx, h, r)
		}),
	}
	return cmd
}

func (a *app) start(ctx context.Context, h *host.Host, r caisson.Run) error {
	if _, err := h.StartServed(ctx, r.ID); err != nil {
		return err
	}
	v, err := h.FindBox(ctx, string(r.ID))
	if err != nil {
		return err
	}
	return a.print(v, func(w io.Writer) { a.openLine(w, v) })
}
