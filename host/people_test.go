package host

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// Whether anything runs in a box is told when the first command comes and when the
// last one has ended, however it ends.
func TestPeople(t *testing.T) {
	h := opened(t, "", nil)
	run, err := h.NewRun(t.Context(), RunRequest{Argv: []string{"true"}, NoWorkspace: true})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	engine, err := h.engine(run.Spec.Engine)
	if err != nil {
		t.Fatal(err)
	}
	box, err := engine.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatal(err)
	}
	b := &people{Sandbox: box}
	defer b.Close()
	hold := func(argv ...string) caisson.Process {
		t.Helper()
		p, err := b.Hold(t.Context(), caisson.Command{Argv: argv})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var told []bool
	wants := func(want ...bool) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		told = nil
	}
	first := hold("sleep", "1000")
	b.follow(func(is bool) { told = append(told, is) })
	wants(true)
	second := hold("true")
	second.Drop()
	second.Drop()
	wants()
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	first.Drop() // is Stop, now that it was released
	wants()
	if _, err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(false)
	if _, err := b.Hold(t.Context(), caisson.Command{}); err == nil {
		t.Fatal("a command of nothing is held")
	}
	wants(true, false)
	dead := hold("true")
	if err := unix.Kill(dead.Identity().PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := dead.Release(); err == nil {
		if _, err := dead.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dead.Drop()
	wants(true, false)
	third := hold("true")
	if err := third.Release(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := third.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wants(true, false)
}

// The broker of a session is told of what runs in its box: of one that was never
// told, no stall would count.
func TestBrokerIsToldOfPeople(t *testing.T) {
	w := start(t, "", nil)
	defer w.finish()
	if w.s.broker == nil || w.s.box != caisson.Sandbox(w.s.people) {
		t.Fatalf("broker %v, and its box is not one that counts", w.s.broker)
	}
	w.s.people.mu.Lock()
	defer w.s.people.mu.Unlock()
	if w.s.people.tell == nil || w.s.people.inside == 0 {
		t.Errorf("%d are inside, and nobody is told", w.s.people.inside)
	}
}
