package task_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/task"
)

// allowing is a policy without a rule.
type allowing struct{}

func (allowing) PolicyDigest() caisson.Digest { return "" }
func (allowing) Judge(caisson.Call, caisson.Subject) caisson.Verdict {
	return caisson.Verdict{Ruling: caisson.Allow, Layer: "preset", Rule: "default"}
}

// driven gives the sandbox a run with an airlock.
func (in *inside) driven(t *testing.T) func(name, input string) caisson.CallRecord {
	t.Helper()
	l := in.w.ledger
	in.run = caisson.NewRunID()
	if _, err := l.CreateRun(t.Context(), in.run, caisson.RunSpec{Prompt: "test", Root: in.run, Engine: "none", Preset: "sandboxed"}); err != nil {
		t.Fatal(err)
	}
	inst := caisson.Instance{ID: caisson.NewInstanceID(), Program: "test", Process: caisson.ProcessIdentity{Host: "test", PID: os.Getpid()}}
	if err := l.PutInstance(t.Context(), inst); err != nil {
		t.Fatal(err)
	}
	lease, err := l.TakeLease(t.Context(), in.run, inst.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	drive := caisson.Drive{Run: in.run, Fence: lease.Fence}
	if _, err := l.MoveRun(t.Context(), drive, caisson.RunMove{To: caisson.RunRunning}); err != nil {
		t.Fatal(err)
	}
	door := airlock.New(airlock.Options{Ledger: l, Judge: allowing{}}).Enter(drive, func() caisson.Subject { return caisson.Subject{} }, "", "")
	return func(name, input string) caisson.CallRecord {
		t.Helper()
		i := slices.IndexFunc(in.verbs, func(v caisson.Tool) bool { return v.Spec().Ref.Name == name })
		in.calls++
		settled, err := door.Settle(t.Context(), []airlock.Request{{ID: caisson.NewCallID(in.run, 1, in.calls), Turn: 1, Name: name, Tool: in.verbs[i], Input: input}})
		if err != nil {
			t.Fatal(err)
		}
		return settled.Records[0]
	}
}

// A verb is a call like any other: its effect is done with its outcome, or not
// at all.
func TestVerbIsACall(t *testing.T) {
	w := newWorld(t)
	own := w.create(t, "One")
	in := w.inside(own.ID)
	call := in.driven(t)
	rec := call("task.block", `{"reason":"No key."}`)
	is, err := w.ledger.Task(t.Context(), own.ID)
	if err != nil || rec.State.Outcome() != caisson.OutcomeDone || is.State != caisson.TaskBlocked || !strings.Contains(rec.Result.Text, "blocked") {
		t.Fatalf("%+v, %+v, %v", rec, is, err)
	}
	rec = call("task.complete", `{}`)
	if rec.State.Outcome() != caisson.OutcomeFailed || caisson.CodeOf(rec.Result.Error) != caisson.CodeStateInvalid {
		t.Errorf("%+v", rec)
	}
	call("task.activate", `{}`)
	rec = call("task.complete", `{}`)
	if rec.State.Outcome() != caisson.OutcomeFailed || caisson.CodeOf(rec.Result.Error) != caisson.CodeTaskUnfinished || !strings.Contains(rec.Result.Text, "criterion 2 is not marked as met") {
		t.Errorf("%+v", rec)
	}
	for _, bad := range []string{`{"text":"x","by":"ann"}`, `{"text":"` + strings.Repeat("x", 9000) + `"}`} {
		if rec = call("task.note", bad); rec.State.Outcome() != caisson.OutcomeRefused || caisson.CodeOf(rec.Result.Error) != caisson.CodeCallInvalid {
			t.Errorf("%+v", rec)
		}
	}
	if is, err := w.ledger.Task(t.Context(), own.ID); err != nil || is.Version != 3 {
		t.Errorf("%+v, %v", is, err)
	}
	history, err := w.ledger.TaskActivity(t.Context(), own.ID, 1, 1)
	if err != nil || history[0].By != string(in.run) {
		t.Errorf("%+v, %v", history, err)
	}
}

// A settle that could not be written is tried again, and its effect is done once.
func TestVerbAndAFullDisk(t *testing.T) {
	w := newWorld(t)
	own := w.create(t, "One")
	in := w.inside(own.ID)
	call := in.driven(t)
	if rec := call("task.note", `{"text":"one"}`); rec.State.Outcome() != caisson.OutcomeDone {
		t.Fatalf("%+v", rec)
	}
	disarm := fault.Arm("ledger.commit.before", fault.ENOSPC, 2) // of the settle
	rec := call("task.note", `{"text":"two"}`)
	disarm()
	is, err := w.ledger.Task(t.Context(), own.ID)
	if err != nil || rec.State.Outcome() != caisson.OutcomeDone || is.Notes != 2 {
		t.Errorf("%+v, %+v, %v", rec, is, err)
	}
	if _, err := w.ledger.EditTask(t.Context(), task.Note(own.ID, ann, "three")); err != nil {
		t.Error(err)
	}
}
