package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// What is looked up each time that a channel is opened, or a run's driver
// begins, passes none of the rows by that are over, and is sorted by none.
func TestPlans(t *testing.T) {
	l, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	r := &runRow{rid: 1, id: "r"}
	for _, c := range []struct {
		query *query
		want  string
	}{
		{requestQuery(r, requestColumns, caisson.RequestFilter{Open: true, Limit: 5}), "SEARCH requests USING INDEX requests_open (rid=?)"},
		{requestQuery(r, requestColumns, caisson.RequestFilter{Open: true, Generation: 1}), "SEARCH requests USING INDEX requests_open (rid=? AND generation=?)"},
		{requestQuery(r, requestColumns, caisson.RequestFilter{Limit: 5}), "SEARCH requests USING INDEX requests_newest (rid=?)"},
		{requestQuery(r, requestColumns, caisson.RequestFilter{Generation: 1, Limit: 5}), "SEARCH requests USING INDEX requests_newest (rid=? AND generation=?)"},
		{newQuery(newsQuery, 1, manyNews), "SEARCH e USING INTEGER PRIMARY KEY (rowid>?); SEARCH r USING INTEGER PRIMARY KEY (rowid=?); USE TEMP B-TREE FOR DISTINCT"},
		{takenQuery(r), "SEARCH requests USING INDEX requests_open (rid=?)"},
		{turnCallsQuery(r), "SEARCH calls USING INDEX sqlite_autoindex_calls_1 (id>? AND id<?)"},
		{openCallsQuery(r), "SEARCH calls USING INDEX calls_open (rid=?)"},
		{taskQuery(caisson.TaskFilter{Moving: true}), "SEARCH tasks USING INDEX tasks_moving (n>?)"},
		{newQuery(branchesQuery, "/r", "chore/x", "chore/x."), "SEARCH tasks USING INDEX tasks_branch (repository=? AND branch>? AND branch<?)"},
		{taskQuery(caisson.TaskFilter{Repository: "/r", Work: &caisson.TaskWork{}}), "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?); LIST SUBQUERY 4; MERGE (UNION); " +
			"LEFT; SEARCH tasks USING COVERING INDEX tasks_workspace (workspace=?); LIST SUBQUERY 1; SCAN json_each VIRTUAL TABLE INDEX 1:; USE TEMP B-TREE FOR ORDER BY; " +
			"RIGHT; SEARCH tasks USING COVERING INDEX tasks_work (repository=? AND branch=?); LIST SUBQUERY 3; SCAN json_each VIRTUAL TABLE INDEX 1:; USE TEMP B-TREE FOR ORDER BY"},
	} {
		rows, err := l.readers.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+c.query.text(), c.query.args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan, "; "); got != c.want {
			t.Errorf("%s\nis answered by %s\nnot by %s", c.query.text(), got, c.want)
		}
	}
}
