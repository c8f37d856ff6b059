package cli

import (
	"context"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

// complete completes the first argument with what list returns, a name and a
// description split by a tab. A completion has nowhere to say an error.
func (a *app) complete(list func(ctx context.Context, h *host.Host, prefix string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		h, err := a.host(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer h.Close() //nolint:errcheck // see above
		names, err := list(cmd.Context(), h, prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func runNames(ctx context.Context, h *host.Host, prefix string) ([]string, error) {
	runs, err := h.Ledger.Runs(ctx, caisson.RunFilter{Prefix: prefix, Limit: 50})
	var names []string
	for _, r := range runs {
		names = append(names, string(r.ID)+"\t"+line(wantOf(r), 50))
	}
	return names, err
}

func reviewNames(ctx context.Context, h *host.Host, _ string) ([]string, error) {
	reviews, err := h.Ledger.Reviews(ctx, caisson.ReviewFilter{States: []caisson.ReviewState{caisson.ReviewOpen}, Limit: 50})
	var names []string
	for _, r := range reviews {
		names = append(names, string(r.ID)+"\t"+line(subjectOf(r), 50))
	}
	return names, err
}

func workspaceNames(ctx context.Context, h *host.Host, _ string) ([]string, error) {
	list, err := h.ListWorkspaces(ctx, false)
	var names []string
	for _, ws := range list {
		names = append(names, ws.Name+"\t"+line(ws.Branch, 50))
	}
	return names, err
}

func sessionNames(ctx context.Context, h *host.Host, prefix string) ([]string, error) {
	runs, err := h.Ledger.Runs(ctx, caisson.RunFilter{Prefix: prefix, Limit: 50})
	var names []string
	for _, r := range runs {
		if r.Spec.Session == caisson.SessionTerminal && !r.State.Terminal() {
			names = append(names, string(r.ID)+"\t"+line(wantOf(r), 50))
		}
	}
	return names, err
}

func boxNames(ctx context.Context, h *host.Host, _ string) ([]string, error) {
	list, err := h.ListBoxes(ctx, false)
	var names []string
	for _, v := range list {
		names = append(names, string(v.ID)+"\t"+line(plain(v.Want), 50))
	}
	return names, err
}
