package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/ledger"
	"github.com/spf13/cobra"
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "Verify and export the record", a.auditVerify(), a.auditExport())
}

func (a *app) auditVerify() *cobra.Command {
	var file, head string
	cmd := &cobra.Command{
		Use: "verify [RUN]", Short: "Verify the hash chain of one run, of all, or of an exported file", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(runNames),
		Long: `Verify the record. Any change inside a chain is found and the first broken link
named. A chain whose tail was cut, or that was rewritten as a whole, is found
only against a head that was kept elsewhere: --head.`,
		Example: "  caisson audit verify\n  caisson audit verify r7k2 --head 5f3c…\n  caisson audit verify --file export.jsonl --head r7k2=5f3c…",
	}
	cmd.Flags().StringVar(&file, "file", "", "verify this export, offline")
	cmd.Flags().StringVar(&head, "head", "", "a `HASH` that the run's chain must contain, or RUN=HASH")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		show := func(v ledger.Report) error {
			return a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "The record is whole: %s in %s.\n", counted(v.Events, "event", "events"), counted(len(v.Heads), "chain", "chains"))
				for _, head := range v.Heads {
					fmt.Fprintf(w, "  %-8s %6d  %s\n", head.Run, head.Seq, head.Hash)
				}
			})
		}
		if file != "" {
			v, err := host.VerifyExport(file, strings.Join(args, ""), head)
			if err != nil {
				return err
			}
			return show(v)
		}
		return a.with(func(ctx context.Context, h *host.Host, args []string) error {
			ref := ""
			if len(args) > 0 {
				ref = args[0]
			}
			v, err := h.Verify(ctx, ref, head)
			if err != nil {
				return err
			}
			return show(v)
		})(cmd, args)
	}
	return cmd
}

func (a *app) auditExport() *cobra.Command {
	return &cobra.Command{
		Use: "export [RUN]", Short: "Write the record as JSON lines with OCSF field names", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(runNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			ref := ""
			if len(args) > 0 {
				ref = args[0]
			}
			return h.Export(ctx, ref, a.out)
		}),
	}
}
