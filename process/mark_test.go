package process_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// What was started with a mark is ended with all that it has started and that is
// cut off from it; what bears another, and what was started to outlive it, is not.
func TestEndMarked(t *testing.T) {
	mine, others := caisson.NewInstanceID(), caisson.NewInstanceID()
	begin := func(by caisson.InstanceID) caisson.ProcessIdentity {
		t.Helper()
		cmd := exec.Command("sh", "-c", "setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'")
		cmd.Env = process.Mark(os.Environ(), by)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		id, err := process.Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = process.EndTree(context.Background(), id) })
		return id
	}
	left, other := begin(mine), begin(others)
	outlives, err := process.Detach(process.Command{Path: "/bin/sleep", Args: []string{"1000"}, Env: process.Mark(os.Environ(), mine)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.EndTree(context.Background(), outlives) })
	if err := process.EndMarked(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if got := process.Alive(left); got != caisson.Dead {
		t.Errorf("what was cut off is %s", got)
	}
	for what, id := range map[string]caisson.ProcessIdentity{"what bears another mark": other, "what was detached": outlives} {
		if got := process.Alive(id); got != caisson.Alive {
			t.Errorf("%s is %s", what, got)
		}
	}
}

// A process that bears a mark does not end what bears it: it would be itself.
func TestEndMarkedByOneThatIs(t *testing.T) {
	by := caisson.NewInstanceID()
	if process.Marked(by) {
		t.Error("a mark that nobody has given")
	}
	name, value, _ := strings.Cut(process.Mark(nil, by)[0], "=")
	t.Setenv(name, value)
	if !process.Marked(by) {
		t.Error("the mark is not seen")
	}
	if err := process.EndMarked(t.Context(), by); caisson.CodeOf(err) != caisson.CodeOrphanAlive {
		t.Errorf("it ends itself: %v", err)
	}
}

// Who holds two workspaces, one in the command of the other, is found by either.
func TestMarkInMark(t *testing.T) {
	outer, inner := caisson.NewInstanceID(), caisson.NewInstanceID()
	for _, by := range []caisson.InstanceID{outer, inner} {
		cmd := exec.Command("sh", "-c", "exec sleep 1000")
		cmd.Env = process.Mark(process.Mark(os.Environ(), outer), inner)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }() // ends below
		if err := process.EndMarked(t.Context(), by); err != nil {
			t.Error(err)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("it is not found")
			_ = cmd.Process.Kill()
			<-ended
		}
	}
}

// What is being cut off while it is looked for, one after another that starts the
// next and ends, is ended, however far that has come.
func TestEndMarkedWhileItIsCutOff(t *testing.T) {
	for range 100 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		by := caisson.NewInstanceID()
		cmd := exec.Command("setsid", "-f", "setsid", "-f", "setsid", "-f", "sleep", "1000")
		cmd.Env, cmd.ExtraFiles = process.Mark(os.Environ(), by), []*os.File{w}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		time.Sleep(rand.N(4 * time.Millisecond)) // somewhere in that
		if err := process.EndMarked(t.Context(), by); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it may have been killed
		end := r.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := r.Read(make([]byte, 1)); end != nil || !errors.Is(err, io.EOF) { // of whoever has the other end
			t.Fatalf("it is not ended: %v, %v", end, err)
		}
		r.Close()
	}
}
