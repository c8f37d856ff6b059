package channel_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

// Whoever opened the channel before publishes and claims nothing any more, and
// what it had claimed and not read is there for the other.
func TestTheLatestHasTheChannel(t *testing.T) {
	f, dir := open(t)
	if err := f.Status(caisson.ControlStatusFile{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	send(t, f, id(1), "1")
	claimed := filepath.Join(dir, caisson.ControlPrivate, string(id(2))+".old.1.json")
	if err := os.WriteFile(claimed, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f.Displaced() {
		t.Error("displaced by nobody")
	}
	latest := reopen(t, dir)
	if !f.Displaced() || latest.Displaced() {
		t.Errorf("the first is displaced: %v, the latest: %v", f.Displaced(), latest.Displaced())
	}
	if err := latest.Status(caisson.ControlStatusFile{Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, caisson.ControlStatus))
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"status":   f.Status(caisson.ControlStatusFile{Epoch: 1}),
		"identity": f.Identity(caisson.ControlIdentityFile{}),
		"accepted": f.Accept(answer(1, caisson.AnswerAccepted)),
		"answer":   f.Answer(answer(1, caisson.AnswerRejected), nil),
	} {
		if caisson.CodeOf(err) != caisson.CodeWriteFailed {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := f.Claim(id(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("claimed: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, caisson.ControlStatus)); err != nil || string(after) != string(before) {
		t.Errorf("the status is %s, %v", after, err)
	}
	if accepted, answered := latest.Has(id(1)); accepted || answered {
		t.Error("something was published")
	}
	for n, want := range map[int]string{1: "1", 2: "2"} {
		if body, err := latest.Claim(id(n)); err != nil || string(body) != want {
			t.Errorf("request %d is %q, %v", n, body, err)
		}
	}
	for _, name := range names(t, dir) {
		if name != "channel" && name != "public" && name != "private" {
			t.Errorf("%s is left", name)
		}
	}
}

// Of those who open the channel at the same time one has it, and what was claimed
// before is there for that one.
func TestOpenedAtTheSameTime(t *testing.T) {
	for range 50 {
		f, dir := open(t)
		send(t, f, id(1), "1")
		if _, err := f.Claim(id(1)); err != nil {
			t.Fatal(err)
		}
		var all [3]*channel.Files
		var opening sync.WaitGroup
		for i := range all {
			opening.Go(func() {
				if f, err := channel.Make(dir); err == nil { // else another took it meanwhile
					all[i] = f
				}
			})
		}
		opening.Wait()
		have, left := 0, 0
		for _, f := range all {
			if f == nil {
				continue
			}
			if !f.Displaced() {
				have, left = have+1, len(f.Left())
			}
			if err := f.Status(caisson.ControlStatusFile{}); (err == nil) == f.Displaced() {
				t.Errorf("displaced: %v, published: %v", f.Displaced(), err)
			}
			f.Close()
		}
		if have != 1 || left != 1 {
			t.Fatalf("%d have it, with %d requests", have, left)
		}
	}
}
