//go:build linux

package workspace

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program that is just being started here, and is not yet what it is to be, has
// all open that this process has. It is not looked at before it is.
func TestWhatIsBeingStartedHoldsNothing(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.Stdin = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	look := func() []string {
		open, _, err := holders(t.Context(), time.Now(), dir)
		if err != nil {
			t.Error(err)
		}
		return open
	}
	if open := look(); len(open) != 1 || !strings.Contains(open[0], "file") {
		t.Fatalf("open: %q", open)
	}
	syscall.ForkLock.Lock() // as who starts a program has it, until that is one
	found := make(chan []string)
	go func() { found <- look() }()
	select {
	case open := <-found:
		t.Errorf("looked at while it was being started: %q", open)
		go func() { found <- nil }()
	case <-time.After(300 * time.Millisecond): // it takes a tenth of that
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	syscall.ForkLock.Unlock()
	if open := <-found; len(open) > 0 {
		t.Errorf("open: %q", open)
	}
}

// A child of this process that is still this program, as one is for which a namespace
// is made, is waited for while it is young; another program is told of at once.
func TestChildThatBegins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CAISSON_TEST_RESTS_FOR=700ms")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }() // ends with it, at the latest with the test
	}
	start("/proc/self/exe")
	open, _, err := holders(t.Context(), time.Now(), dir)
	if err != nil || len(open) > 0 {
		t.Errorf("open: %q, %v", open, err)
	}
	least := 2 * settling // a busy machine only adds to what a look takes
	for n := 1; n < 5 && least > settling/2; n++ {
		start("sleep", "1000")
		begun := time.Now()
		open, _, err = holders(t.Context(), time.Now(), dir)
		if least = min(least, time.Since(begun)); err != nil || len(open) != n {
			t.Fatalf("%q, %v", open, err)
		}
	}
	if least > settling/2 {
		t.Errorf("another program is told of after %v", least)
	}
}

// A process that cannot be looked at, and has only begun, is given the time that a
// box takes to be made on a busy machine; one that is as it is, is told of at once.
func TestYoungProcessIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "file")) // who started them has been there
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	start := func(seconds string) (*holder, *exec.Cmd) {
		cmd := exec.CommandContext(t.Context(), "sleep", seconds)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }() // ends with it, at the latest with the test
		return &holder{at: fmt.Sprint("/proc/", cmd.Process.Pid), dirs: []string{dir}}, cmd
	}
	begun := time.Now()
	made := time.Now().Add(-time.Hour)
	stays, cmd := start("1000")
	ends, gone := start("3")
	if ends.unseen(t.Context(), gone.Process.Pid, made, begun) {
		t.Error("one that ended after three seconds was not waited for")
	}
	if !stays.unseen(t.Context(), cmd.Process.Pid, made, begun) {
		t.Error("one that stays is not told of")
	}
	least := 2 * settling
	for n := 0; n < 5 && least > settling/2; n++ {
		now := time.Now()
		if !stays.unseen(t.Context(), cmd.Process.Pid, made, begun) {
			t.Error("one that stays is not told of again")
		}
		least = min(least, time.Since(now))
	}
	if least > settling/2 {
		t.Errorf("one that is old is waited for: %v", least)
	}
	if stays.unseen(t.Context(), cmd.Process.Pid, time.Now().Add(time.Hour), begun) {
		t.Error("one that began before the workspace was made is told of")
	}
	if old := time.Now(); !stays.unseen(t.Context(), cmd.Process.Pid, made, old) || time.Since(old) < passing {
		t.Errorf("one that may be ending is told of after %v", time.Since(old))
	}
}

// A process that cannot be looked at is no matter where a Caisson started it that has
// nothing open there. Another program's child, and one of a Caisson that is there, is.
func TestWhatWasStartedElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := func(pid int, dir string) *holder {
		return &holder{at: fmt.Sprint("/proc/", pid), dirs: []string{dir}}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 >/dev/null & echo $!; exec >&-; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	below, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(below, syscall.SIGKILL) }() // nobody else's: it ends here alone
	ours, elsewhere := cmd.Process.Pid, t.TempDir()
	if !at(ours, elsewhere).sent(ours) {
		t.Error("who started it has nothing there, and it is told of")
	}
	if at(ours, dir).sent(ours) {
		t.Error("who started it is there, and it is not told of")
	}
	if at(below, elsewhere).sent(below) {
		t.Error("another program's child is not told of")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
}
