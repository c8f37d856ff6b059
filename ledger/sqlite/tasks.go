package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// taskRow is a row of tasks; n is 0 while there is none.
type taskRow struct {
	n      int64
	id     caisson.TaskID
	made   []byte
	record ledger.Content // of the Task: its events refer to the same
}

func (w *taskRow) scan(scan func(...any) error) error {
	var id string
	var doc []byte
	if err := scan(&w.n, &id, &w.made, &doc); err != nil {
		return err
	}
	w.id = caisson.TaskID(id)
	return readDoc("task", id, doc, &w.record)
}

const taskColumns = `n, id, made, doc`

func (w *taskRow) value(s source) (task caisson.Task, err error) {
	err = get(s, w.record, &task)
	return task, err
}

// findTask returns a row without n where there is none. column is id or key.
func findTask(s source, column, value string) (*taskRow, error) {
	w := new(taskRow)
	err := w.scan(s.row(`SELECT `+taskColumns+` FROM tasks WHERE `+column+` = ? AND `+column+` <> ''`, value).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return new(taskRow), nil
	}
	return w, err
}

// EditTask implements [caisson.Ledger].
func (l *Ledger) EditTask(ctx context.Context, edit caisson.TaskEdit) (caisson.Task, error) {
	var task caisson.Task
	err := l.write(ctx, func(t *tx) error {
		r, err := t.load("")
		if err != nil {
			return err
		}
		task, err = t.editTask(r, edit)
		return err
	})
	return task, err
}

// editTask does one edit; r is whose chain tells of it.
func (t *tx) editTask(r *runRow, edit caisson.TaskEdit) (caisson.Task, error) {
	var none caisson.Task
	switch {
	case edit.Change == nil:
		return none, caisson.Errorf(caisson.CodeUsage, "an edit of a task needs a change")
	case len(edit.Content) > caisson.TaskArtifact:
		return none, caisson.Errorf(caisson.CodeLimitInvalid, "a text of a task may have %d bytes, not %d", caisson.TaskArtifact, len(edit.Content))
	case !utf8.Valid(edit.Content):
		return none, caisson.Errorf(caisson.CodeUsage, "what a task is given is no text")
	case edit.ID != "":
		w, err := findTask(t, "id", string(edit.ID))
		if err != nil {
			return none, err
		}
		if w.n == 0 {
			return none, notFound("task", string(edit.ID))
		}
		return t.changeTask(r, w, edit)
	}
	w, err := findTask(t, "key", edit.Key)
	if err != nil {
		return none, err
	}
	if w.n != 0 {
		return t.sameTask(w, edit)
	}
	return t.createTask(r, edit)
}

func newTask(id caisson.TaskID, key string, created time.Time) caisson.Task {
	return caisson.Task{ID: id, Key: key, State: caisson.TaskActive, Created: created}
}

// change calls the change of an edit; what the ledger gives stays.
func change(edit caisson.TaskEdit, was caisson.Task, task *caisson.Task) error {
	if err := edit.Change(task); err != nil {
		var known *caisson.Error
		if errors.As(err, &known) {
			return err
		}
		return caisson.Errorf(caisson.CodeInternal, "edit task: %w", err)
	}
	task.ID, task.Key, task.Created, task.Updated, task.Version = was.ID, was.Key, was.Created, was.Updated, was.Version
	return nil
}

// madeOf is the digest of what somebody asked for in a new task.
func madeOf(task caisson.Task) ([]byte, error) {
	task.ID, task.Key, task.Created, task.Updated, task.Version = "", "", time.Time{}, time.Time{}, 0
	raw, err := marshal(task)
	return digestBytes(caisson.DigestOf(raw)), err
}

func (t *tx) createTask(r *runRow, edit caisson.TaskEdit) (caisson.Task, error) {
	id, err := t.newTaskID()
	if err != nil {
		return caisson.Task{}, err
	}
	empty := newTask(id, edit.Key, t.now)
	task := empty
	if err := change(edit, empty, &task); err != nil {
		return task, err
	}
	if task.State != caisson.TaskActive {
		return task, invalid("a new task is active, not %q", task.State)
	}
	if err := t.admitTask(&task, edit.New); err != nil {
		return task, err
	}
	w := &taskRow{id: id}
	if w.made, err = madeOf(task); err != nil {
		return task, err
	}
	return t.saveTask(r, w, task, edit)
}

