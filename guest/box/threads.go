//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// onAllThreads makes a system call on every thread of this process.
//
// The runtime signals each of the others and spins until it has been there. All
// of them sleep; on a busy machine, each then waits for its turn on the processor
// where it slept, for longer than the rest of the set-up takes. So they are called
// to the processor of this thread, where one comes after the other while this one
// gives way. A pointer among the arguments is converted where this is called.
//
//go:uintptrescapes
func onAllThreads(trap, a1, a2, a3 uintptr) error {
	apart, err := gather()
	if err != nil {
		return fmt.Errorf("gather threads: %w", err)
	}
	_, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3)
	if err := apart(); err != nil {
		return fmt.Errorf("part threads: %w", err)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// gather binds all threads to the processor of this one, where that is allowed.
// apart lets them go where they could before; it must be called.
func gather() (apart func() error, err error) {
	var before, here unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return nil, errno
	}
	here.Set(int(cpu))
	if unix.SchedSetaffinity(0, &here) != nil {
		return func() error { return nil }, nil // a box that somebody else made may forbid it
	}
	apart = func() error { return bindThreads(&before) }
	if err := bindThreads(&here); err != nil {
		return nil, errors.Join(err, apart())
	}
	return apart, nil
}

// bindThreads binds every thread to a set of processors. One that is made
// meanwhile has what its maker has: they are listed again until none is new.
func bindThreads(to *unix.CPUSet) error {
	var bound []int
	for {
		tids, err := threads()
		if err != nil {
			return err
		}
		again := false
		for _, tid := range tids {
			if slices.Contains(bound, tid) {
				continue
			}
			if err := unix.SchedSetaffinity(tid, to); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			bound, again = append(bound, tid), true
		}
		if !again {
			return nil
		}
	}
}

func threads() ([]int, error) {
	fd, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "list", Path: "/proc/self/task", Err: err}
	}
	defer unix.Close(fd)
	var tids []int
	buf := make([]byte, 1024)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n == 0 {
			return tids, err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if tid, err := strconv.Atoi(name); err == nil {
				tids = append(tids, tid)
			}
		}
	}
}
