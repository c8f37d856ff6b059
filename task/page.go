package task

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// Page is a task as text for agents, in Markdown, with the end of its history.
func Page(t caisson.Task, history []caisson.TaskActivity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", t.Title)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "- %s: %s\n", name, value)
		}
	}
	state := string(t.State)
	if t.Reason != "" {
		state += " (" + first(t.Reason) + ")"
	}
	row("Task", string(t.ID))
	row("Type", string(t.Type))
	row("State", state)
	row("Branch", t.Branch)
	row("Base", t.Base)
	row("Priority", fmt.Sprint(t.Priority))
	row("Source", t.Source)
	row("Created by", t.CreatedBy)
	row("Workflow", t.Workflow)
	row("Stage", t.Stage)
	if t.Description != "" {
		fmt.Fprintf(&b, "\n## Description\n\n%s\n", t.Description)
	}
	section(&b, "Facts", bullets(t.Facts))
	section(&b, "Constraints", bullets(t.Constraints))
	section(&b, "Acceptance criteria", criteria(t))
	section(&b, "Findings", findings(t))
	section(&b, "Artifacts", artifacts(t))
	section(&b, "Steps", steps(t))
	section(&b, "Decisions", decisions(t))
	section(&b, "History", entries(history))
	return b.String()
}

func section(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, line := range lines {
		b.WriteString(strings.ReplaceAll(line, "\n", "\n  ") + "\n")
	}
}

func bullets(items []string) []string {
	var lines []string
	for _, item := range items {
		lines = append(lines, "- "+item)
	}
	return lines
}

func criteria(t caisson.Task) []string {
	var lines []string
	for i, c := range t.Criteria {
		box := " "
		if c.Met {
			box = "x"
		}
		lines = append(lines, fmt.Sprintf("%d. [%s] %s", i+1, box, c.Text))
	}
	return lines
}

func findings(t caisson.Task) []string {
	var lines []string
	for _, f := range t.Findings {
		line := fmt.Sprintf("%d. %s, %s: %s", f.N, f.Severity, f.State, f.Text)
		if f.Reason != "" {
			line += " — " + f.Reason
		}
		lines = append(lines, line)
	}
	return lines
}

func artifacts(t caisson.Task) []string {
	var lines []string
	for _, a := range t.Artifacts {
		lines = append(lines, fmt.Sprintf("- artifacts/%s (%d bytes, by %s)", artifactFile(a), a.Bytes, a.By))
	}
	return lines
}

func steps(t caisson.Task) []string {
	var lines []string
	for i, s := range t.Steps {
		line := fmt.Sprintf("%d. %s by %s, run %s: %s", i+1, s.Stage, s.Role, s.Run, s.State)
		if s.Result != "" {
			line += ", " + s.Result
		}
		lines = append(lines, line)
	}
	return lines
}

func decisions(t caisson.Task) []string {
	var lines []string
	for _, d := range t.Decisions {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("- %s by %s: %s", d.What, d.By, d.Text), ": "))
	}
	return lines
}

func entries(history []caisson.TaskActivity) []string {
	var lines []string
	for _, a := range history[max(0, len(history)-mirrorActivity):] {
		lines = append(lines, fmt.Sprintf("- %s %s %s: %s", a.At.UTC().Format(time.RFC3339), a.By, a.Kind, a.Text))
	}
	return lines
}
