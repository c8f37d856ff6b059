package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// controlTold is what the events of one run tell of its channel. It is compared
// when the run's chain was read: a run may have a million requests.
type controlTold struct {
	generation, epoch, taken int64
	requests                 map[caisson.CallID]requestTold
	inputs                   map[caisson.CallID]caisson.Digest // of those that are open
}

// requestTold is how a request stands: open, rejected, or closed by its call.
type requestTold byte

const (
	requestOpen requestTold = iota
	requestRejected
	requestCalled
)

// readControl takes over what an event tells of a channel.
func (c *check) readControl(r *runRow, e caisson.Event, told *controlTold) (err error) {
	if e.Kind == caisson.EventChannelOpened {
		b := body[ledger.ChannelOpened](e, &err)
		if b.Generation != told.generation {
			told.taken = 0
		}
		told.generation, told.epoch = b.Generation, b.Epoch
		return err
	}
	b := body[ledger.RequestEvent](e, &err)
	if err = errors.Join(err, c.refer(e, b.Input, b.Rejected)); err != nil {
		return err
	}
	id := caisson.NewRequestCallID(r.id, b.Generation, b.Request)
	state, known := told.requests[id]
	switch {
	case e.Kind == caisson.EventRequestTaken && (known || b.Generation != told.generation):
		return damaged("request %s of generation %d of run %s was taken twice, or not in its generation", b.Request, b.Generation, r.id)
	case e.Kind == caisson.EventRequestTaken:
		if told.requests == nil {
			told.requests, told.inputs = map[caisson.CallID]requestTold{}, map[caisson.CallID]caisson.Digest{}
		}
		if b.InputDigest != "" {
			told.inputs[id] = b.InputDigest
		}
		told.taken += max(1, b.Places)
		told.requests[id] = requestOpen
	case !known || state != requestOpen:
		return damaged("request %s of generation %d of run %s was rejected and was not open", b.Request, b.Generation, r.id)
	default:
		told.requests[id] = requestRejected
		delete(told.inputs, id)
	}
	return nil
}

// readRequestCall takes over what an event of a request's call tells of the request.
func (c *check) readRequestCall(id caisson.CallID, settled bool, told *controlTold) error {
	if _, _, ok := id.Request(); !ok {
		return nil
	}
	state, known := told.requests[id]
	if !known || state != requestOpen {
		return damaged("call %s is of a request that was not taken, or was rejected", id).With("call", string(id))
	}
	if settled {
		told.requests[id] = requestCalled
		delete(told.inputs, id)
	}
	return nil
}

// channel compares the rows of a run's channel with what its events told.
func (c *check) channel(r *runRow, told controlTold) error {
	channel, err := findChannel(c, r)
	if err != nil {
		return err
	}
	if want := (caisson.Channel{Run: r.id, Generation: told.generation, Epoch: told.epoch, Taken: told.taken}); channel != want {
		return damaged("the channel of run %s is %+v; the events say %+v", r.id, channel, want).With("run", string(r.id))
	}
	err = each(c, func(rows *sql.Rows) error {
		q := new(requestRow)
		if err := q.scan(rows.Scan); err != nil {
			return err
		}
		id := caisson.NewRequestCallID(r.id, q.generation, q.id)
		state, known := told.requests[id]
		if !known || q.open != (state == requestOpen) || q.doc.Rejected.IsZero() != (state != requestRejected) {
			return damaged("request %s of generation %d of run %s is not what the events say", q.id, q.generation, r.id).With("run", string(r.id))
		}
		if input, is := told.inputs[id]; is && caisson.DigestOf(q.doc.Input.Value) != input {
			return damaged("the input of request %s of generation %d of run %s is not what the events say", q.id, q.generation, r.id).With("run", string(r.id))
		}
		delete(told.requests, id)
		return nil
	}, `SELECT `+requestColumns+` FROM requests WHERE rid = ?`, r.rid)
	if err != nil {
		return err
	}
	for id := range told.requests {
		return damaged("the request of call %s is in the events and nowhere else", id)
	}
	return nil
}

