package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/process"
	"golang.org/x/sys/unix"
)

// endDriven ends the processes that drive runs of a ledger when its test is
// over, however that went: they are nobody's children. In order first, as that
// leaves nothing in the kernel.
func endDriven(t testing.TB, ledger string) {
	t.Helper()
	if _, err := os.Stat(ledger); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		holders, err := driving(ctx, ledger)
		if err != nil {
			t.Logf("who drives runs of %s cannot be told: %v", ledger, err) // the ledger of such a test is broken on purpose
			return
		}
		for _, id := range holders {
			endProcess(ctx, t, id, sig)
		}
	}
}

// driving returns the processes that drive runs of a ledger, besides this one.
func driving(ctx context.Context, ledger string) (holders []caisson.ProcessIdentity, err error) {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: ledger, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	runs, err := l.Runs(ctx, caisson.RunFilter{})
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.Lease.Instance == "" {
			continue
		}
		inst, err := l.Instance(ctx, r.Lease.Instance)
		if err != nil {
			return nil, err
		}
		if id := inst.Process; id.PID != os.Getpid() && process.Alive(id) == caisson.Alive && !slices.Contains(holders, id) {
			holders = append(holders, id)
		}
	}
	return holders, nil
}

// endBound is how long a process that was told to end may take.
const endBound = 15 * time.Second

// endProcess signals a process and waits for its end.
func endProcess(ctx context.Context, t testing.TB, id caisson.ProcessIdentity, sig unix.Signal) {
	t.Helper()
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil || process.Alive(id) != caisson.Alive { // looked at when its number is held
		return
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return // it has ended
	}
	if !gone(ctx, fd, endBound) {
		t.Logf("process %d has not ended %s after %s", id.PID, endBound, sig)
	}
}

// gone waits for the end of the process of a pidfd.
func gone(ctx context.Context, fd int, bound time.Duration) bool {
	for end := time.Now().Add(bound); ctx.Err() == nil; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(time.Until(end), 0).Milliseconds()))
		if err == nil || !errors.Is(err, unix.EINTR) {
			return n == 1
		}
	}
	return false
}

// A test that leaves a session open leaves no process.
func TestHoldersEndWithTheirTest(t *testing.T) {
	t.Parallel()
	fd := -1
	t.Run("open", func(t *testing.T) {
		p := newPerson(t, map[string]string{})
		p.start(window, "sandbox", "shell", "--no-workspace", "-d").ends(0)
		var err error
		if fd, err = unix.PidfdOpen(p.holder(), 0); err != nil {
			t.Fatal(err)
		}
	})
	if fd < 0 {
		return
	}
	defer unix.Close(fd)
	if !gone(t.Context(), fd, 0) {
		t.Error("its holder lives")
	}
}

// A holder whose record is taken away ends, and all in its sandbox with it: who
// would find it again?
func TestHolderWhoseRecordIsRemoved(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.start(window, "sandbox", "exec", "--no-workspace", "--", "sh", "-c", `echo up-$((1+1)); exec sleep 600.5`)
	s.see("up-2", 1)
	fd, err := unix.PidfdOpen(p.holder(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	inside := below(p.holder())
	if len(inside) == 0 {
		t.Fatal("it has nothing inside")
	}
	if err := os.RemoveAll(filepath.Join(p.home, "state")); err != nil {
		t.Fatal(err)
	}
	if !gone(t.Context(), fd, never) {
		t.Fatal("its holder lives")
	}
	end := time.Now().Add(never) // a guest ends a moment after its host
	for _, pid := range inside {
		for alive(pid) && time.Now().Before(end) {
			<-time.After(time.Millisecond)
		}
		if alive(pid) {
			t.Errorf("process %d of the sandbox lives", pid)
		}
	}
	s.ends(caisson.ExitUnknown)
}

// below returns the processes that a process has started.
func below(pid int) (found []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		raw, _ := os.ReadFile(list) // of a thread that may have ended
		for _, text := range strings.Fields(string(raw)) {
			var child int
			if _, err := fmt.Sscan(text, &child); err == nil {
				found = append(append(found, child), below(child)...)
			}
		}
	}
	return found
}
