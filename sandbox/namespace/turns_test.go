//go:build linux && !race

package namespace_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// The guest has the processor for short, and what it holds as programs of the host.
// With the race detector nothing is asked for; see process.Cloner.
func TestTurns(t *testing.T) {
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil || own.Runtime == 0 || own.Policy != unix.SCHED_NORMAL {
		t.Skipf("this kernel tells of no turns: %+v, %v", own, err)
	}
	sb, _ := openWith(t, nil)
	p, err := sb.Hold(t.Context(), caisson.Command{Line: "true"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Drop()
	for pid, want := range map[int]bool{sb.Record().Guest.PID: true, p.Identity().PID: false} {
		got, err := unix.SchedGetAttr(pid, 0)
		if err != nil || got.Runtime < own.Runtime != want {
			t.Errorf("process %d: %+v (%v); shorter than %d should be %t", pid, got, err, own.Runtime, want)
		}
	}
}
