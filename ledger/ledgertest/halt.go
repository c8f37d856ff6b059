package ledgertest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Halt stops a process (SIGSTOP) that writes the SQLite ledger at path, but not in
// the middle of a write: it would keep all others out of the ledger until it goes
// on, and what a test wants to see of them is something else.
func Halt(t testing.TB, path string, pid int) {
	t.Helper()
	for _, lock := range []string{".gate", ".writer"} {
		f, err := os.OpenFile(path+lock, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // lets go of it
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !stopped(t, pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not stopped", pid)
		}
	}
}

// stopped tells whether all threads of a process are: they do not stop at once.
func stopped(t testing.TB, pid int) bool {
	t.Helper()
	threads := fmt.Sprintf("/proc/%d/task/", pid)
	ids, err := os.ReadDir(threads)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		status, err := os.ReadFile(threads + id.Name() + "/status")
		if err != nil || !strings.Contains(string(status), "\nState:\tT") {
			return false
		}
	}
	return true
}
