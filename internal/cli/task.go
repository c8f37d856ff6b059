package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/task"
	"github.com/spf13/cobra"
)

func (a *app) taskCommand() *cobra.Command {
	cmd := group("task", "Keep pieces of work wanted, with what was found and decided about them",
		a.taskNew(), a.taskLs(), a.taskShow(), a.taskNext(), a.taskRun(), a.taskLog(),
		a.taskMove(task.Block, "block REF REASON", "Say that something is in the way of a task", "  caisson task block 1 'waits for the key'"),
		a.taskMove(task.Activate, "activate REF", "Take up a task that was blocked", "  caisson task activate 1"),
		a.taskMove(task.Cancel, "cancel REF [REASON]", "Give up a task, and cancel its runs", "  caisson task cancel feature/parse-the-header 'not wanted any more'"),
		a.taskMove(task.Complete, "complete REF [REASON]", "Complete a task, where nothing is missing", "  caisson task complete 1"),
		a.taskMove(task.Restore, "restore REF [REASON]", "Take up a task again that was completed or cancelled", "  caisson task restore Tk7qm2x"),
		a.taskMove(task.Archive, "archive REF", "Put a task that is over away for good: it cannot be restored", "  caisson task archive Tk7qm2x"),
		a.taskNote(), a.taskFinding(), a.taskCriteria(), a.taskArtifact(), a.taskWaive(), a.taskDecide(),
	)
	cmd.Long = `Keep pieces of work wanted. A task has a title, a branch, what is known and
required, acceptance criteria, and what reviews found. REF is its number in the
listing, its id or the beginning of it, or its branch.`
	return cmd
}

// withTasks is with, after moves are finished that a killed process left.
func (a *app) withTasks(use func(ctx context.Context, h *host.Host, args []string) error) func(*cobra.Command, []string) error {
	return a.with(func(ctx context.Context, h *host.Host, args []string) error {
		if err := h.Tasks().Resume(ctx); err != nil {
			return err
		}
		return use(ctx, h, args)
	})
}

// withTask is withTasks, for commands whose first argument is a task.
func (a *app) withTask(use func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error) func(*cobra.Command, []string) error {
	return a.withTasks(func(ctx context.Context, h *host.Host, args []string) error {
		t, err := h.FindTask(ctx, args[0])
		if err != nil {
			return err
		}
		return use(ctx, h, t, args[1:])
	})
}

func taskNames(ctx context.Context, h *host.Host, _ string) ([]string, error) {
	list, err := h.ListTasks(ctx, false)
	var names []string
	for _, t := range task.Listed(list) {
		if t.State != caisson.TaskArchived {
			names = append(names, string(t.ID)+"\t"+line(t.Title, 50))
		}
	}
	return names, err
}

