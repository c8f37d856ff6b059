package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/caisson-run/caisson/task"
	"github.com/caisson-run/caisson/task/flow"
	"github.com/spf13/cobra"
)

func (a *app) taskRun() *cobra.Command {
	var o host.TaskRunOptions
	cmd := &cobra.Command{
		Use: "run REF", Short: "Run the stages of a task", Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete(taskNames),
		Long: `Run the stages of a task's workflow, one after the other: each is a run of an agent
in the task's workspace, which is made on its branch where it is not there. Who the
executor and the reviewer are, "tasks.roles" in your config says. A reviewer's run
cannot change the workspace.

It ends when the workflow is done, or when something wants a person: it says what,
and the command that goes on. Ctrl-C parks the run that is at work. Whatever ended
it, the same command goes on where it was.

With --json: each event of the runs as a line, then where the task stands.

Exit: 0 done, or the stage of --step has ended; 75 paused.`,
		Example: "  caisson task run 1\n  caisson task run 1 --step",
	}
	cmd.Flags().BoolVar(&o.Once, "step", false, "run one stage, and no more")
	cmd.Flags().StringVar(&o.Model, "model", "", "provider/model, or script:FILE, for both roles")
	cmd.RunE = a.withTask(func(ctx context.Context, h *host.Host, t caisson.Task, _ []string) error {
		o.Drive = func(ctx context.Context, r caisson.Run, step caisson.TaskStep) (caisson.Run, error) {
			return a.driveStage(ctx, h, t, r, step)
		}
		out, err := h.RunTask(ctx, t.ID, o)
		if err != nil {
			return err
		}
		if err := a.print(out, func(w io.Writer) { showProspect(w, out.Prospect) }); err != nil {
			return err
		}
		if out.Kind == flow.Paused {
			return status(caisson.ExitRetryable)
		}
		return nil
	})
	return cmd
}

// driveStage drives the run of a stage and shows it as `caisson run` does.
func (a *app) driveStage(ctx context.Context, h *host.Host, t caisson.Task, r caisson.Run, step caisson.TaskStep) (caisson.Run, error) {
	if !a.json {
		fmt.Fprintf(a.err, "  task %s  step %d  %s by the %s: run %s\n", t.ID, stepNumber(ctx, h, t.ID, r.ID), printable(step.Stage), printable(step.Role), r.ID)
	}
	w, ended, err := a.driven(ctx, h, r, host.DriveOptions{})
	if err != nil {
		return r, err
	}
	if !a.json {
		var text strings.Builder
		a.summary(ctx, h, &text, ended)
		first, _, _ := strings.Cut(text.String(), "\n") // how to go on is told of the task
		w.to.line("%s", first)
	}
	return ended, nil
}

func stepNumber(ctx context.Context, h *host.Host, id caisson.TaskID, run caisson.RunID) int {
	t, err := h.Ledger.Task(ctx, id)
	if err != nil {
		return 0 // it is only shown
	}
	for i, s := range t.Steps {
		if s.Run == run {
			return i + 1
		}
	}
	return 0
}

// showProspect says what is next for a task, and how to go on.
func showProspect(w io.Writer, p task.Prospect) {
	fmt.Fprintln(w, printable(p.Says()))
	if len(p.Missing) > 0 {
		fmt.Fprintln(w, "Missing for it to be complete:")
	}
	for _, m := range p.Missing {
		fmt.Fprintf(w, "  %s\n", printable(m))
	}
	for i, way := range p.Ways {
		lead := "Go on: "
		switch {
		case i > 0 && p.Kind == flow.Done:
			lead = "then:  "
		case i > 0:
			lead = "or:    "
		}
		fmt.Fprintf(w, "%s%s\n", lead, printable(way))
	}
	if p.Kind == flow.Begin {
		fmt.Fprintf(w, "Go on: caisson task run %s\n", p.Task)
	}
}
