//go:build linux

package namespace_test

import (
	"os/exec"
	"testing"

	"github.com/caisson-run/caisson"
)

// A tree that makes processes without end and has killed its holder is ended like
// any other, and the sandbox lives on: the guest needs no thread that it cannot make.
func TestForksWithoutAHolderAreEnded(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	sb, _ := openWith(t, nil, func(s *caisson.SandboxSpec) { s.Limits.Pids = 200 })
	exit, _ := inside(t, sb, caisson.Command{Line: `exec python3 -c '
import os, signal
holder = os.getppid()
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            os.fork()
        except OSError:
            try:
                os.kill(holder, signal.SIGKILL)
            except OSError:
                pass
signal.pause()'`})
	if exit.Code != 137 || exit.Ended == 0 {
		t.Errorf("%+v", exit)
	}
	if _, out := inside(t, sb, caisson.Command{Line: "echo there"}); out != "there\n" {
		t.Errorf("after it: %q", out)
	}
}

// A sandbox of the fewest processes that can be asked for is one to work in.
func TestFewProcesses(t *testing.T) {
	sb, _ := openWith(t, nil, func(s *caisson.SandboxSpec) { s.Limits.Pids = 16 })
	for range 5 {
		if exit, out := inside(t, sb, caisson.Command{Line: "echo a | cat"}); out != "a\n" {
			t.Fatalf("%+v, %q", exit, out)
		}
	}
}
