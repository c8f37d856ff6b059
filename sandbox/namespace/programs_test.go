//go:build linux

package namespace_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// What the guest takes upon itself is not handed on to programs: late timers, also
// as what a program goes back to, and one processor. They are ended for memory
// before it, however many begin at once.
func TestProgramsHaveWhatTheHostGives(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	sb, _ := openWith(t, nil, func(s *caisson.SandboxSpec) { s.Limits.CPUs = int64(all.Count()) })
	score := func(pid int) int {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			t.Error(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	own := score(os.Getpid())
	want := fmt.Sprintf("50000 50000 %d %d\n", all.Count(), min(own+500, 1000))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			_, out := inside(t, sb, caisson.Command{Line: `exec python3 -c '
import ctypes, os
prctl = ctypes.CDLL(None).prctl
now = prctl(30, 0, 0, 0, 0) # PR_GET_TIMERSLACK
prctl(29, 0, 0, 0, 0) # PR_SET_TIMERSLACK to the default
print(now, prctl(30, 0, 0, 0, 0), len(os.sched_getaffinity(0)), open("/proc/self/oom_score_adj").read(), end="")'`})
			if out != want {
				t.Errorf("%q, want %q", out, want)
			}
		})
	}
	group.Wait()
	if got := score(sb.Record().Guest.PID); got != own {
		t.Errorf("the guest's score is %d, want %d", got, own)
	}
}
