package channel_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

func TestTrim(t *testing.T) {
	f, dir := open(t)
	responses := filepath.Join(dir, "public/responses")
	const made = caisson.ControlKept + 20
	for n := range made {
		if err := errors.Join(f.Accept(answer(n, caisson.AnswerAccepted)), f.Answer(answer(n, caisson.AnswerCompleted), nil)); err != nil {
			t.Fatal(err)
		}
	}
	there := func(n int) bool { _, answered := f.Has(id(n)); return answered }
	waits := func(i caisson.RequestID) bool { return i == id(0) || i == id(2) }
	if err := f.Trim(time.Now(), waits); err != nil {
		t.Fatal(err)
	}
	if got := len(names(t, responses)); got != 2*caisson.ControlKept || !there(0) || there(1) || !there(2) || there(21) || !there(22) {
		t.Errorf("%d files are left", got)
	}
	// What is opened later knows the same order.
	again := reopen(t, dir)
	tick(t, f)
	if err := errors.Join(again.Answer(answer(made, caisson.AnswerRejected), nil), again.Trim(time.Now(), nil)); err != nil {
		t.Fatal(err)
	}
	if there(0) || !there(made) || !there(made-1) || len(names(t, responses)) != 2*caisson.ControlKept-1 {
		t.Error("the oldest were not removed")
	}
	if err := again.Trim(time.Now().Add(caisson.ControlKeptFor+time.Hour), func(i caisson.RequestID) bool { return i == id(made) }); err != nil {
		t.Fatal(err)
	}
	if got := names(t, responses); !slices.Equal(got, []string{string(id(made)) + ".json"}) {
		t.Errorf("after 7 days %d are left", len(got))
	}
	payload := make([]byte, caisson.ControlKeptBytes/4)
	for n := range 6 {
		if err := again.Answer(answer(2000+n, caisson.AnswerCompleted), payload); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Trim(time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	if got := names(t, responses); len(got) != 6 || !slices.Contains(got, string(id(2005))+".payload") || there(2002) || !there(2003) {
		t.Errorf("of 96 MiB %v are left", got)
	}
}

func TestTornAnswersAreRemovedAfterAStartOfTheMachine(t *testing.T) {
	f, dir := open(t)
	responses := filepath.Join(dir, "public/responses")
	for n := range 5 {
		if err := errors.Join(f.Accept(answer(n, caisson.AnswerAccepted)), f.Answer(answer(n, caisson.AnswerCompleted), []byte("payload"))); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(n int, suffix string, size int64) {
		if err := os.Truncate(filepath.Join(responses, string(id(n))+suffix), size); err != nil {
			t.Fatal(err)
		}
	}
	cut(0, ".json", 0)
	cut(1, ".json", 40)
	cut(2, ".payload", 3)
	cut(3, ".accepted.json", 1)
	again := reopen(t, dir)
	if accepted, answered := again.Has(id(0)); !accepted || !answered {
		t.Error("in one life of the machine nothing is torn, and nothing is looked through")
	}
	if err := os.WriteFile(filepath.Join(dir, "private/boot"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	again = reopen(t, dir)
	for n, want := range [][2]bool{{true, false}, {true, false}, {true, false}, {false, true}, {true, true}} {
		if accepted, answered := again.Has(id(n)); accepted != want[0] || answered != want[1] {
			t.Errorf("%d: accepted %v, answered %v", n, accepted, answered)
		}
	}
	if err := again.Answer(answer(2, caisson.AnswerCompleted), []byte("payload")); err != nil || read(t, filepath.Join(responses, string(id(2))+".payload")) != "payload" {
		t.Errorf("it was not made again: %v", err)
	}
}
