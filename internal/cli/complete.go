package cli

import (
	"cmp"
	"context"
	"regexp"
	"runtime"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/workspace"
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

func workspaceNames(ctx context.Context, h *host.Host, prefix string) ([]string, error) {
	list, err := h.ListWorkspaces(ctx, false)
	var names []string
	for _, ws := range list {
		names = append(names, byBranch(ws.Name, ws.Branch, prefix))
	}
	return names, err
}

// plainBranch is a name that needs no quotes in a shell.
var plainBranch = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/-]*$`)

// byBranch completes what is known by its branch too, to that where a person has
// begun to type it.
func byBranch(name, branch, prefix string) string {
	if prefix != "" && strings.HasPrefix(branch, prefix) && plainBranch.MatchString(branch) {
		return branch + "\t" + name
	}
	return name + "\t" + line(branch, 50)
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

func boxNames(ctx context.Context, h *host.Host, prefix string) ([]string, error) {
	list, err := h.ListBoxes(ctx, false)
	var names []string
	for _, v := range list {
		names = append(names, byBranch(string(v.ID), cmp.Or(v.Branch, plain(v.Want)), prefix))
	}
	return names, err
}

// command completes a reference, and after it what any shell would: a command of
// which only the inside knows more.
func (a *app) command(ref cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return ref(cmd, args, prefix)
	}
}

// completeAll gives each command and flag that takes no file a completion of its own.
func (a *app) completeAll(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && cmd.Annotations[texts] == "" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for flag, words := range map[string][]string{
		"engine": caisson.EngineNames(runtime.GOOS), "preset": texted(gate.Presets()), "require": texted(caisson.Controls()),
		"workspace-mode": texted([]caisson.WorkspaceMode{caisson.WorkspaceWorktree, caisson.WorkspaceClone}),
		"mode":           texted([]workspace.MergeMode{workspace.MergeCommit, workspace.MergeSquash, workspace.MergeRebase}),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
		}
	}
	if cmd.Flags().Lookup("run") != nil {
		_ = cmd.RegisterFlagCompletionFunc("run", a.complete(runNames)) // as above
	}
	for _, sub := range cmd.Commands() {
		a.completeAll(sub)
	}
}

func texted[T ~string](list []T) []string {
	var out []string
	for _, word := range list {
		out = append(out, string(word))
	}
	return out
}
