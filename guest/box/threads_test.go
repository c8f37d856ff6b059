//go:build linux && (amd64 || arm64)

package box

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// All threads are on one processor while they are gathered, and where they were
// when they are parted, those too that were made meanwhile.
func TestThreadsAreGatheredAndParted(t *testing.T) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	if before.Count() < 2 {
		t.Skip("there is one processor")
	}
	done := make(chan struct{})
	defer close(done)
	more := func() {
		for range 8 {
			there := make(chan struct{})
			go func() {
				runtime.LockOSThread() // a thread of its own, which ends with it
				close(there)
				<-done
			}()
			<-there
		}
	}
	each := func(want int) {
		t.Helper()
		tids, err := threads()
		if err != nil {
			t.Fatal(err)
		}
		on := before
		for i, tid := range tids {
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &now); err != nil {
				continue // it has ended
			}
			if i == 0 {
				on = now
			}
			if now.Count() != want || now != on {
				t.Errorf("thread %d is bound to %d processors, want %d, and the same as the others", tid, now.Count(), want)
			}
		}
	}
	more()
	apart, err := gather()
	if err != nil {
		t.Fatal(err)
	}
	each(1)
	more()
	each(1)
	if err := apart(); err != nil {
		t.Fatal(err)
	}
	each(before.Count())
}
