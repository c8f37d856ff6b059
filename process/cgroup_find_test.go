package process

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// The cgroups of a box that is being started, which the process's first thread
// is in for that moment, are not taken for the process's own.
func TestCgroupsAreFoundBesideAStart(t *testing.T) {
	before, g := real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: testLimits})
	if len(g.dirs) == 0 || g.fd != nil && len(g.dirs) == 1 {
		t.Skip("no thread of this process is put into a cgroup here")
	}
	found, failed := &Cgroups{}, error(nil)
	onFirstThread(t, func() error {
		return g.Start(&syscall.SysProcAttr{}, func() error {
			done := make(chan struct{})
			go func() {
				defer close(done)
				found, failed = FindCgroups()
			}()
			<-done
			return nil
		})
	})
	if failed != nil {
		t.Fatal(failed)
	}
	if diff := cmp.Diff(before.v1, found.v1) + cmp.Diff(before.v2, found.v2); diff != "" {
		t.Errorf("found:\n%s", diff)
	}
}

// onFirstThread calls do in the thread that the kernel shows for the process.
// Threads that are not it are held, so that there is at last no other one.
func onFirstThread(t *testing.T, do func() error) {
	t.Helper()
	const most = 1000
	over, done := make(chan struct{}), make(chan error, 1)
	defer close(over)
	try := func() bool {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		first := unix.Gettid() == unix.Getpid()
		if first {
			done <- do()
		}
		return first
	}
	for range most {
		missed := make(chan struct{})
		if !try() { // here, where it may be as well
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				if !try() {
					close(missed)
					<-over
				}
			}()
		}
		select {
		case <-missed:
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("none of %d goroutines was in the first thread", most)
}
