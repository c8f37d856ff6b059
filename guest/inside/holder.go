package inside

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A command is two processes. The holder is forked from the guest and never
// executes anything: it is a subreaper, so that whatever the command starts, and
// however it hides, falls to it when its parent ends; it ends after all of them.
// The command proper is the holder's child, blocked before execve on a read of
// the gate.
//
// Forking without exec, in place of starting a program for the holder, is what
// makes a warm command about as fast as a plain fork and exec: nothing has to be
// loaded for it, and nothing is kept ready in memory for it. The command is
// forked from the holder as vfork does it: the holder has nothing to do until
// the program begins. What runs between fork and exec obeys the same rules as in
// package syscall: no allocation, no stack growth, no locks, raw system calls only.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// vfork is clone with flags and nothing else.
func vfork(flags uintptr) (pid, errno uintptr)

// Kinds of records that holder and command write to the status pipe.
const (
	recordPID  = 1 // value: pid of the held command
	recordExec = 2 // value: errno of execve; the command ends
	recordLeft = 3 // value: wait status of the command, which left processes behind
	recordEnd  = 4 // value: wait status; usage of all that the holder has reaped; it ends
)

// record is what is written at once, below PIPE_BUF: never torn.
type record struct {
	kind  uint32
	value uint32
	usage syscall.Rusage
}

const recordSize = unsafe.Sizeof(record{})

// Descriptors of the processes between fork and exec. The ones that come from
// the guest are minFD or above, so that they are not in the way.
const (
	fdGate   = 3
	fdStatus = 4
	minFD    = 10
)

// spawn is all that holder and command use; prepared before the fork.
type spawn struct {
	path      *byte
	argv      **byte
	env       **byte
	dir       int // descriptor of the working directory
	stdio     [3]int
	gate      int
	status    int
	terminal  bool // stdio[0] becomes the controlling terminal
	limits    [3]rlimit
	name      [16]byte
	action    [4]uint64 // a kernel sigaction of zeros: default
	ignored   uint64    // signals that the guest was started with ignored, 1 << signal-1
	allSigs   uint64
	gateByte  [1]byte
	ended     uint32 // wait status of the command
	rec       record
	waitFlags uintptr
}

type rlimit struct {
	resource uintptr
	value    syscall.Rlimit
}

// fork starts holder and command and returns the holder's pid.
//
//go:noinline
//go:norace
func fork(s *spawn) (int, syscall.Errno) {
	syscall.ForkLock.Lock()
	beforeFork()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		syscall.ForkLock.Unlock()
		runtime.KeepAlive(s)
		return int(pid), errno
	}
	// The holder.
	afterForkInChild()
	if errno = s.prepare(); errno != 0 {
		s.tell(uintptr(s.status), recordExec, uint32(errno))
		exit(126)
	}
	child, e := vfork(syscall.CLONE_VM | syscall.CLONE_VFORK | uintptr(syscall.SIGCHLD))
	if e != 0 {
		exit(126)
	}
	if child == 0 {
		begin(s)
	}
	hold(s, child)
	return 0, 0 // not reached
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// hold is the life of the holder once the program has begun: it reaps until
// nothing is left.
//
//go:nosplit
//go:norace
func hold(s *spawn, child uintptr) {
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 0, fdGate, 0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&s.allSigs)), 0, 8, 0, 0)
	for {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&s.rec.value)), s.waitFlags|unix.WALL, 0, 0, 0)
		switch {
		case errno == syscall.EINTR:
		case errno != 0: // nothing is left
			syscall.RawSyscall(syscall.SYS_GETRUSAGE, ^uintptr(0), uintptr(unsafe.Pointer(&s.rec.usage)), 0)
			s.tell(fdStatus, recordEnd, s.ended)
			exit(0)
		case pid == 0: // something is left
			s.tell(fdStatus, recordLeft, s.ended)
			s.waitFlags = 0
		case pid == child:
			s.ended = s.rec.value
			s.waitFlags = unix.WNOHANG
		}
	}
}

// tell writes a record.
//
//go:nosplit
//go:norace
func (s *spawn) tell(fd uintptr, kind, value uint32) {
	s.rec.kind, s.rec.value = kind, value
	for {
		_, _, e := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&s.rec)), recordSize)
		if e != syscall.EINTR {
			return
		}
	}
}

// begin is the command until it executes its program.
//
//go:nosplit
//go:norace
func begin(s *spawn) {
	_, _, e := syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if e == 0 && s.terminal {
		_, _, e = syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0)
	}
	if e == 0 {
		pid, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		s.tell(fdStatus, recordPID, uint32(pid))
		e = s.await()
	}
	if e == 0 {
		_, _, e = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(s.path)),
			uintptr(unsafe.Pointer(s.argv)), uintptr(unsafe.Pointer(s.env)))
	}
	s.tell(fdStatus, recordExec, uint32(e))
	exit(126)
}

// await returns when the gate is opened. It ends the command when the gate is
// closed for good.
//
//go:nosplit
//go:norace
func (s *spawn) await() syscall.Errno {
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READ, fdGate, uintptr(unsafe.Pointer(&s.gateByte[0])), 1)
		switch {
		case e == syscall.EINTR:
		case e != 0:
			return e
		case n == 1:
			return 0
		default:
			exit(125)
		}
	}
}

// prepare makes the holder what the command shall inherit.
//
//go:nosplit
//go:norace
func (s *spawn) prepare() syscall.Errno {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&s.name[0])), 0, 0, 0, 0)
	for i := uintptr(0); i < 3; i++ {
		if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(s.stdio[i]), i, 0); e != 0 {
			return e
		}
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_FCHDIR, uintptr(s.dir), 0, 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(s.gate), fdGate, syscall.O_CLOEXEC); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(s.status), fdStatus, syscall.O_CLOEXEC); e != 0 {
		return e
	}
	s.status = fdStatus
	// Nothing else of the guest's may stay open: a pipe whose writer lives on
	// in another command's holder would not end.
	if _, _, e := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, fdStatus+1, ^uintptr(0)>>33, 0); e != 0 {
		return e
	}
	for i := range s.limits {
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, s.limits[i].resource,
			uintptr(unsafe.Pointer(&s.limits[i].value)), 0, 0, 0); e != 0 {
			return e
		}
	}
	// A host that was started in the background has signals ignored, and an
	// ignored signal is inherited.
	for sig := uintptr(1); sig <= 64; sig++ {
		if s.ignored&(1<<(sig-1)) != 0 {
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&s.action[0])), 0, 8, 0, 0)
		}
	}
	return 0
}

// ignoredSignals returns the signals that this process ignores.
func ignoredSignals() uint64 {
	var mask uint64
	for sig := uintptr(1); sig <= 64; sig++ {
		var action [4]uint64
		_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action[0])), 8, 0, 0)
		if e == 0 && action[0] == 1 {
			mask |= 1 << (sig - 1)
		}
	}
	return mask
}
