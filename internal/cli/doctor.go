package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what this host can enforce, and the fix for what it cannot", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			h, openErr := a.host(ctx)
			report := host.Ailing(openErr)
			if openErr == nil {
				defer func() { err = errors.Join(err, h.Close()) }()
				report = h.Doctor(ctx)
			}
			if err := a.print(report, func(w io.Writer) { a.doctorReport(w, report) }); err != nil {
				return err
			}
			switch {
			case openErr != nil:
				return status(caisson.CodeOf(openErr).Info().Exit)
			case !report.OK:
				return &exitError{1}
			}
			return nil
		},
	}
}

func (a *app) doctorReport(w io.Writer, report host.Report) {
	for _, c := range report.Checks {
		mark := a.colour("32", "✓")
		if !c.OK {
			mark = a.colour("31", "✗")
		}
		fmt.Fprintf(w, "%s %-10s %s\n", mark, c.Name, printable(c.Says))
		if c.Fix != "" {
			fmt.Fprintf(w, "             fix: %s\n", printable(c.Fix))
		}
	}
	for _, iso := range report.Engines {
		fmt.Fprintf(w, "\nengine %s\n", iso.Engine)
		for _, row := range iso.Controls {
			mark, text := a.colour("32", "✓"), row.By
			if !row.Enforced {
				mark, text = a.colour("31", "✗"), row.Why
			} else if row.Why != "" {
				text += " (" + row.Why + ")"
			}
			fmt.Fprintf(w, "  %s %-10s %s\n", mark, row.Control, printable(text))
			if row.Fix != "" {
				fmt.Fprintf(w, "               fix: %s\n", printable(row.Fix))
			}
		}
	}
}
