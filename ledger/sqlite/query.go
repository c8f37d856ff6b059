package sqlite

import "strings"

// query is a SELECT whose conditions depend on a filter.
type query struct {
	sql  strings.Builder
	args []any
}

func newQuery(base string, args ...any) *query {
	q := &query{args: args}
	q.sql.WriteString(base)
	return q
}

func (q *query) and(condition string, args ...any) {
	q.sql.WriteString(" AND " + condition)
	q.args = append(q.args, args...)
}

// in wants column to be one of values; no values want nothing. The list is one
// JSON argument, so that queries are few and stay prepared.
func in[T ~string](q *query, column string, values []T) {
	if len(values) == 0 {
		return
	}
	q.and(column+` IN (SELECT value FROM json_each(?))`, list(values))
}

// list is values as one argument.
func list[T ~string](values []T) string {
	if values == nil {
		values = []T{}
	}
	raw, err := marshal(values)
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(raw)
}

// end adds the order and, over 0, the limit.
func (q *query) end(order string, limit int) {
	q.sql.WriteString(" " + order)
	if limit > 0 {
		q.sql.WriteString(" LIMIT ?")
		q.args = append(q.args, limit)
	}
}

func (q *query) text() string { return q.sql.String() }