func (t *tx) newTaskID() (caisson.TaskID, error) {
	for {
		id := caisson.NewTaskID()
		w, err := findTask(t, "id", string(id))
		if err != nil || w.n == 0 {
			return id, err
		}
	}
}

// sameTask answers an edit whose key is in use.
func (t *tx) sameTask(w *taskRow, edit caisson.TaskEdit) (caisson.Task, error) {
	first, err := w.value(t)
	if err != nil {
		return first, err
	}
	empty := newTask(first.ID, first.Key, first.Created)
	task := empty
	if err := change(edit, empty, &task); err != nil {
		return first, err
	}
	if edit.New.Free && ledger.Numbered(first.Branch, task.Branch) {
		task.Branch = first.Branch
	}
	made, err := madeOf(task)
	if err != nil {
		return first, err
	}
	if !bytes.Equal(made, w.made) {
		return first, caisson.Errorf(caisson.CodeTaskConflict, "task %s was made with this key and other content", first.ID).
			WithHint("See it with `caisson task show %s`; another task needs a key of its own.", first.ID).With("task", string(first.ID))
	}
	return first, nil
}

func (t *tx) changeTask(r *runRow, w *taskRow, edit caisson.TaskEdit) (caisson.Task, error) {
	was, err := w.value(t)
	if err != nil {
		return was, err
	}
	was = was.Clone()
	task := was.Clone() // what a change does to a list must not reach was
	if err := change(edit, was, &task); err != nil {
		return was, err
	}
	if task = task.Clone(); reflect.DeepEqual(was, task) {
		return was, nil
	}
	if task.State != was.State {
		if err := caisson.TaskStates().Move(string(was.State), string(task.State)); err != nil {
			return was, err
		}
	}
	return t.saveTask(r, w, task, edit)
}

// saveTask writes a new version of a task.
func (t *tx) saveTask(r *runRow, w *taskRow, task caisson.Task, edit caisson.TaskEdit) (caisson.Task, error) {
	if err := t.freeBranch(w, task); err != nil {
		return task, err
	}
	task.Version++
	task.Updated = t.now
	event := ledger.TaskEdited{Task: task.ID, Version: task.Version, State: task.State}
	var err error
	if event.Record, err = t.put(task); err != nil {
		return task, err
	}
	if len(edit.Content) > 0 {
		event.Content = ledger.Content{Digest: caisson.DigestOf(edit.Content), Bytes: int64(len(edit.Content))}
		if err := t.exec(`INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING`, digestBytes(event.Content.Digest), edit.Content); err != nil {
			return task, err
		}
	}
	w.record = event.Record
	if err := t.saveTaskRow(w, task); err != nil {
		return task, err
	}
	activity := edit.Activity
	activity.N, activity.At = task.Version, t.now
	if event.Activity, err = t.put(activity); err != nil {
		return task, err
	}
	if event.Kept, err = t.keepOf(r, event, edit.Most); err != nil {
		return task, err
	}
	doc, err := writeDoc(event.Activity)
	if err != nil {
		return task, err
	}
	if err := t.exec(`INSERT INTO task_activity (task, n, doc) VALUES (?, ?, ?)`, w.n, activity.N, doc); err != nil {
		return task, err
	}
	t.wake = true // mirrors are written anew
	return task, t.emit(r, caisson.EventTaskEdited, event)
}

// leastKept is what a version of a task takes at least, by and large: its event,
// its entry in the history, and what of it stands in rows.
const leastKept = 1 << 10

// keepOf charges what an edit by a call of r keeps to the pools of r, and returns it.
func (t *tx) keepOf(r *runRow, event ledger.TaskEdited, most int64) (int64, error) {
	if r.rid == 0 {
		return 0, nil
	}
	kept := leastKept + event.Record.Bytes + event.Activity.Bytes + event.Content.Bytes
	return kept, t.eachPool(r, func(of *runRow, pool *caisson.Pool) error {
		if pool.Kept += kept; most > 0 && pool.Kept > most {
			return caisson.Errorf(caisson.CodeBudgetExceeded, "what run %s, and those under it, have done to tasks takes as much of the record as it may: %d MiB", of.id, most>>20).
				WithHint("Ask the person you work for: they can change tasks still, and so can another run of theirs.").With("run", string(of.id))
		}
		return nil
	})
}

