package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
)

// mirror is what a sandbox is shown of the task that it is bound to: the one
// whose workspace is its own. Safe for concurrent use.
type mirror struct {
	host *Host
	ws   caisson.Workspace
	dir  string

	writing sync.Mutex // one writes at a time
	dropped bool       // nothing is written any more: the channel goes; under writing
	shown   string     // what it shows as it was last written, or looked at; under writing
	since   int        // times that it was to show just that; under writing
	mu      sync.Mutex
	task    caisson.TaskID
}

// bound is the task that the sandbox is bound to; "" where it is to none.
func (m *mirror) bound() caisson.TaskID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.task
}

// show makes the mirror what the ledger has of its task; nil is none.
func (m *mirror) show(ctx context.Context, t *caisson.Task) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.dropped {
		return nil
	}
	var id caisson.TaskID
	var shown []caisson.Task
	if t != nil {
		id, shown = t.ID, []caisson.Task{*t}
	}
	m.mu.Lock()
	m.task = id
	m.mu.Unlock()
	key := "none"
	if t != nil {
		key = fmt.Sprint(t.ID, " ", t.Version)
	}
	if m.since++; key == m.shown && m.since < mirrorSurely && (t == nil || task.Mirrored(m.dir, id)) {
		return nil
	}
	m.shown, m.since = "", 0
	if err := task.Mirror(ctx, m.dir, m.host.Ledger, shown); err != nil {
		return caisson.Errorf(caisson.CodeWriteFailed, "show the task in the sandbox: %w", err)
	}
	m.shown = key
	return nil
}

// showTasks shows mirrors their tasks. Those of one repository are read at once,
// and no others of it: a repository may have thousands.
func (h *Host) showTasks(ctx context.Context, open []*mirror) error {
	of := map[string][]*mirror{}
	for _, m := range open {
		of[m.ws.Binding.CommonDir] = append(of[m.ws.Binding.CommonDir], m)
	}
	var failed error
	for repository, mirrors := range of {
		work := &caisson.TaskWork{}
		for _, m := range mirrors {
			work.Workspaces, work.Branches = append(work.Workspaces, m.ws.ID), append(work.Branches, m.ws.Branch)
		}
		tasks, err := h.Ledger.Tasks(ctx, caisson.TaskFilter{Repository: repository, Work: work})
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, m := range mirrors {
			failed = errors.Join(failed, m.show(ctx, taskOf(tasks, m.ws)))
		}
	}
	return failed
}

// taskOf returns the one of tasks whose work is done in a workspace, nil where none
// is: one that is not over before one that is, and of those the first.
func taskOf(tasks []caisson.Task, ws caisson.Workspace) *caisson.Task {
	rank := func(t caisson.Task) int {
		switch {
		case t.Workspace == ws.ID && !task.Over(t.State):
			return 4
		case task.NamesWork(t, ws.Branch) && !task.Over(t.State):
			return 3
		case t.Workspace == ws.ID:
			return 2
		case task.NamesWork(t, ws.Branch):
			return 1
		}
		return 0
	}
	var best *caisson.Task
	for i, t := range tasks {
		if r := rank(t); r > 0 && (best == nil || r > rank(*best)) {
			best = &tasks[i]
		}
	}
	return best
}

// mirrorEvery is how soon an edit by another process is shown in the sandboxes
// of this one. Those of this process are shown at once.
const mirrorEvery = 5 * time.Second

// mirrorSurely is in how many looks at the tasks a mirror is looked at of which
// nothing has changed: nobody but the host writes it, but a person may.
const mirrorSurely = 12

// mirrors keeps the mirrors of this process's sandboxes true, and brings moves
// of tasks to their end that were asked for from inside. One goroutine and one
// timer for all of them.
type mirrors struct {
	mu    sync.Mutex
	open  map[*mirror]bool
	moved bool          // a move was recorded that may have more to it
	nudge chan struct{} // nil until the first sandbox is open
	stop  context.CancelFunc
	ended chan struct{}
}

// keepMirror shows a mirror's task, and again whenever it changed, until it is
// dropped.
func (h *Host) keepMirror(ctx context.Context, m *mirror) error {
	if err := h.showTasks(ctx, []*mirror{m}); err != nil {
		return err
	}
	h.followTasks()
	h.mirrors.mu.Lock()
	defer h.mirrors.mu.Unlock()
	h.mirrors.open[m] = true
	return nil
}

// dropMirror ends that. When it returns nothing of the mirror is being written.
func (h *Host) dropMirror(m *mirror) {
	if m == nil {
		return
	}
	h.mirrors.mu.Lock()
	delete(h.mirrors.open, m)
	h.mirrors.mu.Unlock()
	m.writing.Lock()
	defer m.writing.Unlock()
	m.dropped = true
}

// followTasks begins to follow the tasks, once in a process. What an ended
// process left under way of a move is gone on with first.
func (h *Host) followTasks() {
	s := &h.mirrors
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nudge != nil {
		return
	}
	s.open, s.nudge, s.ended, s.moved = map[*mirror]bool{}, make(chan struct{}, 1), make(chan struct{}), true
	var life context.Context
	life, s.stop = context.WithCancel(context.Background())
	s.nudge <- struct{}{}
	go func() { // ends with close
		defer close(s.ended)
		h.follow(life)
	}()
}

func (h *Host) follow(ctx context.Context) {
	s := &h.mirrors
	ticker := time.NewTicker(mirrorEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.nudge:
		}
		s.mu.Lock()
		moved := s.moved
		s.moved = false
		open := make([]*mirror, 0, len(s.open))
		for m := range s.open {
			open = append(open, m)
		}
		s.mu.Unlock()
		if moved && h.Tasks().Resume(ctx) != nil {
			s.mu.Lock()
			s.moved = true // tried again with the next tick; any `caisson task` says why
			s.mu.Unlock()
		}
		_ = h.showTasks(ctx, open) // projections: the next tick tries again
	}
}

// wake has mirrors looked at now. It never blocks. moved says that a move was
// recorded.
func (s *mirrors) wake(moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nudge == nil {
		return
	}
	s.moved = s.moved || moved
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// close ends the following.
func (s *mirrors) close() {
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
		<-s.ended
	}
}

// newMirror is the mirror of the session's sandbox; nil where it has no
// workspace, and so no task.
func (s *session) newMirror() *mirror {
	if s.ws == nil {
		return nil
	}
	return &mirror{host: s.host, ws: *s.ws, dir: filepath.Join(s.host.channelDir(s.record.ID), caisson.ControlTasks)}
}
