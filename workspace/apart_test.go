//go:build linux

package workspace

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// A process that cannot be looked at, and has only begun, is given the time that a
// box takes to be made on a busy machine; one that is as it is, is told of at once.
func TestYoungProcessIsWaitedFor(t *testing.T) {
	t.Parallel()
	start := func(seconds string) (*holder, *exec.Cmd) {
		cmd := exec.CommandContext(t.Context(), "sleep", seconds)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }() // ends with it, at the latest with the test
		return &holder{at: fmt.Sprint("/proc/", cmd.Process.Pid), dirs: []string{t.TempDir()}}, cmd
	}
	made := time.Now().Add(-time.Hour)
	stays, cmd := start("1000")
	ends, gone := start("3")
	if ends.unseen(t.Context(), gone.Process.Pid, made) {
		t.Error("one that ended after three seconds was not waited for")
	}
	if !stays.unseen(t.Context(), cmd.Process.Pid, made) {
		t.Error("one that stays is not told of")
	}
	begun := time.Now()
	if !stays.unseen(t.Context(), cmd.Process.Pid, made) {
		t.Error("one that stays is not told of again")
	}
	if took := time.Since(begun); took > settling/2 {
		t.Errorf("one that is old is waited for: %v", took)
	}
	if stays.unseen(t.Context(), cmd.Process.Pid, time.Now().Add(time.Hour)) {
		t.Error("one that began before the workspace was made is told of")
	}
}
