package sqlite_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// schema lists what a file has, as it was declared.
func schema(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all strings.Builder
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, one)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// firstSchema is an empty ledger of schema version 1.
func firstSchema(t *testing.T) *sql.DB {
	t.Helper()
	raw, err := os.ReadFile("migrations/00001_ledger.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := openForeign(t, filepath.Join(t.TempDir(), "first.db"))
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, fstest.MapFS{"00001_ledger.sql": {Data: raw}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

// A ledger of the first schema, with a run that has an open call, is brought up
// to date when it is opened, and loses nothing.
func TestMigrateFirst(t *testing.T) {
	ctx := t.Context()
	path := written(t)
	l := openAt(t, path)
	call := ledgertest.NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	if _, err := l.JudgeCall(ctx, caisson.Drive{Run: "r", Fence: 1}, call, caisson.Verdict{Ruling: caisson.Allow}); err != nil {
		t.Fatal(err)
	}
	before, err := l.Run(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	alter(t, path, `DROP TABLE task_activity`, `DROP TABLE tasks`, `DROP TABLE requests`, `DROP TABLE channels`,
		`DROP INDEX calls_open`, `CREATE INDEX calls_run ON calls (rid)`, `DELETE FROM goose_db_version WHERE version_id > 1`, `PRAGMA user_version = 1`)
	if got, want := schema(t, openForeign(t, path)), schema(t, firstSchema(t)); got != want {
		t.Fatalf("this is no ledger of the first schema:\n%s\nbut:\n%s", got, want)
	}
	wantOpen(t, sqlite.Options{Path: path, ReadOnly: true}, caisson.CodeUnsupported)

	l = openAt(t, path)
	if after, err := l.Run(ctx, "r"); err != nil || after.Head != before.Head {
		t.Fatalf("head %s, was %s, %v", after.Head, before.Head, err)
	}
	open, err := l.OpenCalls(ctx, "r")
	if err != nil || len(open) != 1 || open[0].Call.ID != call.ID {
		t.Fatalf("open calls %+v, %v", open, err)
	}
	if _, err := l.OpenChannel(ctx, caisson.Drive{Run: "r", Fence: 1}, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
}

// The tasks of a ledger of the second schema, small and large, are found in the
// third as those that are made in it.
func TestMigrateTasks(t *testing.T) {
	ctx := t.Context()
	path := written(t)
	l := openAt(t, path)
	var made []caisson.Task
	for i, title := range []string{"small", strings.Repeat("large ", 2000)} {
		task, err := l.EditTask(ctx, caisson.TaskEdit{Change: func(task *caisson.Task) error {
			task.Title, task.Repository, task.Branch, task.CreatedBy, task.Workspace = title, "/r", fmt.Sprintf("chore/%d", i), "rabc", caisson.WorkspaceID(fmt.Sprintf("w%d", i))
			task.Moving = &caisson.TaskMoving{To: caisson.TaskCancelled, By: "ann"}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, task)
	}
	if _, err := l.EditTask(ctx, caisson.TaskEdit{Change: func(task *caisson.Task) error { task.Title = "none"; return nil }}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	alter(t, path, `DROP INDEX tasks_work`, `DROP INDEX tasks_workspace`, `DROP INDEX tasks_creator`, `DROP INDEX tasks_moving`,
		`ALTER TABLE tasks DROP COLUMN workspace`, `ALTER TABLE tasks DROP COLUMN created_by`, `ALTER TABLE tasks DROP COLUMN moving`,
		`DELETE FROM goose_db_version WHERE version_id > 2`, `PRAGMA user_version = 2`)
	l = openAt(t, path)
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
	for filter, want := range map[*caisson.TaskFilter]int{
		{Moving: true}: 2,
		{Repository: "/r", Work: &caisson.TaskWork{Workspaces: []caisson.WorkspaceID{made[1].Workspace}}}: 1,
	} {
		if found, err := l.Tasks(ctx, *filter); err != nil || len(found) != want {
			t.Errorf("%+v finds %d tasks, %v", filter, len(found), err)
		}
	}
	_, err := l.EditTask(ctx, caisson.TaskEdit{New: caisson.TaskNew{Most: 2}, Change: func(task *caisson.Task) error { task.CreatedBy = "rabc"; return nil }})
	if caisson.CodeOf(err) != caisson.CodeRefused {
		t.Errorf("a third of the same creator: %v", err)
	}
}

const someID = caisson.RequestID("0123456789abcdef")

// controlled returns the path of a closed ledger with a channel, requests in
// each state, and a task told of by two chains.
func controlled(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	path := written(t)
	l := openAt(t, path)
	drive := caisson.Drive{Run: "r", Fence: 1}
	channel, err := l.OpenChannel(ctx, drive, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []caisson.RequestID{someID, someID + "1", someID + "2"} {
		request := caisson.RequestRecord{Generation: channel.Generation, ID: id, Verb: "v", Input: json.RawMessage(`{"x":1}`)}
		if i == 1 {
			request.Rejected = caisson.Errorf(caisson.CodeBusy, "busy")
		}
		if err := l.TakeRequest(ctx, drive, request); err != nil {
			t.Fatal(err)
		}
	}
	task, err := l.EditTask(ctx, caisson.TaskEdit{Key: "k", Change: func(t *caisson.Task) error { t.Branch = "chore/x"; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	call := ledgertest.NewRequestCall("r", 1, someID, caisson.ReachLedger, "x")
	if _, err := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: caisson.Verdict{Ruling: caisson.Allow}}); err != nil {
		t.Fatal(err)
	}
	edit := caisson.TaskEdit{ID: task.ID, Change: func(t *caisson.Task) error { t.Description = strings.Repeat("d", 400); return nil }}
	if _, err := l.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Edit: &caisson.LedgerEdit{Task: &edit}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheckFindsControl changes channels, requests and tasks behind the ledger's back.
func TestCheckFindsControl(t *testing.T) {
	for name, change := range map[string]string{
		"generation":           `UPDATE channels SET generation = 2`,
		"epoch":                `UPDATE channels SET epoch = 7`,
		"taken":                `UPDATE channels SET taken = 0`,
		"open again":           `UPDATE requests SET open = 1`,
		"closed":               `UPDATE requests SET open = 0`,
		"another input":        `UPDATE requests SET doc = json_set(doc, '$.input.value', json('{"x":2}')) WHERE open = 1`,
		"no input":             `UPDATE requests SET doc = json_remove(doc, '$.input') WHERE open = 1`,
		"not rejected":         `UPDATE requests SET doc = json_remove(doc, '$.rejected')`,
		"forgotten":            `DELETE FROM requests WHERE id = '0123456789abcdef'`,
		"never taken":          `INSERT INTO requests (rid, generation, id, open, doc) SELECT rid, 1, 'ffffffffffffffff', 1, doc FROM requests LIMIT 1`,
		"no channel":           `DELETE FROM requests; DELETE FROM channels`,
		"task state":           `UPDATE tasks SET state = 'completed'`,
		"task branch":          `UPDATE tasks SET branch = 'other'`,
		"task key":             `UPDATE tasks SET key = 'other'`,
		"task version":         `UPDATE tasks SET version = 1`,
		"task record":          `UPDATE tasks SET doc = json_object('value', json_object('id', id, 'key', key, 'branch', branch, 'state', state, 'version', version))`,
		"task forgotten":       `DELETE FROM task_activity; DELETE FROM tasks`,
		"task never made":      `INSERT INTO tasks (id, key, repository, branch, state, version, made, doc) VALUES ('Tx', '', '', '', 'active', 1, x'00', '{}')`,
		"history cut":          `DELETE FROM task_activity WHERE n = 2`,
		"history rewritten":    `UPDATE task_activity SET doc = '{"value":{"n":1,"text":"x"}}' WHERE n = 1`,
		"history made up":      `INSERT INTO task_activity (task, n, doc) SELECT task, 3, doc FROM task_activity WHERE n = 1`,
		"open in an ended run": `UPDATE runs SET state = 'succeeded' WHERE id = 'r'`,
	} {
		t.Run(name, func(t *testing.T) {
			path := controlled(t)
			alter(t, path, change)
			l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			if err := l.Check(t.Context()); caisson.CodeOf(err) != caisson.CodeLedgerDamaged {
				t.Fatalf("got %q (%v)", caisson.CodeOf(err), err)
			}
		})
	}
}

// The last id of a generation is taken, and no other; replays of those that
// were are still told as such. A new generation takes again.
func TestChannelFull(t *testing.T) {
	ctx := t.Context()
	path := controlled(t)
	alter(t, path, fmt.Sprintf(`UPDATE channels SET taken = %d`, caisson.ControlConsumed-1))
	l := openAt(t, path)
	drive := caisson.Drive{Run: "r", Fence: 1}
	take := func(generation int64, id caisson.RequestID, want caisson.Code) {
		t.Helper()
		before, err := l.Run(ctx, "r")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: generation, ID: id}); caisson.CodeOf(err) != want {
			t.Fatalf("%s: got %v, want %q", id, err, want)
		}
		if after, err := l.Run(ctx, "r"); err != nil || want != "" && after.Head != before.Head {
			t.Fatalf("%s was refused, and something was written: %v", id, err)
		}
	}
	take(1, "aaaaaaaaaaaaaaaa", "")
	take(1, "bbbbbbbbbbbbbbbb", caisson.CodeChannelFull)
	take(1, "bbbbbbbbbbbbbbbb", caisson.CodeChannelFull)
	take(1, "aaaaaaaaaaaaaaaa", caisson.CodeRequestReplayed)
	if _, err := l.OpenChannel(ctx, drive, 2); err != nil {
		t.Fatal(err)
	}
	take(2, "bbbbbbbbbbbbbbbb", "")
}

// Bytes count, so that a channel holds a bounded amount: a long request takes
// many places, and one that is rejected leaves no input behind.
func TestChannelFullOfBytes(t *testing.T) {
	ctx := t.Context()
	path := controlled(t)
	l := openAt(t, path)
	drive := caisson.Drive{Run: "r", Fence: 1}
	long := json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
	taken := func() int64 {
		t.Helper()
		channel, err := l.Channel(ctx, "r")
		if err != nil {
			t.Fatal(err)
		}
		return channel.Taken
	}
	before := taken()
	rejected := caisson.RequestRecord{Generation: 1, ID: someID + "a", Verb: "v", Input: long, Rejected: caisson.Errorf(caisson.CodeBusy, "busy")}
	if err := l.TakeRequest(ctx, drive, rejected); err != nil {
		t.Fatal(err)
	}
	found, err := l.Requests(ctx, "r", caisson.RequestFilter{IDs: []caisson.RequestID{rejected.ID}})
	if err != nil || len(found) != 1 || len(found[0].Input) != 0 || taken() != before+1 {
		t.Fatalf("of what was rejected is kept %+v, %v", found, err)
	}
	if raw, err := os.ReadFile(path + "-wal"); err == nil && strings.Contains(string(raw), strings.Repeat("x", 1000)) {
		t.Fatal("the input of what was rejected is in the file")
	}
	accepted := caisson.RequestRecord{Generation: 1, ID: someID + "b", Verb: "v", Input: long}
	if err := l.TakeRequest(ctx, drive, accepted); err != nil || taken() != before+1+61 {
		t.Fatalf("%d places are taken, were %d, %v", taken(), before, err)
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
	alter(t, path, fmt.Sprintf(`UPDATE channels SET taken = %d`, caisson.ControlConsumed-60))
	accepted.ID = someID + "c"
	if err := l.TakeRequest(ctx, drive, accepted); err != nil {
		t.Fatal(err)
	}
	accepted.ID, accepted.Input = someID+"d", nil
	if err := l.TakeRequest(ctx, drive, accepted); caisson.CodeOf(err) != caisson.CodeChannelFull {
		t.Fatalf("got %v", err)
	}
}

// Of a request that never becomes a call nothing is kept but its id and verb,
// whenever it is rejected: a sandbox may send such ones without end.
func TestInputOfTheRejectedIsDropped(t *testing.T) {
	ctx := t.Context()
	path := controlled(t)
	l := openAt(t, path)
	drive := caisson.Drive{Run: "r", Fence: 1}
	late := func(i int) caisson.RequestID { return someID + "e" + caisson.RequestID(fmt.Sprint(i)) }
	before := sizeOf(t, path)
	for i := range 100 {
		long := json.RawMessage(fmt.Sprintf(`{"text":"MARKER %d %s"}`, i, strings.Repeat("x", 60<<10)))
		if err := l.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: late(i), Verb: "v", Input: long}); err != nil {
			t.Fatal(err)
		}
		found, err := l.Requests(ctx, "r", caisson.RequestFilter{IDs: []caisson.RequestID{late(i)}})
		if err != nil || len(found) != 1 || string(found[0].Input) != string(long) {
			t.Fatalf("while it is open its input is %d bytes, %v", len(found[0].Input), err)
		}
		if i == 0 {
			if err := l.Check(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.RejectRequest(ctx, drive, 1, late(i), caisson.Errorf(caisson.CodeRequestExpired, "late")); err != nil {
			t.Fatal(err)
		}
		if found, err = l.Requests(ctx, "r", caisson.RequestFilter{IDs: []caisson.RequestID{late(i)}}); err != nil || len(found) != 1 || len(found[0].Input) != 0 {
			t.Fatalf("of what was rejected is kept %+v, %v", found, err)
		}
	}
	events, err := l.Events(ctx, "r", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if strings.Contains(string(e.Body), "MARKER") {
			t.Fatalf("event %d has it: %.100s", e.Seq, e.Body)
		}
	}
	if err := l.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if after := sizeOf(t, path); after-before > 1<<20 {
		t.Errorf("100 rejected requests of 60 KiB have left %d bytes", after-before)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// manyRequests puts n closed requests and their calls into a ledger, as its own
// writes would have left the rows.
func manyRequests(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	for _, statement := range []string{
		`WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d)
			INSERT INTO requests (rid, generation, id, open, doc)
			SELECT (SELECT rid FROM runs WHERE id = 'r'), 1, printf('f%%08x', (i * 2654435761) & 4294967295) || printf('%%07x', i), 0, '{"verb":"task.note","at":"2026-03-01T12:00:00Z"}' FROM k`,
		`WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d / 10)
			INSERT INTO calls (id, rid, state, doc)
			SELECT 'r.c1.' || printf('f%%015x', i), (SELECT rid FROM runs WHERE id = 'r'), 'done', '{}' FROM k`,
	} {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(statement, n)); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkChannel takes requests, and looks for open ones, in a channel that
// has taken nearly a million.
func BenchmarkChannel(b *testing.B) {
	ctx := b.Context()
	path := filepath.Join(b.TempDir(), "ledger.db")
	l, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	drive, err := lead(ctx, l, "r", caisson.Budget{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.OpenChannel(ctx, drive, 0); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, n := range []int{1_000, caisson.ControlConsumed - 100_000} {
		manyRequestsOnce(b, db, n)
		next := 0
		b.Run(fmt.Sprintf("take/%d", n), func(b *testing.B) {
			for b.Loop() {
				next++
				id := caisson.RequestID(fmt.Sprintf("%x-%015x", n, next))
				if err := l.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: id, Rejected: caisson.Errorf(caisson.CodeBusy, "busy")}); err != nil {
					b.Fatal(err)
				}
			}
		})
		for name, filter := range map[string]caisson.RequestFilter{"open": {Open: true}, "newest": {Limit: 20}} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := l.Requests(ctx, "r", filter); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(fmt.Sprintf("calls/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := l.Calls(ctx, "r"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyRequestsOnce begins anew with n.
func manyRequestsOnce(b *testing.B, db *sql.DB, n int) {
	b.Helper()
	for _, statement := range []string{`DELETE FROM requests`, `DELETE FROM calls`, `UPDATE channels SET taken = 0`} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	manyRequests(b, db, n)
}
