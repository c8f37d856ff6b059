package inside

import (
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
// The holder shares the guest's memory, as a child of vfork does, but on a stack
// of its own, so that both go on. Nothing is copied for it and nothing loaded,
// which is what makes a warm command about as fast as a plain fork and exec.
// The command is forked from the holder as vfork does it: the holder has
// nothing to do until the program begins.
//
// So what runs here is no Go program: no allocation, no growth of the stack, no
// locks, no global state, only raw system calls, on a spawn that the guest keeps
// alive and does not touch for as long as its holder lives.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// cloneOn is clone with flags, whose child calls life(s) on the given stack.
//
// Package process has the like. The child's first function is called by its name there: an
// address that is handed over would be called as Go calls its own functions,
// which is promised to nobody, or take as much assembly in each package as is
// shared.
//
//go:noescape
func cloneOn(flags, stack uintptr, s *spawn) (pid, errno uintptr)

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
	fdRules  = 5
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
	rules     int  // Landlock rules for the command over the guest's own; 0: none
	terminal  bool // stdio[0] becomes the controlling terminal
	limits    [3]rlimit
	name      [16]byte
	action    [4]uint64 // a kernel sigaction of zeros: default
	noSigs    uint64    // a mask
	stack     []byte    // of the holder
	sched     unix.SchedAttr
	gateByte  [1]byte
	ended     uint32 // wait status of the command
	rec       record
	waitFlags uintptr
}

type rlimit struct {
	resource uintptr
	value    syscall.Rlimit
}

// timerSlack is by how many nanoseconds timers may be late, the kernel's default
// (kernel/fork.c).
const timerSlack = 50_000

// stackSize is ample: the deepest chain of calls is bounded by the linker, at
// less than a kilobyte.
const stackSize = 16 << 10

// fork starts holder and command and returns the holder's pid. s and its stack
// belong to the holder until it was reaped.
//
//go:noinline
//go:norace
func fork(s *spawn) (int, syscall.Errno) {
	top := uintptr(unsafe.Pointer(&s.stack[0])) + stackSize
	syscall.ForkLock.Lock()
	beforeFork() // blocks signals: the child must not run the guest's handlers
	pid, errno := cloneOn(syscall.CLONE_VM|uintptr(syscall.SIGCHLD), top, s)
	afterFork()
	syscall.ForkLock.Unlock()
	return int(pid), syscall.Errno(errno)
}

// life is the holder's, from its first instruction.
//
//go:nosplit
//go:norace
func life(s *spawn) {
	if errno := s.prepare(); errno != 0 {
		s.tell(uintptr(s.status), recordExec, uint32(errno))
		exit(126)
	}
	child, e := vfork(syscall.CLONE_VM | syscall.CLONE_VFORK | uintptr(syscall.SIGCHLD))
	if e != 0 {
		s.tell(fdStatus, recordExec, uint32(e))
		exit(126)
	}
	if child == 0 {
		begin(s)
	}
	hold(s, child)
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
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&s.noSigs)), 0, 8, 0, 0)
	if e == 0 && s.terminal {
		_, _, e = syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 0)
	}
	if e == 0 {
		pid, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		s.tell(fdStatus, recordPID, uint32(pid))
		e = s.await()
	}
	if e == 0 && s.rules != 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fdRules, 0, 0)
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
	// The guest's handlers are not for others, and what it ignores (a host that
	// was started in the background has signals ignored) would be inherited.
	for sig := uintptr(1); sig <= 64; sig++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&s.action[0])), 0, 8, 0, 0)
	}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	// What the guest has is not for programs: timers that may be late, short turns.
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0, 0) // cannot fail
	s.takeTurns()
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
	above := uintptr(fdStatus + 1)
	if s.rules != 0 {
		if _, _, e := syscall.RawSyscall(syscall.SYS_DUP3, uintptr(s.rules), fdRules, syscall.O_CLOEXEC); e != 0 {
			return e
		}
		above = fdRules + 1
	}
	// Nothing else of the guest's may stay open: a pipe whose writer lives on
	// in another command's holder would not end.
	if _, _, e := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, above, ^uintptr(0)>>33, 0); e != 0 {
		return e
	}
	for i := range s.limits {
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, s.limits[i].resource,
			uintptr(unsafe.Pointer(&s.limits[i].value)), 0, 0, 0); e != 0 {
			return e
		}
	}
	return 0
}

// takeTurns goes back to the kernel's default for how long it has the processor at
// once, where it is told apart at all.
//
//go:nosplit
//go:norace
func (s *spawn) takeTurns() {
	_, _, e := syscall.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(&s.sched)), unix.SizeofSchedAttr, 0, 0, 0)
	if e == 0 && s.sched.Policy == unix.SCHED_NORMAL {
		s.sched.Runtime = 0
		syscall.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(&s.sched)), 0)
	}
}
