package task_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/task"
)

func (w *world) edit(t *testing.T, e caisson.TaskEdit) caisson.Task {
	t.Helper()
	is, err := w.ledger.EditTask(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func TestPage(t *testing.T) {
	w := newWorld(t)
	n := draft()
	n.Description, n.Facts, n.Constraints, n.Source, n.Base = "Read it.\n\nAll of it.", []string{"It is big.\nAnd slow."}, []string{"No new library."}, "tracker 12", "main"
	is, err := w.tasks.Create(t.Context(), n, ann)
	if err != nil {
		t.Fatal(err)
	}
	w.edit(t, task.Mark(is.ID, run, 2, true))
	w.edit(t, task.Report(is.ID, run, caisson.Major, "It leaks."))
	w.edit(t, task.Judge(is.ID, ann, 1, caisson.FindingWaived, "known"))
	w.edit(t, task.Put(is.ID, run, task.Artifact{Name: "plan", Content: []byte("the plan")}))
	w.edit(t, task.Decide(is.ID, ann, task.Retry, ""))
	w.edit(t, task.Begin(is.ID, ann, caisson.TaskStep{Stage: "plan", Role: "executor", Run: "rabc123", Before: "t"}, nil))
	is = w.edit(t, task.MoveTo(is.ID, task.Wanted{Move: task.Block, By: ann, Text: "No key."}))
	if err := w.Show(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	page := read(t, w.mirror(), string(is.ID), "task.md")
	for _, want := range []string{
		"# Parse the header\n", "- State: blocked (No key.)\n", "- Branch: feature/parse-the-header\n", "- Source: tracker 12\n", "- Base: main\n",
		"## Description\n\nRead it.\n\nAll of it.\n", "## Facts\n\n- It is big.\n  And slow.\n", "- No new library.\n", "1. [ ] it parses\n2. [x] it is quick\n",
		"1. major, waived: It leaks. — known\n", "- artifacts/plan.1.md (8 bytes, by rabc123)\n", "1. plan by executor, run rabc123: pending\n",
		"- retry by ann\n", "rabc123 finding: major: It leaks.\n", "ann moved: blocked: No key.\n", "ann created: Parse the header\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if got := read(t, w.mirror(), string(is.ID), "artifacts", "plan.1.md"); got != "the plan" {
		t.Errorf("%q", got)
	}
}

func TestMirrorFollows(t *testing.T) {
	w := newWorld(t)
	one, two := w.create(t, "One"), w.create(t, "Two")
	page := filepath.Join(w.mirror(), string(one.ID), "task.md")
	before, err := os.Stat(page)
	if err != nil {
		t.Fatal(err)
	}
	show := func(tasks ...caisson.Task) {
		t.Helper()
		if err := task.Mirror(t.Context(), w.mirror(), w.ledger, tasks); err != nil {
			t.Fatal(err)
		}
	}
	show(one, two)
	if now, err := os.Stat(page); err != nil || !os.SameFile(before, now) {
		t.Error("written again without need")
	}
	one = w.edit(t, task.Note(one.ID, run, "hm"))
	show(one, two)
	if !strings.Contains(read(t, page), "noted: hm\n") {
		t.Error("not written anew")
	}
	// What is lost or of another format comes back.
	for _, broken := range []string{"", "0 1\n", "nonsense"} {
		if err := os.WriteFile(filepath.Join(w.mirror(), string(one.ID), "version"), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(page); err != nil {
			t.Fatal(err)
		}
		show(one, two)
		read(t, page)
	}
	// What is not to be shown goes, and what is nobody's.
	if err := os.MkdirAll(filepath.Join(w.mirror(), ".Tabc123.1.tmp", "artifacts"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.mirror(), "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	show(two)
	if entries, err := os.ReadDir(w.mirror()); err != nil || len(entries) != 1 || entries[0].Name() != string(two.ID) {
		t.Errorf("%v, %v", entries, err)
	}
	bad := two
	bad.ID = "../../x"
	if err := task.Mirror(t.Context(), w.mirror(), w.ledger, []caisson.Task{bad, two}); err == nil || !strings.Contains(err.Error(), "no id of one") {
		t.Errorf("%v", err)
	}
	for _, path := range []string{w.mirror(), filepath.Join(w.mirror(), string(two.ID)), filepath.Join(w.mirror(), string(two.ID), "task.md")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// A write that fails leaves what was there, and the next one makes it whole.
func TestMirrorFails(t *testing.T) {
	w := newWorld(t)
	one := w.create(t, "One")
	one = w.edit(t, task.Put(one.ID, run, task.Artifact{Name: "plan", Content: []byte("the plan")}))
	for _, nth := range []int64{1, 2, 2} { // the artifact; the page, after it; the version
		disarm := fault.Arm("atomicfile.place.before", fault.ENOSPC, nth)
		err := w.Show(t.Context(), one)
		disarm()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d: %v", nth, err)
		}
		if version := read(t, w.mirror(), string(one.ID), "version"); version != "1 1\n" {
			t.Fatalf("%d: version %q before it is whole", nth, version)
		}
	}
	if err := w.Show(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	// Of a task that was never shown, nothing is.
	fresh := w.create(t, "Two")
	if err := os.RemoveAll(filepath.Join(w.mirror(), string(fresh.ID))); err != nil {
		t.Fatal(err)
	}
	disarm := fault.Arm("atomicfile.place.before", fault.EIO, 2)
	err := w.Show(t.Context(), fresh)
	disarm()
	if _, gone := os.Stat(filepath.Join(w.mirror(), string(fresh.ID))); err == nil || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("half of it is shown: %v", err)
	}
	if entries, err := os.ReadDir(w.mirror()); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
