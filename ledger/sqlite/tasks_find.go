package sqlite

import (
	"database/sql"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// taskQuery asks for tasks. Those of some work, and those that move, are found by
// an index: each look at the tasks of a sandbox is one.
func taskQuery(filter caisson.TaskFilter) *query {
	q := newQuery(`SELECT ` + taskColumns + ` FROM tasks WHERE n > 0`)
	if filter.Work != nil {
		q = newQuery(`SELECT `+taskColumns+` FROM tasks WHERE n IN (
			SELECT n FROM tasks WHERE workspace <> '' AND workspace IN (SELECT value FROM json_each(?))
			UNION SELECT n FROM tasks WHERE repository = ? AND branch IN (SELECT value FROM json_each(?)))`,
			list(filter.Work.Workspaces), filter.Repository, list(filter.Work.Branches))
	}
	if filter.Moving {
		q.and(`moving = 1`)
	}
	in(q, `id`, filter.IDs)
	in(q, `state`, filter.States)
	switch {
	case filter.Repository == "":
	case filter.Work != nil: // by its index all tasks of the repository would be passed by
		q.and(`+repository = ?`, filter.Repository)
	default:
		q.and(`repository = ?`, filter.Repository)
	}
	q.end(`ORDER BY n DESC`, filter.Limit)
	return q
}

// admitTask holds a new task against what is on record, and gives it its branch.
func (t *tx) admitTask(task *caisson.Task, want caisson.TaskNew) error {
	if want.Unfit != nil {
		return want.Unfit
	}
	if want.Most > 0 {
		var made int
		if err := t.row(`SELECT count(*) FROM tasks WHERE created_by = ?`, task.CreatedBy).Scan(&made); err != nil {
			return err
		}
		if made >= want.Most {
			return caisson.Errorf(caisson.CodeRefused, "%s has created %d tasks, and may create no more", task.CreatedBy, made).WithHint("Ask the person you work for.")
		}
	}
	if want.Free {
		taken, err := t.takenBranches(task.Repository, task.Branch)
		if err != nil {
			return err
		}
		task.Branch = ledger.Free(task.Branch, taken)
	}
	if !want.Unworked {
		return nil
	}
	var worked bool
	err := t.row(`SELECT EXISTS (SELECT 1 FROM workspaces WHERE common_dir = ? AND removed = 0 AND json_extract(doc, '$.branch') = ?)`,
		task.Repository, task.Branch).Scan(&worked)
	if err == nil && worked {
		err = caisson.Errorf(caisson.CodeBranchExists, "branch %s has a workspace already, where somebody works", task.Branch).WithHint("Name another branch.")
	}
	return err
}

// takenBranches are those of tasks that are not over, as far as one could be meant
// by a wish or that with a number.
func (t *tx) takenBranches(repository, wish string) (map[string]bool, error) {
	taken := map[string]bool{}
	err := each(t, func(rows *sql.Rows) error {
		var branch string
		err := rows.Scan(&branch)
		taken[branch] = true
		return err
	}, branchesQuery, repository, wish, wish+".") // "." is the next after "-"
	return taken, err
}

// branchesQuery is a range of the index of the branches that are taken.
const branchesQuery = `SELECT branch FROM tasks WHERE repository = ? AND branch >= ? AND branch < ? AND branch <> '' AND state IN ('active', 'blocked')`
