package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/task"
	"github.com/spf13/cobra"
)

// edits does one edit and says what was done.
func (a *app) edits(ctx context.Context, h *host.Host, edit caisson.TaskEdit, says string) error {
	t, err := h.Tasks().Edit(ctx, edit)
	if err != nil {
		return err
	}
	return a.print(t, func(w io.Writer) { fmt.Fprintf(w, "Task %s: %s.\n", t.ID, says) })
}

func (a *app) taskNote() *cobra.Command {
	return &cobra.Command{
		Use: "note REF TEXT", Short: "Add a note to a task's history", Args: cobra.ExactArgs(2), Annotations: textsFrom(1), ValidArgsFunction: a.complete(taskNames),
		Example: "  caisson task note 1 'the old parser is still used by the importer'",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error {
			return a.edits(ctx, h, task.Note(t.ID, h.Me(), rest[0]), "noted")
		}),
	}
}

func (a *app) taskFinding() *cobra.Command {
	var severity, reason string
	var fixed, open int
	cmd := &cobra.Command{
		Use: "finding REF [TEXT]", Short: "Record something that is wrong, or say that it is fixed", Args: cobra.RangeArgs(1, 2), Annotations: textsFrom(1), ValidArgsFunction: a.complete(taskNames),
		Long: `Record something that is wrong: a blocker, major or minor finding. A task with an
open blocker or major finding is not complete. --fixed and --open say what became
of one; see ` + "`caisson task waive`" + ` for one that stays as it is.`,
		Example: "  caisson task finding 1 'it leaks the handle' --severity blocker\n  caisson task finding 1 --fixed 1 --reason 'closed on every path'",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error {
			switch {
			case len(rest) == 1 && fixed == 0 && open == 0 && reason == "":
				return a.edits(ctx, h, task.Report(t.ID, h.Me(), caisson.Severity(severity), rest[0]), "finding recorded")
			case len(rest) == 0 && fixed > 0 && open == 0:
				return a.edits(ctx, h, task.Judge(t.ID, h.Me(), fixed, caisson.FindingFixed, reason), fmt.Sprintf("finding %d is fixed", fixed))
			case len(rest) == 0 && open > 0 && fixed == 0:
				return a.edits(ctx, h, task.Judge(t.ID, h.Me(), open, caisson.FindingOpen, reason), fmt.Sprintf("finding %d is open", open))
			}
			return usage(errors.New("give the text of a new finding, or one of --fixed N and --open N"))
		}),
	}
	cmd.Flags().StringVar(&severity, "severity", string(caisson.Major), "blocker, major or minor")
	cmd.Flags().IntVar(&fixed, "fixed", 0, "number of a finding that is fixed")
	cmd.Flags().IntVar(&open, "open", 0, "number of a finding that is open again")
	cmd.Flags().StringVar(&reason, "reason", "", "why, with --fixed and --open")
	_ = cmd.RegisterFlagCompletionFunc("severity", cobra.FixedCompletions([]string{"blocker", "major", "minor"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
	return cmd
}

func (a *app) taskCriteria() *cobra.Command {
	var not bool
	cmd := &cobra.Command{
		Use: "criteria REF N…", Short: "Mark acceptance criteria as met", Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.complete(taskNames),
		Example: "  caisson task criteria 1 1 2\n  caisson task criteria 1 2 --not",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error {
			var numbers []int
			for _, text := range rest {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 || n > len(t.Criteria) {
					return caisson.Errorf(caisson.CodeNotFound, "task %s has no criterion %q", t.ID, text).WithHint("`caisson task show %s` numbers them.", t.ID)
				}
				numbers = append(numbers, n)
			}
			for _, n := range numbers {
				var err error
				if t, err = h.Tasks().Edit(ctx, task.Mark(t.ID, h.Me(), n, !not)); err != nil {
					return err
				}
			}
			met := 0
			for _, c := range t.Criteria {
				if c.Met {
					met++
				}
			}
			return a.print(t, func(w io.Writer) { fmt.Fprintf(w, "Task %s: %d of %d criteria are met.\n", t.ID, met, len(t.Criteria)) })
		}),
	}
	cmd.Flags().BoolVar(&not, "not", false, "mark them as not met")
	return cmd
}

func (a *app) taskArtifact() *cobra.Command {
	return &cobra.Command{
		Use: "artifact REF NAME [FILE]", Short: "Hand in a text that a stage is to produce", Args: cobra.RangeArgs(2, 3), ValidArgsFunction: a.command(a.complete(taskNames)),
		Long:    `Hand in a text that a stage is to produce, from a file or, without one, from the input.`,
		Example: "  caisson task artifact 1 plan plan.md",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error {
			in := io.Reader(a.io.In)
			if len(rest) == 2 {
				path := rest[1]
				if !filepath.IsAbs(path) {
					path = filepath.Join(a.io.Dir, path)
				}
				f, err := os.Open(path)
				if err != nil {
					return usage(fmt.Errorf("read %s: %w", rest[1], err))
				}
				defer f.Close()
				in = f
			}
			content, err := io.ReadAll(io.LimitReader(in, caisson.TaskArtifact+1))
			if err != nil {
				return usage(fmt.Errorf("read the text: %w", err))
			}
			return a.edits(ctx, h, task.Put(t.ID, h.Me(), task.Artifact{Name: rest[0], Content: content}), "artifact "+printable(rest[0])+" handed in")
		}),
	}
}

