package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) policyCommand() *cobra.Command {
	return group("policy", "Check and explain policy", a.policyCheck())
}

func (a *app) policyCheck() *cobra.Command {
	var want host.PolicyQuestion
	var input string
	cmd := &cobra.Command{
		Use: "check [COMMAND LINE]", Short: "Read the policy files, and explain what they say of a call", Args: cobra.ArbitraryArgs, Annotations: textsFrom(1),
		Long: `Read the policy files that are in force here and say whether they are valid.
With a command line (or --tool and --input): which layer and rule decide, why,
and what the line was read as. Exit: 0 allow, 77 deny, 75 review.`,
		Example: "  caisson policy check\n  caisson policy check 'true; git push'\n  caisson policy check --tool write --input '{\"path\":\"go.mod\",\"content\":\"\"}'",
	}
	cmd.Flags().StringVar(&want.Tool, "tool", "shell", "tool that is called")
	cmd.Flags().StringVar(&input, "input", "", "its input, JSON or @FILE")
	cmd.Flags().StringVar(&want.Preset, "preset", "", "supervised, sandboxed or unattended")
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		switch {
		case input != "" && len(args) > 0:
			return usage(fmt.Errorf("a command line and --input exclude each other"))
		case input != "":
			raw, err := a.inputOf(input)
			if err != nil {
				return err
			}
			want.Input = raw
		case len(args) > 0:
			want.Input, _ = json.Marshal(map[string]string{"command": strings.Join(args, " ")}) // strings always marshal
		}
		answer, err := h.CheckPolicy(ctx, want)
		if err != nil {
			return err
		}
		if err := a.print(answer, func(w io.Writer) { fmt.Fprintln(w, printable(answer.Text)) }); err != nil {
			return err
		}
		switch answer.Ruling {
		case caisson.Deny:
			return &exitError{status: caisson.ExitRefused}
		case caisson.ReviewIt:
			return &exitError{status: caisson.ExitRetryable}
		default:
			return nil
		}
	})
	return cmd
}