// freeBranch looks whether the branch is that of another task that is not over.
func (t *tx) freeBranch(w *taskRow, task caisson.Task) error {
	if task.Branch == "" || task.State != caisson.TaskActive && task.State != caisson.TaskBlocked {
		return nil
	}
	var other string
	err := t.row(`SELECT id FROM tasks WHERE repository = ? AND branch = ? AND branch <> '' AND state IN ('active', 'blocked') AND n <> ?`,
		task.Repository, task.Branch, w.n).Scan(&other)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return caisson.Errorf(caisson.CodeTaskConflict, "branch %s is that of task %s", task.Branch, other).WithHint("Choose another branch.").With("task", other)
}

func (t *tx) saveTaskRow(w *taskRow, task caisson.Task) error {
	doc, err := writeDoc(w.record)
	if err != nil {
		return err
	}
	if w.n != 0 {
		return t.exec(`UPDATE tasks SET repository = ?, branch = ?, state = ?, version = ?, workspace = ?, created_by = ?, moving = ?, doc = ? WHERE n = ?`,
			task.Repository, task.Branch, string(task.State), task.Version, string(task.Workspace), task.CreatedBy, task.Moving != nil, doc, w.n)
	}
	res, err := t.result(`INSERT INTO tasks (id, key, repository, branch, state, version, workspace, created_by, moving, made, doc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		string(task.ID), task.Key, task.Repository, task.Branch, string(task.State), task.Version, string(task.Workspace), task.CreatedBy, task.Moving != nil, w.made, doc)
	if err != nil {
		return err
	}
	w.n, err = res.LastInsertId()
	return err
}

// Task implements [caisson.Ledger].
func (l *Ledger) Task(ctx context.Context, id caisson.TaskID) (caisson.Task, error) {
	var task caisson.Task
	err := l.read(ctx, func(s source) error {
		w, err := findTask(s, "id", string(id))
		if err != nil {
			return err
		}
		if w.n == 0 {
			return notFound("task", string(id))
		}
		task, err = w.value(s)
		return err
	})
	return task, err
}

// Tasks implements [caisson.Ledger].
func (l *Ledger) Tasks(ctx context.Context, filter caisson.TaskFilter) ([]caisson.Task, error) {
	q := taskQuery(filter)
	var tasks []caisson.Task
	err := l.read(ctx, func(s source) error {
		var found []*taskRow
		err := each(s, func(rows *sql.Rows) error {
			w := new(taskRow)
			found = append(found, w)
			return w.scan(rows.Scan)
		}, q.text(), q.args...)
		if err != nil {
			return err
		}
		tasks = make([]caisson.Task, len(found))
		for i, w := range found {
			if tasks[i], err = w.value(s); err != nil {
				return err
			}
		}
		return nil
	})
	return tasks, err
}

// TaskActivity implements [caisson.Ledger].
func (l *Ledger) TaskActivity(ctx context.Context, id caisson.TaskID, after int64, limit int) ([]caisson.TaskActivity, error) {
	var entries []caisson.TaskActivity
	err := l.read(ctx, func(s source) error {
		w, err := findTask(s, "id", string(id))
		if err != nil {
			return err
		}
		if w.n == 0 {
			return notFound("task", string(id))
		}
		q := newQuery(`SELECT doc FROM task_activity WHERE task = ?`, w.n)
		q.and(`n > ?`, after)
		q.end(`ORDER BY n`, limit)
		var found []ledger.Content
		err = each(s, func(rows *sql.Rows) error {
			var doc []byte
			var content ledger.Content
			if err := rows.Scan(&doc); err != nil {
				return err
			}
			err := readDoc("activity of task", string(id), doc, &content)
			found = append(found, content)
			return err
		}, q.text(), q.args...)
		if err != nil {
			return err
		}
		entries = make([]caisson.TaskActivity, len(found))
		for i, content := range found {
			if err := get(s, content, &entries[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return entries, err
}
