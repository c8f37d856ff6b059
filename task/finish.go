package task

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Work tells of what was done for a task, as git and the workspace say.
type Work interface {
	// Clean tells whether the task's workspace holds nothing that is not
	// committed. It is true where there is no workspace.
	Clean(ctx context.Context, t caisson.Task) (bool, error)
	// Merged tells whether the task's branch has nothing that the branch it
	// started from lacks.
	Merged(ctx context.Context, t caisson.Task) (bool, error)
}

// Standing is how the work of a task stands. The zero value is of work that was
// not looked at: neither clean nor merged.
type Standing struct {
	Workspace caisson.WorkspaceID // that was looked at
	Clean     bool
	Merged    bool
}

// Look asks work how it stands.
func Look(ctx context.Context, work Work, t caisson.Task) (Standing, error) {
	clean, err := work.Clean(ctx, t)
	if err != nil {
		return Standing{}, fmt.Errorf("look at the workspace of task %s: %w", t.ID, err)
	}
	merged, err := work.Merged(ctx, t)
	if err != nil {
		return Standing{}, fmt.Errorf("look at the branch of task %s: %w", t.ID, err)
	}
	return Standing{t.Workspace, clean, merged}, nil
}

// Missing says all that a task lacks to be complete, each in a clause.
func Missing(t caisson.Task, s Standing) []string {
	var missing []string
	for _, f := range t.Findings {
		if f.State == caisson.FindingOpen && f.Severity != caisson.Minor {
			missing = append(missing, fmt.Sprintf("finding %d (%s) is open: %s", f.N, f.Severity, first(f.Text)))
		}
	}
	if !waived(t, WaiveCriteria) {
		for i, c := range t.Criteria {
			if !c.Met {
				missing = append(missing, fmt.Sprintf("criterion %d is not marked as met: %s", i+1, first(c.Text)))
			}
		}
	}
	switch {
	case t.Workspace != s.Workspace:
		missing = append(missing, "its workspace is another one than was looked at; try again")
	case !s.Clean:
		missing = append(missing, "its workspace has changes that are not committed")
	}
	if !s.Merged && !waived(t, WaiveMerge) {
		missing = append(missing, fmt.Sprintf("branch %s is not merged", t.Branch))
	}
	return missing
}

func waived(t caisson.Task, what string) bool {
	return slices.ContainsFunc(t.Decisions, func(d caisson.TaskDecision) bool { return d.What == what })
}

// first is the beginning of a text, on one line.
func first(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > 80 {
		line, more = string(runes[:79]), true
	}
	if more {
		line += "…"
	}
	return line
}

func finished(t *caisson.Task, s Standing) error {
	missing := Missing(*t, s)
	if len(missing) == 0 {
		return nil
	}
	return caisson.Errorf(caisson.CodeTaskUnfinished, "task %s is not finished: %s", t.ID, strings.Join(missing, "; ")).
		WithHint("%s", remedy(*t, s)).With("missing", missing)
}

// remedy names the commands for what is missing: each can be given as it stands,
// but for the reason.
func remedy(t caisson.Task, s Standing) string {
	var ways, waive []string
	if !s.Merged && !waived(t, WaiveMerge) {
		if t.Workspace != "" {
			ways = append(ways, fmt.Sprintf("`caisson workspace merge %s` merges it.", t.Branch))
		}
		waive = append(waive, "--merge")
	}
	if !waived(t, WaiveCriteria) && slices.ContainsFunc(t.Criteria, func(c caisson.TaskCriterion) bool { return !c.Met }) {
		waive = append(waive, "--criteria")
	}
	for _, f := range t.Findings {
		if f.State == caisson.FindingOpen && f.Severity != caisson.Minor {
			waive = append(waive, fmt.Sprintf("--finding %d", f.N))
			break // one at a time, and there may be hundreds
		}
	}
	for i, flag := range waive {
		waive[i] = fmt.Sprintf("`caisson task waive %s %s --reason WHY`", t.ID, flag)
	}
	if len(waive) > 0 {
		ways = append(ways, "What need not be, a person waives: "+strings.Join(waive, ", ")+".")
	}
	if len(ways) == 0 {
		return "Commit or discard what is not committed, and try again."
	}
	return strings.Join(ways, " ")
}
