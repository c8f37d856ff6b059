package control_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

func (w *world) private() os.FileInfo {
	w.t.Helper()
	info, err := os.Stat(filepath.Join(w.channel(), caisson.ControlPrivate))
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// Who has lost the sandbox and opens its channel late takes nothing from who has it.
func TestLateOpening(t *testing.T) {
	w := newWorld(t)
	late := w.drive
	w.takeOver()
	b, now := w.start(), w.drive
	before := w.private()
	w.drive = late
	if _, err := w.open(); caisson.CodeOf(err) != caisson.CodeLeaseLost {
		t.Errorf("opened late: %v", err)
	}
	w.drive = now
	if !os.SameFile(before, w.private()) {
		t.Error("the live broker's directory was taken from it")
	}
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted || b.Err() != nil {
		t.Errorf("%+v, %v", a, b.Err())
	}
}

// A broker whose files another has taken, without the right to them, takes them
// back: with the next request, with the tick, and for an answer that is due.
func TestFilesAreTakenBack(t *testing.T) {
	w := newWorld(t)
	began, let := w.blocking("block")
	b := w.start()
	displace := func() *channel.Files {
		t.Helper()
		files, err := channel.Make(w.channel())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files.Close() })
		if err := files.Identity(caisson.ControlIdentityFile{Generation: 7}); err != nil {
			t.Fatal(err)
		}
		return files
	}
	displace()
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("%+v", a)
	}
	var identity caisson.ControlIdentityFile
	if w.file(caisson.ControlIdentity, &identity); identity.Generation != 1 || len(identity.Verbs) == 0 {
		t.Errorf("the identity is %+v", identity)
	}

	id := w.ask("block", `{}`)
	<-began
	displace()
	close(let)
	if a := w.answer(id); a.State != caisson.AnswerCompleted {
		t.Errorf("what ran: %+v", a)
	}

	other := displace()
	w.tickNow()
	w.await("that it is taken back", other.Displaced)
	w.answer(w.ask("count", `{}`))
	if err := b.Err(); err != nil {
		t.Error(err)
	}
}
