package task_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/task"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

const crashEnv = "CAISSON_TEST_TASK"

func TestMain(m *testing.M) {
	if at := os.Getenv(crashEnv); at != "" {
		if err := crashing(at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// world is tasks on a real ledger, with a mirror and a file for each task whose
// runs were ended.
type world struct {
	dir    string
	ledger *sqlite.Ledger
	tasks  *task.Tasks
	clean  bool
	merged bool
	failed error // of Settle
}

func openWorld(dir string) (*world, error) {
	l, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, ledger: l, clean: true, merged: true}
	w.tasks = task.New(task.Options{Ledger: l, Work: w, Outside: w})
	return w, nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w, err := openWorld(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.ledger.Check(context.Background()), w.ledger.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) Clean(context.Context, caisson.Task) (bool, error)  { return w.clean, nil }
func (w *world) Merged(context.Context, caisson.Task) (bool, error) { return w.merged, nil }

func (w *world) ended() string  { return filepath.Join(w.dir, "ended") }
func (w *world) mirror() string { return filepath.Join(w.dir, "mirror") }

func (w *world) Settle(_ context.Context, t caisson.Task) error {
	if w.failed != nil {
		return w.failed
	}
	if t.State != caisson.TaskCancelled {
		return nil
	}
	if err := os.MkdirAll(w.ended(), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(w.ended(), string(t.ID)), os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func (w *world) Show(ctx context.Context, _ caisson.Task) error {
	all, err := w.ledger.Tasks(ctx, caisson.TaskFilter{})
	if err != nil {
		return err
	}
	return task.Mirror(ctx, w.mirror(), w.ledger, task.Listed(all))
}

func (w *world) create(t *testing.T, title string) caisson.Task {
	t.Helper()
	n := draft()
	n.Title, n.Key = title, task.NewKey()
	is, err := w.tasks.Create(t.Context(), n, ann)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestCreateOnce(t *testing.T) {
	w := newWorld(t)
	first, err := w.tasks.Create(t.Context(), draft(), ann)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.tasks.Create(t.Context(), draft(), ann)
	if err != nil || !cmp.Equal(first, again) {
		t.Errorf("%v: %s", err, cmp.Diff(first, again))
	}
	// Also after it has changed, and while its branch is somebody's.
	if _, err := w.tasks.Move(t.Context(), first.ID, task.Wanted{Move: task.Cancel, By: ann}); err != nil {
		t.Fatal(err)
	}
	second := w.create(t, draft().Title)
	if second.Branch != first.Branch {
		t.Errorf("%s", second.Branch)
	}
	if again, err = w.tasks.Create(t.Context(), draft(), ann); err != nil || again.ID != first.ID || again.State != caisson.TaskCancelled {
		t.Errorf("%+v, %v", again, err)
	}
	other := draft()
	other.Description = "something else"
	if _, err = w.tasks.Create(t.Context(), other, ann); caisson.CodeOf(err) != caisson.CodeTaskConflict {
		t.Errorf("%v", err)
	}
	// The branch is the second's now.
	if _, err := w.tasks.Move(t.Context(), first.ID, task.Wanted{Move: task.Restore, By: ann}); caisson.CodeOf(err) != caisson.CodeTaskConflict {
		t.Errorf("%v", err)
	}
}

// Many at once, of one title: each has a branch of its own.
func TestCreateTogether(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	made := make([]caisson.Task, 12)
	errs := make([]error, len(made))
	for i := range made {
		all.Go(func() {
			n := draft()
			n.Key = task.KeyOf(fmt.Sprint(i % 6)) // each asked for twice
			made[i], errs[i] = task.New(task.Options{Ledger: w.ledger, Work: w, Outside: hidden{}}).Create(t.Context(), n, ann)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	branches := map[string]caisson.TaskID{}
	for i, is := range made {
		if is.ID != made[(i+6)%12].ID {
			t.Errorf("two tasks of one key: %s and %s", is.ID, made[(i+6)%12].ID)
		}
		if other, is2 := branches[is.Branch]; is2 && other != is.ID {
			t.Errorf("%s is of two", is.Branch)
		}
		branches[is.Branch] = is.ID
	}
	if len(branches) != 6 {
		t.Errorf("%v", branches)
	}
}

// hidden shows tasks nowhere: a mirror is one writer's.
type hidden struct{}

func (hidden) Settle(context.Context, caisson.Task) error { return nil }
func (hidden) Show(context.Context, caisson.Task) error   { return nil }

func TestMoveIsClosed(t *testing.T) {
	w := newWorld(t)
	is := w.create(t, "One")
	w.failed = errors.New("it does not end")
	if _, err := w.tasks.Move(t.Context(), is.ID, task.Wanted{Move: task.Cancel, By: ann}); !errors.Is(err, w.failed) {
		t.Fatalf("%v", err)
	}
	other := w.create(t, "Two")
	if is, err := w.ledger.Task(t.Context(), is.ID); err != nil || is.State != caisson.TaskCancelled || is.Moving == nil {
		t.Fatalf("%+v, %v", is, err)
	}
	if _, err := w.tasks.Move(t.Context(), is.ID, task.Wanted{Move: task.Restore, By: ann}); caisson.CodeOf(err) != caisson.CodeTaskConflict {
		t.Fatalf("%v", err)
	}
	if err := w.tasks.Resume(t.Context()); !errors.Is(err, w.failed) {
		t.Fatalf("%v", err)
	}
	w.failed = nil
	if err := w.tasks.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is, err := w.ledger.Task(t.Context(), is.ID); err != nil || is.Moving != nil {
		t.Fatalf("%+v, %v", is, err)
	}
	if _, err := w.tasks.Move(t.Context(), is.ID, task.Wanted{Move: task.Restore, By: ann}); err != nil {
		t.Fatal(err)
	}
	w.merged = false
	if _, err := w.tasks.Move(t.Context(), other.ID, task.Wanted{Move: task.Complete, By: ann}); caisson.CodeOf(err) != caisson.CodeTaskUnfinished {
		t.Fatalf("%v", err)
	}
	history, err := w.ledger.TaskActivity(t.Context(), is.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, a := range history {
		said = append(said, a.Kind+" "+a.Text)
	}
	want := []string{
		"created One", "moved cancelled", "moved cancelled, with all that belongs to it", "moved active", "moved active, with all that belongs to it",
	}
	if !slices.Equal(said, want) {
		t.Error(cmp.Diff(want, said))
	}
}

// crashing cancels the one task there is; it is killed while it does.
func crashing(dir string) error {
	w, err := openWorld(dir)
	if err != nil {
		return err
	}
	all, err := w.ledger.Tasks(context.Background(), caisson.TaskFilter{})
	if err != nil {
		return err
	}
	_, err = w.tasks.Move(context.Background(), all[0].ID, task.Wanted{Move: task.Cancel, By: task.Person("bob", time.Now())})
	return errors.Join(err, w.ledger.Close())
}

// Killed at each step of a move: the next to open finishes it, once.
func TestCrash(t *testing.T) {
	points := []string{
		"task.move.recorded", "task.move.settled", "task.mirror.file", "task.mirror.file@2", "atomicfile.place.before", "atomicfile.place.after@2",
		"task.move.shown", "task.move.closed",
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			w, err := openWorld(dir)
			if err != nil {
				t.Fatal(err)
			}
			is := w.create(t, "One")
			if _, err := w.tasks.Edit(t.Context(), task.Put(is.ID, run, task.Artifact{Name: "plan", Content: []byte("the plan")})); err != nil {
				t.Fatal(err)
			}
			if err := w.ledger.Close(); err != nil {
				t.Fatal(err)
			}
			name, nth, _ := strings.Cut(point, "@")
			if nth != "" {
				nth = "@" + nth
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), crashEnv+"="+dir, fault.Env+"="+name+"=crash"+nth)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("not killed: %v %s", err, out)
			}
			recovered(t, dir, is.ID)
		})
	}
}

func recovered(t *testing.T, dir string, id caisson.TaskID) {
	t.Helper()
	w, err := openWorld(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.tasks.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	is, err := w.ledger.Task(t.Context(), id)
	if err != nil || is.State != caisson.TaskCancelled || is.Moving != nil {
		t.Errorf("%+v, %v", is, err)
	}
	if _, err := os.Stat(filepath.Join(w.ended(), string(id))); err != nil {
		t.Error(err)
	}
	if err := w.Show(t.Context(), is); err != nil {
		t.Error(err)
	}
	if page := read(t, w.mirror(), string(id), "task.md"); !strings.Contains(page, "- State: cancelled\n") {
		t.Errorf("the mirror shows\n%s", page)
	}
	if entries, err := os.ReadDir(w.mirror()); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(filepath.Join(w.mirror(), string(id))); err != nil || len(entries) != 3 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	history, err := w.ledger.TaskActivity(t.Context(), id, 0, 0)
	if err != nil || len(history) != 4 {
		t.Errorf("%+v, %v", history, err)
	}
	if err := errors.Join(w.ledger.Check(t.Context()), w.ledger.Close()); err != nil {
		t.Error(err)
	}
}
