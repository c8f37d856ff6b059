//go:build !race

package process

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What runs here is the child between clone and execve. It shares this
// process's memory but not its stack, so nothing is copied for it however large
// this process is; and while it runs, this process goes on. So it is no Go
// program: no allocation, no growth of the stack, no locks, no global state,
// only raw system calls, on a birth that nobody else touches meanwhile.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// cloneBirth is the system call trap (clone or clone3) with two arguments, whose
// child calls live(b).
//
// Package guest/inside has the like. The child's first function is called by its name there: an
// address that is handed over would be called as Go calls its own functions,
// which is promised to nobody, or take as much assembly in each package as is
// shared.
func cloneBirth(trap, a0, a1 uintptr, b *birth) (pid, errno uintptr)

// steps of a child, for the message of one that does not succeed.
const (
	stepIDs = iota
	stepUser
	stepCapabilities
	stepSession
	stepDir
	stepFiles
	stepExec
)

// birth is all that the child uses.
type birth struct {
	path *byte
	argv **byte
	env  **byte
	dir  *byte

	gate      int // a byte comes when the ids are mapped; its end ends the child
	otherGate int // where the byte comes from, closed at once
	status    int // closed by execve; else the failure

	setUser    bool
	dropGroups bool
	uid, gid   uintptr
	caps       [2]uint32 // to keep over execve
	highestCap uintptr
	session    bool
	slack      uintptr // nanoseconds; 0: as it is
	turn       uint64  // nanoseconds; 0: as it is
	sched      unix.SchedAttr
	files      []int // become descriptors 0, 1, 2, …; -1: closed
	keep       int   // descriptors from here on are nothing of the program's

	action  [4]uint64 // a kernel sigaction of zeros: default
	noSigs  uint64    // a mask
	one     [1]byte
	header  unix.CapUserHeader
	capData [2]unix.CapUserData
	failed  failure
	stack   []byte
	args    cloneArgs
}

// failure is what a child says that does not come to execve.
type failure struct{ step, errno uint32 }

const failureSize = unsafe.Sizeof(failure{})

// live is the child's, from its first instruction.
//
//go:nosplit
//go:norace
func live(b *birth) {
	step, e := b.prepare()
	if e == 0 {
		step = stepExec
		_, _, e = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(b.path)), uintptr(unsafe.Pointer(b.argv)), uintptr(unsafe.Pointer(b.env)))
	}
	b.failed = failure{step, uint32(e)}
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(b.status), uintptr(unsafe.Pointer(&b.failed)), failureSize)
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

//go:nosplit
//go:norace
func (b *birth) prepare() (step uint32, e syscall.Errno) {
	// This process's handlers are not for the child, and what it ignores (it was
	// started in the background) would be inherited.
	for sig := uintptr(1); sig <= 64; sig++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&b.action[0])), 0, 8, 0, 0)
	}
	if e = b.await(); e != 0 {
		return stepIDs, e
	}
	if e = b.become(); e != 0 {
		return stepUser, e
	}
	if e = b.keepCapabilities(); e != 0 {
		return stepCapabilities, e
	}
	if b.session {
		if _, _, e = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0); e != 0 {
			return stepSession, e
		}
	}
	if _, _, e = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(b.dir)), 0, 0); e != 0 {
		return stepDir, e
	}
	if e = b.arrange(); e != 0 {
		return stepFiles, e
	}
	if b.slack != 0 {
		syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, b.slack, 0, 0, 0, 0) // cannot fail
	}
	if b.turn != 0 {
		b.takeTurns()
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&b.noSigs)), 0, 8, 0, 0)
	return stepExec, 0
}

// takeTurns wishes for shorter turns of the processor; a kernel that knows of none
// has the same for all. Who has another order of things (real time, idle) keeps it.
//
//go:nosplit
//go:norace
func (b *birth) takeTurns() {
	_, _, e := syscall.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(&b.sched)), unix.SizeofSchedAttr, 0, 0, 0)
	if e == 0 && b.sched.Policy == unix.SCHED_NORMAL {
		b.sched.Runtime = b.turn
		syscall.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(&b.sched)), 0)
	}
}

// await returns when this process has mapped the child's ids. It ends the child
// when that cannot happen any more.
//
//go:nosplit
//go:norace
func (b *birth) await() syscall.Errno {
	syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(b.otherGate), 0, 0)
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(b.gate), uintptr(unsafe.Pointer(&b.one[0])), 1)
		switch {
		case e == syscall.EINTR:
		case e != 0:
			return e
		case n == 1:
			return 0
		default:
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 127, 0, 0)
		}
	}
}

//go:nosplit
//go:norace
func (b *birth) become() (e syscall.Errno) {
	if !b.setUser {
		return 0
	}
	if b.caps[0]|b.caps[1] != 0 {
		if _, _, e = syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); e != 0 {
			return e
		}
	}
	if b.dropGroups {
		if _, _, e = syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			return e
		}
	}
	if _, _, e = syscall.RawSyscall(syscall.SYS_SETGID, b.gid, 0, 0); e == 0 {
		_, _, e = syscall.RawSyscall(syscall.SYS_SETUID, b.uid, 0, 0)
	}
	return e
}

// keepCapabilities makes those ambient that the program shall have.
//
//go:nosplit
//go:norace
func (b *birth) keepCapabilities() (e syscall.Errno) {
	if b.caps[0]|b.caps[1] == 0 {
		return 0
	}
	b.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if _, _, e = syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&b.header)), uintptr(unsafe.Pointer(&b.capData[0])), 0); e != 0 {
		return e
	}
	for i := range b.caps {
		b.capData[i].Permitted |= b.caps[i]
		b.capData[i].Inheritable |= b.caps[i]
	}
	if _, _, e = syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&b.header)), uintptr(unsafe.Pointer(&b.capData[0])), 0); e != 0 {
		return e
	}
	for c := uintptr(0); c <= b.highestCap; c++ {
		if b.caps[c/32]&(1<<(c%32)) == 0 {
			continue
		}
		if _, _, e = syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0, 0); e != 0 {
			return e
		}
	}
	return 0
}

// arrange puts the files in order: first out of each other's way, then down.
// All other descriptors are closed by execve, whoever opened them and how.
//
//go:nosplit
//go:norace
func (b *birth) arrange() syscall.Errno {
	high, _, e := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(b.status), unix.F_DUPFD_CLOEXEC, uintptr(b.keep))
	if e != 0 {
		return e
	}
	// Both are open until execve, so that its end is not seen before.
	b.status = int(high)
	for i := range b.files {
		if b.files[i] < 0 {
			continue
		}
		fd, _, e := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(b.files[i]), unix.F_DUPFD_CLOEXEC, uintptr(b.keep))
		if e != 0 {
			return e
		}
		b.files[i] = int(fd)
	}
	for i := range b.files {
		if b.files[i] < 0 {
			syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(i), 0, 0)
			continue
		}
		if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(b.files[i]), uintptr(i), 0); e != 0 {
			return e
		}
	}
	_, _, e = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, uintptr(len(b.files)), 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	if e == syscall.EINVAL || e == syscall.ENOSYS {
		return 0 // before 5.11; those that Go opens are closed anyway
	}
	return e
}