func (a *app) taskWaive() *cobra.Command {
	var merge, criteria bool
	var finding int
	var reason string
	cmd := &cobra.Command{
		Use: "waive REF", Short: "Let a task be complete without being merged, with criteria not met, or with a finding", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(taskNames),
		Long: `Let a task be complete without being merged, with criteria that are not met, or
with a finding. Only a person can; it is recorded with the reason, and no longer
holds once the task is restored.`,
		Example: "  caisson task waive 1 --merge --reason 'was sent as a patch'\n  caisson task waive 1 --finding 2 --reason 'as designed'",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, _ []string) error {
			var edit caisson.TaskEdit
			var says string
			switch {
			case merge && !criteria && finding == 0:
				edit, says = task.Decide(t.ID, h.Me(), task.WaiveMerge, reason), "it need not be merged"
			case criteria && !merge && finding == 0:
				edit, says = task.Decide(t.ID, h.Me(), task.WaiveCriteria, reason), "its criteria need not be met"
			case finding > 0 && !merge && !criteria:
				edit, says = task.Judge(t.ID, h.Me(), finding, caisson.FindingWaived, reason), fmt.Sprintf("finding %d is waived", finding)
			default:
				return usage(errors.New("say one of --merge, --criteria and --finding N"))
			}
			return a.edits(ctx, h, edit, says)
		}),
	}
	cmd.Flags().BoolVar(&merge, "merge", false, "that its branch is merged")
	cmd.Flags().BoolVar(&criteria, "criteria", false, "that its criteria are met")
	cmd.Flags().IntVar(&finding, "finding", 0, "number of a finding")
	cmd.Flags().StringVar(&reason, "reason", "", "why; needed")
	return cmd
}

// deciding are the decisions of `task decide`, with what they say.
func deciding() map[string]string {
	return map[string]string{
		task.Retry: "its last stage is run again", task.AcceptTree: "the tree as it is now is gone on with", task.StepIn: "noted that you did something by hand",
	}
}

func (a *app) taskDecide() *cobra.Command {
	var reason string
	names := []string{task.Retry, task.AcceptTree, task.StepIn}
	cmd := &cobra.Command{
		Use: "decide REF " + strings.Join(names, "|"), Short: "Go on with a workflow that is paused", Args: cobra.ExactArgs(2),
		Long: `Go on with a workflow that is paused. retry runs its last stage again. accept-tree
goes on with the workspace as it is now, though no stage left it so: before
anything is delivered it is reviewed. step-in is only a note of what you did.`,
		Example:           "  caisson task decide 1 retry --reason 'the network was down'",
		ValidArgsFunction: a.complete(taskNames),
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error {
			says, ok := deciding()[rest[0]]
			if !ok {
				return usage(fmt.Errorf("%q is none of %s", rest[0], strings.Join(names, ", ")))
			}
			text := reason
			if rest[0] == task.AcceptTree {
				if reason != "" {
					return usage(errors.New("the tree is the reason; say more with `caisson task note`"))
				}
				tree, err := h.TaskTree(ctx, t)
				if err != nil {
					return err
				}
				if tree == "" {
					return caisson.Errorf(caisson.CodeStateInvalid, "task %s has no workspace", t.ID)
				}
				text = tree
			}
			return a.edits(ctx, h, task.Decide(t.ID, h.Me(), rest[0], text), says)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}