func (a *app) taskNew() *cobra.Command {
	var n task.Draft
	var kind string
	cmd := &cobra.Command{
		Use: "new TITLE", Short: "Create a task", Args: cobra.ExactArgs(1), Annotations: textsFrom(0),
		Long: `Create a task in the repository that you stand in. Its branch is made from its
type and title; nothing is done in git. With --key the same command again gives
the same task, and another one of that key is an error.`,
		Example: "  caisson task new 'Parse the header' --criterion 'all tests pass' --fact 'the format is in docs/format.md'",
		RunE: a.withTasks(func(ctx context.Context, h *host.Host, args []string) error {
			common, err := h.Repository(ctx)
			if err != nil {
				return err
			}
			if n.Priority == 0 { // of a draft it is the usual one
				return usage(errors.New("priority: 0 is not from 1 (first) to 5 (last)"))
			}
			n.Title, n.Type, n.Repository = args[0], caisson.TaskType(kind), common
			if n.Key == "" {
				n.Key = task.NewKey()
			}
			t, err := h.Tasks().Create(ctx, n, h.Me())
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) {
				fmt.Fprintf(w, "Task %s on branch %s: %s\n", t.ID, printable(t.Branch), printable(t.Title))
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&kind, "type", string(caisson.TaskFeature), "feature, bugfix, refactor, docs or chore")
	f.StringVar(&n.Branch, "branch", "", "<type>/<words-joined-by-hyphens>; by default made from the title")
	f.StringVar(&n.Base, "base", "", "branch or commit to start from")
	f.IntVar(&n.Priority, "priority", task.Usual, "from 1 (first) to 5 (last)")
	f.StringVar(&n.Description, "description", "", "what is wanted, at more length")
	f.StringArrayVar(&n.Facts, "fact", nil, "something that is known; can be repeated")
	f.StringArrayVar(&n.Constraints, "constraint", nil, "something that must be kept to; can be repeated")
	f.StringArrayVar(&n.Criteria, "criterion", nil, "something that must hold for it to be complete; can be repeated")
	f.StringVar(&n.Source, "source", "", "reference of an issue elsewhere")
	f.StringVar(&n.Workflow, "workflow", "", "name of its workflow; by default by its type")
	f.StringVar(&n.Key, "key", "", "UUID: the same key is the same task")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(typeNames(), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
	return cmd
}

func typeNames() []string {
	var names []string
	for _, t := range caisson.TaskTypes() {
		names = append(names, string(t))
	}
	return names
}

func (a *app) taskLs() *cobra.Command {
	var all, everywhere bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the tasks of this repository that are not over", Args: cobra.NoArgs,
		Example: "  caisson task ls --all",
		RunE: a.withTasks(func(ctx context.Context, h *host.Host, _ []string) error {
			list, err := h.ListTasks(ctx, everywhere)
			if err != nil {
				return err
			}
			shown := task.Current(list)
			if all {
				shown = task.Listed(list)
			}
			return printEach(a, shown, func(w io.Writer) {
				if len(shown) == 0 {
					fmt.Fprintln(w, "No tasks.")
					return
				}
				tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				for i, t := range shown {
					number := strconv.Itoa(i + 1)
					if all || everywhere { // numbers count what is listed without either
						number = "-"
					}
					fmt.Fprintf(tw, "%s\t%s\t%s\tpriority %d\t%s\t%s\n", number, t.ID, t.State, t.Priority, printable(t.Branch), line(t.Title, 60))
				}
				_ = tw.Flush() // writes to w, whose errors the last write shows
			})
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are over")
	cmd.Flags().BoolVar(&everywhere, "everywhere", false, "of all repositories")
	return cmd
}

func (a *app) taskShow() *cobra.Command {
	var artifact string
	cmd := &cobra.Command{
		Use: "show REF", Short: "Show a task, or a text that was handed in for it", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(taskNames),
		Example: "  caisson task show 1\n  caisson task show 1 --artifact plan",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, _ []string) error {
			if artifact != "" {
				return a.showArtifact(ctx, h, t, artifact)
			}
			history, err := h.Ledger.TaskActivity(ctx, t.ID, max(0, t.Version-10), 0)
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) { fmt.Fprint(w, printable(task.Page(t, history))) })
		}),
	}
	cmd.Flags().StringVar(&artifact, "artifact", "", "NAME of the last round, or NAME.ROUND")
	return cmd
}

func (a *app) showArtifact(ctx context.Context, h *host.Host, t caisson.Task, which string) error {
	name, round, numbered := strings.Cut(which, ".")
	i := -1
	for j, x := range t.Artifacts {
		if x.Name == name && (!numbered || strconv.Itoa(x.Round) == round) {
			i = j
		}
	}
	if i < 0 {
		return caisson.Errorf(caisson.CodeNotFound, "task %s has no artifact %q", t.ID, which).WithHint("`caisson task show %s` lists them.", t.ID)
	}
	content, err := h.Ledger.Blob(ctx, t.Artifacts[i].Digest)
	if err != nil {
		return err
	}
	shown := struct {
		caisson.TaskArtifacts
		Content string `json:"content"`
	}{t.Artifacts[i], string(content)}
	return a.print(shown, func(w io.Writer) { fmt.Fprint(w, a.gitText(string(content))) })
}

func (a *app) taskNext() *cobra.Command {
	return &cobra.Command{
		Use: "next REF", Short: "Tell what a task's workflow wants now, and what is missing for it to be complete", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(taskNames),
		Example:           "  caisson task next 1",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, _ []string) error {
			p, err := h.TaskNext(ctx, t)
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) { showProspect(w, p) })
		}),
	}
}

func (a *app) taskLog() *cobra.Command {
	return &cobra.Command{
		Use: "log REF", Short: "Show a task's whole history", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(taskNames),
		Example: "  caisson task log 1",
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, _ []string) error {
			history, err := h.Ledger.TaskActivity(ctx, t.ID, 0, 0)
			if err != nil {
				return err
			}
			return printEach(a, history, func(w io.Writer) {
				for _, e := range history {
					text := strings.ReplaceAll(printable(e.Text), "\n", "\n    ")
					fmt.Fprintf(w, "%s  %s  %s: %s\n", e.At.Local().Format("2006-01-02 15:04:05"), printable(e.By), e.Kind, text)
				}
			})
		}),
	}
}

// taskMove is the command of one way of moving a task.
func (a *app) taskMove(m task.Move, use, short, example string) *cobra.Command {
	args := cobra.ExactArgs(1)
	switch m {
	case task.Block:
		args = cobra.ExactArgs(2)
	case task.Cancel, task.Complete, task.Restore:
		args = cobra.RangeArgs(1, 2)
	case task.Activate, task.Archive:
	}
	return &cobra.Command{
		Use: use, Short: short, Args: args, Example: example, ValidArgsFunction: a.complete(taskNames), Annotations: textsFrom(1),
		RunE: a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, rest []string) error {
			moved, err := h.Tasks().Move(ctx, t.ID, task.Wanted{Move: m, By: h.Me(), Text: strings.Join(rest, " ")})
			if err != nil {
				return a.unfinished(err)
			}
			return a.print(moved, func(w io.Writer) { fmt.Fprintf(w, "Task %s is %s.\n", moved.ID, moved.State) })
		}),
	}
}

// unfinished lists for people what is missing, one a line.
func (a *app) unfinished(err error) error {
	var e *caisson.Error
	if a.json || !errors.As(err, &e) || e.Code != caisson.CodeTaskUnfinished {
		return err
	}
	if missing, ok := e.Detail["missing"].([]string); ok {
		told := *e
		told.Message = strings.Join(slices.Concat([]string{"the task is not finished:"}, missing), "\n  ")
		return &told
	}
	return err
}
