package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
)

// counted is a ledger that counts the looks at tasks, and the tasks that were read.
type counted struct {
	caisson.Ledger
	looks, tasks atomic.Int64
}

func (l *counted) Tasks(ctx context.Context, filter caisson.TaskFilter) ([]caisson.Task, error) {
	found, err := l.Ledger.Tasks(ctx, filter)
	l.looks.Add(1)
	l.tasks.Add(int64(len(found)))
	return found, err
}

func (l *counted) reads() (looks, tasks int64) { return l.looks.Swap(0), l.tasks.Swap(0) }

// All sandboxes of a repository look once at their own tasks, however many others
// there are, and who makes one looks at none.
func TestMirrorsOfManyTasks(t *testing.T) {
	h := opened(t, "", nil)
	l := &counted{Ledger: h.Ledger}
	h.Ledger = l
	const many, boxes, makers = 2000, 100, 16
	var making sync.WaitGroup
	tasks := make([]caisson.Task, many)
	for from := range makers {
		making.Go(func() {
			for i := from; i < many; i += makers {
				n := task.Draft{Key: task.KeyOf(fmt.Sprint(i)), Repository: "/repo/.git", Title: fmt.Sprint("Number ", i), Type: caisson.TaskChore}
				var err error
				if tasks[i], err = h.Tasks().Create(t.Context(), n, h.Me()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	making.Wait()
	if looks, read := l.reads(); looks != 0 || t.Failed() {
		t.Fatalf("to make %d tasks, %d were read in %d looks", many, read, looks)
	}
	var open []*mirror
	for i := range boxes {
		ws := caisson.Workspace{ID: caisson.WorkspaceID(fmt.Sprint("w", i)), Branch: tasks[7*i].Branch, Binding: caisson.Binding{CommonDir: "/repo/.git"}}
		open = append(open, &mirror{host: h, ws: ws, dir: filepath.Join(t.TempDir(), "tasks")})
	}
	for range 2 {
		if err := h.showTasks(t.Context(), open); err != nil {
			t.Fatal(err)
		}
		if looks, read := l.reads(); looks != 1 || read != boxes {
			t.Errorf("%d tasks were read in %d looks", read, looks)
		}
	}
	for i, m := range open {
		if m.bound() != tasks[7*i].ID {
			t.Errorf("sandbox %d is of task %s", i, m.bound())
		}
		if _, err := os.Stat(filepath.Join(m.dir, string(m.bound()), "task.md")); err != nil {
			t.Error(err)
		}
	}
	if err := h.Tasks().Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, read := l.reads(); read != 0 {
		t.Errorf("%d tasks were read to find that none moves", read)
	}
}

// A mirror of which nothing has changed is not looked at each time, and what is lost
// of it comes back; what has changed is shown at once.
func TestMirrorIsLookedAtSeldom(t *testing.T) {
	h := opened(t, "", nil)
	made, err := h.Tasks().Create(t.Context(), task.Draft{Key: task.KeyOf("1"), Repository: "/repo/.git", Title: "One", Type: caisson.TaskChore}, h.Me())
	if err != nil {
		t.Fatal(err)
	}
	m := &mirror{host: h, ws: caisson.Workspace{ID: "w", Branch: made.Branch, Binding: caisson.Binding{CommonDir: "/repo/.git"}}, dir: filepath.Join(t.TempDir(), "tasks")}
	show := func() {
		t.Helper()
		if err := h.showTasks(t.Context(), []*mirror{m}); err != nil {
			t.Fatal(err)
		}
	}
	show()
	whole := filepath.Join(m.dir, string(made.ID))
	page := filepath.Join(whole, "task.md")
	lost := func() bool {
		_, err := os.Stat(page)
		return err != nil
	}
	for range 2 {
		if lost() {
			t.Fatal("it is not shown")
		}
		if err := os.RemoveAll(whole); err != nil { // by a process that takes the sandbox for its own
			t.Fatal(err)
		}
		if show(); lost() {
			t.Fatal("what is lost as a whole does not come back at once")
		}
		for range mirrorSurely - 1 {
			if show(); m.since == 0 {
				t.Fatal("it was looked at though nothing has changed")
			}
		}
		if show(); m.since != 0 {
			t.Fatal("it is not looked at any more")
		}
	}
	if err := os.RemoveAll(page); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Tasks().Edit(t.Context(), task.Take(made.ID, h.Me(), "w")); err != nil {
		t.Fatal(err)
	}
	if show(); lost() {
		t.Error("what changed is not shown at once")
	}
}
