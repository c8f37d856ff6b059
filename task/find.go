package task

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
)

// Listed returns tasks in the order in which people see and number them: by
// priority, then the oldest first.
func Listed(tasks []caisson.Task) []caisson.Task {
	tasks = slices.Clone(tasks)
	slices.SortStableFunc(tasks, func(a, b caisson.Task) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return tasks
}

// Current are those of tasks that are not over, listed: what numbers count.
func Current(tasks []caisson.Task) []caisson.Task {
	return Listed(slices.DeleteFunc(slices.Clone(tasks), func(t caisson.Task) bool { return Over(t.State) }))
}

// Find returns the task that ref means: its id, its branch, the part of it
// after the type, its number among [Current], or the beginning of its id. Of
// tasks with one branch the one that is not over is meant. CodeAmbiguous has
// the ids in detail "candidates".
func Find(tasks []caisson.Task, ref string) (caisson.Task, error) {
	current := Current(tasks)
	if n, err := strconv.Atoi(ref); err == nil && n >= 1 && n <= len(current) {
		return current[n-1], nil
	}
	ways := []func(t caisson.Task) bool{
		func(t caisson.Task) bool { return strings.EqualFold(string(t.ID), ref) },
		func(t caisson.Task) bool { return t.Branch == ref },
		func(t caisson.Task) bool { _, slug, _ := strings.Cut(t.Branch, "/"); return slug == ref },
		func(t caisson.Task) bool {
			return len(ref) <= len(t.ID) && strings.EqualFold(string(t.ID)[:len(ref)], ref)
		},
	}
	for _, fits := range ways {
		if ref == "" {
			break
		}
		for _, among := range [][]caisson.Task{current, tasks} {
			var found []caisson.Task
			for _, t := range among {
				if fits(t) {
					found = append(found, t)
				}
			}
			if len(found) == 1 {
				return found[0], nil
			}
			if len(found) > 1 {
				return caisson.Task{}, ambiguous(ref, found)
			}
		}
	}
	return caisson.Task{}, caisson.Errorf(caisson.CodeNotFound, "there is no task %q", ref).WithHint("`caisson task ls --all` lists them.")
}

func ambiguous(ref string, found []caisson.Task) error {
	var ids, said []string
	for _, t := range Listed(found) {
		ids = append(ids, string(t.ID))
		said = append(said, string(t.ID)+" ("+t.Branch+")")
	}
	return caisson.Errorf(caisson.CodeAmbiguous, "%q fits %s", ref, strings.Join(said, ", ")).With("candidates", ids)
}
