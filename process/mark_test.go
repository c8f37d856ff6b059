package process_test

import (
	"context"
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
		cmd.Env = append(os.Environ(), process.Mark(by))
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
	outlives, err := process.Detach(process.Command{Path: "/bin/sleep", Args: []string{"1000"}, Env: append(os.Environ(), process.Mark(mine))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.EndTree(context.Background(), outlives) })
	time.Sleep(50 * time.Millisecond) // it has begun its program
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
	name, value, _ := strings.Cut(process.Mark(by), "=")
	t.Setenv(name, value)
	if !process.Marked(by) {
		t.Error("the mark is not seen")
	}
	if err := process.EndMarked(t.Context(), by); caisson.CodeOf(err) != caisson.CodeOrphanAlive {
		t.Errorf("it ends itself: %v", err)
	}
}
