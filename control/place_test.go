package control_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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
// back: with the next request, for an answer that is due, and by itself, at once
// where the kernel tells of it and else with the next round.
func TestFilesAreTakenBack(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) { takeFilesBack(t, poll) })
	}
}

func takeFilesBack(t *testing.T, poll bool) {
	w := newWorld(t)
	w.watcher.Poll = poll
	began, let := w.blocking("block")
	b := w.start()
	w.service.Tick(t.Context()) // the first
	displace := func() *channel.Files {
		t.Helper()
		files, err := channel.Make(w.channel())
		for i := 0; err != nil && i < 10; i++ { // it was taken back in the middle of it
			files, err = channel.Make(w.channel())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files.Close() })
		if err := files.Identity(caisson.ControlIdentityFile{Generation: 7}); err != nil && !files.Displaced() {
			t.Fatal(err)
		}
		return files
	}
	displace()
	if a := w.answer(w.ask("count", `{}`)); a.State != caisson.AnswerCompleted {
		t.Errorf("%+v", a)
	}
	w.await("that it is told who it is", func() bool {
		var identity caisson.ControlIdentityFile
		return w.file(caisson.ControlIdentity, &identity) && identity.Generation == 1 && len(identity.Verbs) > 0
	})

	id := w.ask("block", `{}`)
	<-began
	displace()
	close(let)
	if a := w.answer(id); a.State != caisson.AnswerCompleted {
		t.Errorf("what ran: %+v", a)
	}

	other := displace()
	if poll {
		w.tickNow()
	}
	w.await("that it is taken back", other.Displaced)
	w.answer(w.ask("count", `{}`))
	if err := b.Err(); err != nil {
		t.Error(err)
	}
}

// What could not be taken back when the kernel told of it, as nobody knew whose it
// was, is with the next round.
func TestFilesAreTakenBackLater(t *testing.T) {
	w := newWorld(t)
	var unsure atomic.Bool
	asked := make(chan struct{}, 1)
	w.sandbox.Owned = func(context.Context) error {
		if !unsure.Load() {
			return nil
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		return caisson.Errorf(caisson.CodeWriteFailed, "nobody knows")
	}
	w.start()                   // and nothing is asked: that would be a reason to look again
	w.service.Tick(t.Context()) // the first
	unsure.Store(true)
	other, err := channel.Make(w.channel())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	<-asked
	if other.Displaced() {
		t.Error("taken by one who does not know whether it is his")
	}
	unsure.Store(false)
	w.tickNow()
	w.await("that it is taken back", other.Displaced)
}

// What is no request is swept with the next round: where the kernel tells that it
// came, and where somebody has to look.
func TestLitterIsSwept(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) {
			w := newWorld(t)
			w.watcher.Poll = poll
			w.start()
			w.answer(w.ask("count", `{}`)) // after the first look
			litter := filepath.Join(w.channel(), caisson.ControlRequests, "litter")
			if err := os.Mkdir(litter, 0o700); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w.await("that it is swept", func() bool {
				w.tickNow()
				_, err := os.Lstat(litter)
				return errors.Is(err, fs.ErrNotExist)
			})
			if took := time.Since(began); took > 30*time.Second { // then the directory is looked at anyway
				t.Errorf("it took %s", took)
			}
		})
	}
}
