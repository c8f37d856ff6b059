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
// loaded for it, and nothing is kept ready in memory for it. What runs between
// fork and exec obeys the same rules as in package syscall: no allocation, no
// stack growth, no locks, raw system calls only.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

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
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0); e != 0 {
		exit(126)
	}
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		exit(126)
	}
	if pid == 0 {
		command0(s)
	}
	hold(s, pid)
	return 0, 0 // not reached
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// hold is the life of the holder: it reaps until nothing is left.
//
//go:nosplit
//go:norace
func hold(s *spawn, child uintptr) {
	// Nothing of the guest's may stay open here: a pipe whose writer lives in
	// another command's holder would never end.
	syscall.RawSyscall(syscall.SYS_DUP3, uintptr(s.status), fdGate, syscall.O_CLOEXEC)
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, fdGate+1, ^uintptr(0)>>33, 0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&s.allSigs)), 0, 8, 0, 0)
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&s.name[0])), 0, 0, 0, 0)
	s.tell(fdGate, recordPID, uint32(child))
	for {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&s.rec.value)), s.waitFlags|unix.WALL, 0, 0, 0)
		switch {
		case errno == syscall.EINTR:
		case errno != 0: // nothing is left
			syscall.RawSyscall(syscall.SYS_GETRUSAGE, ^uintptr(0), uintptr(unsafe.Pointer(&s.rec.usage)), 0)
			s.tell(fdGate, recordEnd, s.ended)
			exit(0)
		case pid == 0: // something is left
			s.tell(fdGate, recordLeft, s.ended)
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

// command0 is the command until it executes its program.
//
//go:nosplit
//go:norace
func command0(s *spawn) {
	if e := s.prepare(); e != 0 {
		s.tell(uintptr(s.status), recordExec, uint32(e))
		exit(126)
	}
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READ, fdGate, uintptr(unsafe.Pointer(&s.gateByte[0])), 1)
		if e == syscall.EINTR {
			continue
		}
		if n != 1 {
			exit(125) // dropped
		}
		break
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(s.path)),
		uintptr(unsafe.Pointer(s.argv)), uintptr(unsafe.Pointer(s.env)))
	s.tell(fdStatus, recordExec, uint32(e))
	exit(126)
}

// prepare gives the command its session, descriptors, directory and limits.
//
//go:nosplit
//go:norace
func (s *spawn) prepare() syscall.Errno {
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0); e != 0 {
		return e
	}
	for i := uintptr(0); i < 3; i++ {
		if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(s.stdio[i]), i, 0); e != 0 {
			return e
		}
	}
	if s.terminal {
		if _, _, e := syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0); e != 0 {
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
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, fdStatus+1, ^uintptr(0)>>33, 0)
	for i := range s.limits {
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, s.limits[i].resource,
			uintptr(unsafe.Pointer(&s.limits[i].value)), 0, 0, 0); e != 0 {
			return e
		}
	}
	// A host that was started in the background has signals ignored, and an
	// ignored signal is inherited.
	for sig := uintptr(1); sig <= 64; sig++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&s.action[0])), 0, 8, 0, 0)
	}
	return 0
}