// taskTold is what events tell of a task. They stand in many chains, so only
// their versions give an order.
type taskTold struct {
	versions int64 // how many
	last     int64
	state    caisson.TaskState
	record   string // the last one's
	activity map[int64]string
}

func (c *check) readTask(r *runRow, e caisson.Event) (err error) {
	b := body[ledger.TaskEdited](e, &err)
	c.sums[r.rid].Kept += b.Kept
	if err = errors.Join(err, c.refer(e, b.Record, b.Activity, b.Content)); err != nil {
		return err
	}
	told := c.tasks[b.Task]
	if told == nil {
		told = &taskTold{activity: map[int64]string{}}
		c.tasks[b.Task] = told
	}
	told.versions++
	if told.activity[b.Version], err = contentTold(b.Activity); err != nil {
		return err
	}
	if b.Version > told.last {
		told.last, told.state = b.Version, b.State
		told.record, err = contentTold(b.Record)
	}
	return err
}

// contentTold makes one of two contents that are equal: an event's is canonical.
func contentTold(content ledger.Content) (string, error) {
	if content.Digest != "" || len(content.Value) == 0 {
		return string(content.Digest), nil
	}
	canonical, err := caisson.Canonical(content.Value)
	if err != nil {
		return "", damaged("a content cannot be read: %w", err)
	}
	return string(canonical), nil
}

// checkTasks compares the rows of tasks with what the events told, in both directions.
func (c *check) checkTasks() error {
	ids, rows := map[int64]caisson.TaskID{}, []*taskRow(nil)
	columns := map[caisson.TaskID]string{}
	err := each(c, func(found *sql.Rows) error {
		w := new(taskRow)
		var key, repository, branch, state, workspace, creator string
		var version int64
		var moving bool
		err := w.scan(func(dest ...any) error {
			return found.Scan(append(dest, &key, &repository, &branch, &state, &version, &workspace, &creator, &moving)...)
		})
		ids[w.n], columns[w.id] = w.id, fmt.Sprintf("%q %q %q %q %d %q %q %t", key, repository, branch, state, version, workspace, creator, moving)
		rows = append(rows, w)
		return err
	}, `SELECT `+taskColumns+`, key, repository, branch, state, version, workspace, created_by, moving FROM tasks`)
	if err != nil {
		return err
	}
	for _, w := range rows {
		if err := c.checkTask(w, columns[w.id]); err != nil {
			return err
		}
	}
	err = each(c, func(found *sql.Rows) error {
		var task, n int64
		var doc []byte
		var content ledger.Content
		if err := found.Scan(&task, &n, &doc); err != nil {
			return err
		}
		if err := readDoc("activity of task", string(ids[task]), doc, &content); err != nil {
			return err
		}
		told := c.tasks[ids[task]]
		if has, err := contentTold(content); err != nil || told == nil || told.activity[n] != has {
			return errors.Join(err, damaged("entry %d of the history of task %s is not what the events say", n, ids[task]))
		}
		delete(told.activity, n)
		return nil
	}, `SELECT task, n, doc FROM task_activity`)
	if err != nil {
		return err
	}
	for id, told := range c.tasks {
		if len(told.activity) > 0 || columns[id] == "" {
			return damaged("task %s is in the events, and not all of it elsewhere", id).With("task", string(id))
		}
	}
	return nil
}

func (c *check) checkTask(w *taskRow, columns string) error {
	told := c.tasks[w.id]
	if told == nil {
		return damaged("task %s is in no event", w.id).With("task", string(w.id))
	}
	record, err := contentTold(w.record)
	if err != nil {
		return err
	}
	task, err := w.value(c)
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%q %q %q %q %d %q %q %t", task.Key, task.Repository, task.Branch, task.State, task.Version, task.Workspace, task.CreatedBy, task.Moving != nil)
	if record != told.record || columns != want || task.ID != w.id || task.Version != told.last || task.State != told.state || told.versions != told.last || int64(len(told.activity)) != told.last {
		return damaged("task %s is not what the events say", w.id).With("task", string(w.id))
	}
	return nil
}
